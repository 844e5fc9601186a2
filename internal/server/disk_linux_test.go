package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"workflowagent/internal/dev/storetest"
)

// TestNotReadyOnAFullDisk fills the database's disk before the first request. The server must
// report that it is not ready.
func TestNotReadyOnAFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64m,mode=700"); err != nil {
		t.Skipf("mounting a small file system: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	s, err := New(t.Context(), testConfig(t, dir), "v1", storetest.Log(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	stop := run(t, s)
	if err := os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 48<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second result is cached
		if code := get(t, s.URL()+"/readyz", ""); code != 503 {
			t.Errorf("/readyz on a full disk: status %d", code)
		}
	}
	checkFullDisk(t, s.URL(), dir)
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// checkFullDisk fills the disk: writes of rows and blobs must fail with 503 and the reason, and
// succeed once space is free again.
func checkFullDisk(t *testing.T, url, dir string) {
	t.Helper()
	token, err := os.ReadFile(filepath.Join(dir, "admin-token"))
	if err != nil {
		t.Fatal(err)
	}
	post := func(path string, body any) (int, string) {
		t.Helper()
		text, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+path, bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "token "+strings.TrimSpace(string(token)))
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		answer, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(answer)
	}
	if code, answer := post("/api/stacks/acme/proj", map[string]string{"stackName": "before"}); code != 200 {
		t.Fatalf("creating a stack: %d %s", code, answer)
	}
	random := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(random)
	state := map[string]any{"version": 3, "deployment": map[string]any{"x": random}} // incompressible
	rest, err := os.Create(filepath.Join(dir, "rest"))
	if err != nil {
		t.Fatal(err)
	}
	defer rest.Close()
	for piece := random; len(piece) > 0; {
		if _, err := rest.Write(piece); err != nil {
			piece = piece[:len(piece)/2]
		}
	}
	full := func(what string, code int, answer string) {
		t.Helper()
		if code != 503 || !strings.Contains(answer, "disk is full") {
			t.Errorf("%s on a full disk: %d %s", what, code, answer)
		}
	}
	code, answer := post("/api/stacks/acme/proj/before/import", state)
	full("writing a blob", code, answer)
	for i := range 1000 { // the database and its log have some reserved space
		code, answer = post("/api/stacks/acme/proj", map[string]string{"stackName": fmt.Sprint("s", i)})
		if code != 200 {
			break
		}
	}
	full("writing to the database", code, answer)
	for _, name := range []string{"rest", "filler"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if code, answer := post("/api/stacks/acme/proj", map[string]string{"stackName": "after"}); code != 200 {
		t.Errorf("creating a stack after space was freed: %d %s", code, answer)
	}
	if code, answer := post("/api/stacks/acme/proj/before/import", state); code != 200 {
		t.Errorf("writing a blob after space was freed: %d %s", code, answer)
	}
}
