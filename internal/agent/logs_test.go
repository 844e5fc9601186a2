package agent

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/logspool"
	"workflowagent/internal/protocol"
)

// TestLinesSender cuts one stream into requests at every place and expects the
// same lines each time.
func TestLinesSender(t *testing.T) {
	var stream []byte
	now := time.Now()
	stream = protocol.AppendFrame(stream, now, false, []byte("first"))
	stream = protocol.AppendFrame(stream, now, true, []byte("a line "))
	stream = protocol.AppendFrame(stream, now, true, []byte("in three "))
	stream = protocol.AppendFrame(stream, now, false, []byte("parts"))
	stream = protocol.AppendFrame(stream, now, false, nil)
	want := []string{"first", "a line in three parts", ""}

	for cut := range len(stream) + 1 {
		var got []string
		server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			var batch protocol.LogLines
			if err := json.NewDecoder(r.Body).Decode(&batch); err != nil {
				t.Error(err)
			}
			if int(batch.Offset) != len(got) {
				t.Errorf("cut at %d: lines from %d, want %d", cut, batch.Offset, len(got))
			}
			for _, line := range batch.Lines {
				got = append(got, line.Line)
			}
		}))
		client, err := protocol.NewClient(protocol.Options{BaseURL: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		s := &linesSender{client: client.Job("j", "t"), lines: map[int]mark{}}
		offset := int64(0)
		for end := cut; ; end = len(stream) {
			ack, err := s.PutLog(t.Context(), 1, offset, stream[offset:end], false)
			if err != nil {
				t.Fatal(err)
			}
			offset = ack.Received
			if end == len(stream) {
				break
			}
		}
		client.Close()
		server.Close()
		// A cut within the line of three parts may show it in two, never lose any of it.
		text, wanted := "", ""
		for _, line := range got {
			text += line
		}
		for _, line := range want {
			wanted += line
		}
		if text != wanted || offset != int64(len(stream)) {
			t.Errorf("cut at %d: got %q up to %d of %d", cut, got, offset, len(stream))
		}
		if cut == 0 || cut == len(stream) {
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		}
	}
}

func TestLinesSenderRefusesBytesItHas(t *testing.T) {
	s := &linesSender{lines: map[int]mark{1: {bytes: 100, lines: 3}}}
	_, err := s.PutLog(t.Context(), 1, 50, []byte("x"), false)
	if gap, ok := errors.AsType[*logspool.GapError](err); !ok || gap.Want != 100 {
		t.Errorf("got %v", err)
	}
}
