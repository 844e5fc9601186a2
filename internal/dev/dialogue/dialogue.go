// Package dialogue lets tests answer the questions that a program asks on a terminal.
package dialogue

import (
	"context"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
)

// patience is how long a conversation takes at most.
const patience = 5 * time.Minute

// Dialogue is a conversation of a test with its own program on a terminal.
type Dialogue struct {
	t    *testing.T
	cmd  *exec.Cmd
	pty  *os.File
	seen strings.Builder
	at   int // end of the expected output so far
	end  time.Time
}

// Start runs the test binary again on a terminal, with additional environment variables by which its TestMain
// knows what to run.
func Start(t *testing.T, environ ...string) *Dialogue {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	// The shell leads the session and waits until its output has been read, because the end of a
	// session discards unread output.
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", `trap : INT; "$0"; code=$?; stty -a; echo "ended with $code."; read -r _`, self)
	cmd.Env = append(append(os.Environ(), environ...), "NO_COLOR=1")
	f, err := pty.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return &Dialogue{t: t, cmd: cmd, pty: f, end: time.Now().Add(patience)}
}

// Expect waits until the terminal shows a text after the one that was expected before.
func (d *Dialogue) Expect(text string) {
	d.t.Helper()
	for {
		if _, found, ok := strings.Cut(d.seen.String()[d.at:], text); ok {
			d.at = d.seen.Len() - len(found)
			return
		}
		if !d.read() {
			d.t.Fatalf("the terminal does not show %q, but: %s", text, d.seen.String())
		}
	}
}

func (d *Dialogue) read() bool {
	if err := d.pty.SetReadDeadline(d.end); err != nil {
		d.t.Fatal(err)
	}
	buf := make([]byte, 4096)
	n, err := d.pty.Read(buf)
	d.seen.Write(buf[:n])
	return err == nil
}

// Say types a text.
func (d *Dialogue) Say(text string) {
	d.t.Helper()
	if _, err := io.WriteString(d.pty, text); err != nil {
		d.t.Fatal(err)
	}
}

// Ended waits until the program has exited. It returns the exit code, and the terminal's output and
// final modes.
func (d *Dialogue) Ended() (int, string) {
	d.t.Helper()
	d.Expect("ended with ")
	from := d.at
	d.Expect(".")
	code, err := strconv.Atoi(d.seen.String()[from : d.at-1])
	if err != nil {
		d.t.Fatal(err)
	}
	d.Say("\n")
	for d.read() {
	}
	_ = d.cmd.Wait() // the shell's exit code can be ignored
	return code, d.seen.String()
}
