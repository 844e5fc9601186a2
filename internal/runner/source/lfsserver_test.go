package source

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/workflow"
)

// TestLFSServerThatStopsSending checks that a server that stops in the middle of an answer does not
// hold a job.
func TestLFSServerThatStopsSending(t *testing.T) {
	t.Parallel()
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // otherwise the context does not end with the connection
		io.WriteString(w, `{"objects": [`)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(host.Close)
	repo, err := workflow.ParseRepository(host.URL + "/group/program")
	if err != nil {
		t.Fatal(err)
	}
	s := newLFSServer(repo, &login{}, io.Discard, true)
	defer s.close()
	s.stall = 100 * time.Millisecond
	file, err := os.Create(filepath.Join(t.TempDir(), "object"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	wanted := object{oid: strings.Repeat("a", 64), size: 100}
	for name, call := range map[string]func() error{
		"addresses": func() error {
			_, err := s.batch(t.Context(), []object{wanted})
			return err
		},
		"object": func() error {
			return s.download(t.Context(), wanted, lfsAction{Href: host.URL + "/object"}, file)
		},
	} {
		if err := call(); !errors.Is(err, errSilent) || !mayPass(err) {
			t.Errorf("%s: %v, want that the server stopped sending", name, err)
		}
	}
}
