package joblog_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/workflow"
)

// TestText reads a log as text: whole and by step, as a download, in ranges, compressed and with
// colours.
func TestText(t *testing.T) {
	s := consoletest.New(t)
	s.Stack("box", "dev")
	job := s.StartJob(s.Pool(), "box", "dev")
	job.PrintLines(0, "prepares")
	job.Step(1, workflow.StepRunning, nil)
	job.PrintLines(1, "first", "\x1b[31msecond\x1b[0m <b>")
	b := s.SignIn()
	log := job.Path + "/log"
	get := func(path string, header ...string) consoletest.Page {
		t.Helper()
		req := b.Request(http.MethodGet, path, nil)
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		return b.Do(req)
	}
	const step = "first\nsecond <b>\n"
	for _, c := range []struct {
		path   string
		header []string
		status int
		want   string
	}{
		{log + "/2/raw", nil, 200, step},
		{log + "/raw", nil, 200, "==> Setup\nprepares\n==> Pre-run command 1\n" + step},
		{log + "/2/raw?colours=on", nil, 200, "first\n\x1b[31msecond\x1b[0m <b>\n"},
		{log + "/2/raw", []string{"Range", "bytes=6-11"}, 206, "second"},
		{log + "/2/raw", []string{"Range", "bytes=-4"}, 206, "<b>\n"},
		{log + "/2/raw", []string{"Range", "bytes=99-"}, 416, ""},
		{log + "/2/raw?try=9", nil, 404, ""},
		{log + "/99/raw", nil, 404, ""},
	} {
		p := get(c.path, c.header...)
		if p.Status != c.status || c.want != "" && p.Body != c.want {
			t.Errorf("%s %q: status %d, %q; want %d, %q", c.path, c.header, p.Status, p.Body, c.status, c.want)
		}
		if p.Status == http.StatusOK && p.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("%s has the type %q", c.path, p.Header.Get("Content-Type"))
		}
	}
	packed := get(log+"/2/raw", "Accept-Encoding", "gzip")
	if z, err := gzip.NewReader(strings.NewReader(packed.Body)); err != nil {
		t.Error(err)
	} else if text, err := io.ReadAll(z); err != nil || string(text) != step {
		t.Errorf("the compressed text is %q, %v", text, err)
	}
	if name := get(log + "/raw?download=on").Header.Get("Content-Disposition"); name != "attachment; filename=acme-box-dev-1.log" {
		t.Errorf("the download is %s", name)
	}
}
