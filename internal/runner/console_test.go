package runner

import (
	"bytes"
	"io"
	"testing"
)

func TestOwnLogBeginsItsOwnLine(t *testing.T) {
	var merged bytes.Buffer
	out := &console{out: &merged}
	log := consoleLog{out, &merged}
	for _, w := range []struct {
		log  bool
		text string
	}{
		{true, "started\n"},
		{false, "@ Updating..."},
		{true, "cancelled\n"},
		{true, "ended\n"},
		{false, "..."},
		{false, "\n"},
		{true, "finished\n"},
	} {
		var err error
		if w.log {
			_, err = log.Write([]byte(w.text))
		} else {
			_, err = out.Write([]byte(w.text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if want := "started\n@ Updating...\ncancelled\nended\n...\nfinished\n"; merged.String() != want {
		t.Errorf("the output is %q, want %q", merged.String(), want)
	}
}

// TestOwnLogDoesNotWaitForTheConsole writes a log entry while nothing reads the console.
func TestOwnLogDoesNotWaitForTheConsole(t *testing.T) {
	unread, console := blockedConsole(t)
	var own bytes.Buffer
	written := make(chan error, 1)
	go func() {
		_, err := consoleLog{console, &own}.Write([]byte("entry\n"))
		written <- err
	}()
	if err := <-written; err != nil || own.String() != "\nentry\n" {
		t.Errorf("got %q, %v", own.String(), err)
	}
	if err := unread.Close(); err != nil {
		t.Fatal(err)
	}
}

// blockedConsole returns a console with a write that waits until unread is closed.
func blockedConsole(t *testing.T) (unread *io.PipeReader, c *console) {
	t.Helper()
	unread, to := io.Pipe()
	c = &console{out: signalWriter{make(chan struct{}), to}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = c.Write([]byte("unfinished")) // fails when unread is closed
	}()
	<-c.out.(signalWriter).begun
	t.Cleanup(func() { <-done })
	return unread, c
}

// signalWriter closes begun when a write begins.
type signalWriter struct {
	begun chan struct{}
	to    io.Writer
}

func (w signalWriter) Write(p []byte) (int, error) {
	close(w.begun)
	return w.to.Write(p)
}
