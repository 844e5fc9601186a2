package api_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

func (f *fixture) read(path, encoding string) (status int, body []byte, err error) {
	f.t.Helper()
	req, err := http.NewRequestWithContext(f.t.Context(), http.MethodGet, f.server.URL+path, http.NoBody)
	if err != nil {
		f.t.Fatal(err)
	}
	req.Header.Set("Authorization", "token "+f.admin)
	req.Header.Set("Accept-Encoding", encoding)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		f.t.Fatalf("GET %s: %v", path, err)
	}
	defer res.Body.Close()
	body, err = io.ReadAll(res.Body)
	return res.StatusCode, body, err
}

// TestScarceMemoryCutsNoAnswer requests lists whose last update is large while an upload holds the
// memory. The server must reject the requests before it begins a response.
func TestScarceMemoryCutsNoAnswer(t *testing.T) {
	f := newFixture(t, options{limits: request.Limits{Together: 16 << 20, Patience: 50 * time.Millisecond}})
	stack := f.stack("dev")
	for _, size := range []int{8 << 10, 3500, 3500} { // newest first
		prog := program()
		prog["metadata"] = map[string]any{"message": strings.Repeat("x", size)}
		var created struct{ UpdateID string }
		f.do("POST", stack+"/update", prog).want(200, &created)
		u := update{f: f, path: stack + "/update/" + created.UpdateID}
		var started struct{ Token string }
		f.do("POST", u.path, map[string]any{}).want(200, &started)
		u.token = started.Token
		u.send("POST", "/complete", map[string]any{"status": "succeeded"}).want(204, nil)
	}
	upload := f.dial()
	if _, err := fmt.Fprintf(upload, "POST %s/import HTTP/1.1\r\nHost: x\r\nAuthorization: token %s\r\nContent-Length: %d\r\n\r\n%s",
		stack, f.admin, 8<<20, strings.Repeat(" ", 4<<20)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{stack + "/updates", stack + "/updates?output-type=service"} {
		end := time.Now().Add(20 * time.Second)
		for { // until the upload holds its memory
			status, body, err := f.read(path, "identity")
			if err != nil || status == 200 && !bytes.HasSuffix(body, []byte("}\n")) {
				t.Fatalf("GET %s: status %d, and the body was cut after %d bytes: %v", path, status, len(body), err)
			}
			if status == 503 {
				break
			}
			if status != 200 || time.Now().After(end) {
				t.Fatalf("GET %s: status %d, body %.200s, want 503", path, status, body)
			}
		}
	}
}

// TestIncompleteAnswersAreAborted exports a state whose file is damaged and whose hash was not
// recorded. The server must abort the response, so that no client mistakes it for a complete one.
func TestIncompleteAnswersAreAborted(t *testing.T) {
	f := newFixture(t, options{})
	stack := f.stack("dev")
	f.do("POST", stack+"/import", state(2000)).want(200, nil)
	_, _, id := f.ids("dev")
	err := f.db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		st, err := tx.Stack(id)
		if err != nil {
			return err
		}
		if err := tx.DeleteState(st.StateBlob); err != nil { // as stored by earlier versions
			return err
		}
		blob, err := f.db.Blobs().Get(t.Context(), st.StateBlob)
		if err != nil {
			return err
		}
		defer blob.Close()
		packed, err := io.ReadAll(blob)
		if err != nil {
			return err
		}
		return f.db.Blobs().Put(t.Context(), st.StateBlob, bytes.NewReader(packed[:len(packed)*3/4]))
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, encoding := range []string{"identity", "gzip"} {
		status, body, err := f.read(stack+"/export", encoding)
		if status != 200 || len(body) == 0 {
			t.Fatalf("in %s: status %d, %d bytes: the response did not begin", encoding, status, len(body))
		}
		if err == nil {
			t.Errorf("in %s: an incomplete response of %d bytes ended like a complete one", encoding, len(body))
		}
	}
}
