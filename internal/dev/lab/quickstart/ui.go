package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

// ui prints the quickstart's progress: headings, one line per step, and the marked output of
// programs.
type ui struct {
	mu     sync.Mutex
	out    io.Writer
	colour bool
	begin  time.Time
}

// newUI returns a ui that prints in colour on a terminal, unless the user disables colours.
func newUI(out *os.File) *ui {
	_, plain := os.LookupEnv("NO_COLOR")
	return &ui{out: out, colour: !plain && term.IsTerminal(int(out.Fd())), begin: time.Now()}
}

const (
	bold  = "\x1b[1;36m"
	red   = "\x1b[1;31m"
	faint = "\x1b[2m"
	reset = "\x1b[0m"
)

func (u *ui) paint(colour, text string) string {
	if !u.colour {
		return text
	}
	return colour + text + reset
}

func (u *ui) heading(text string) { u.print("\n" + u.paint(bold, text) + "\n") }

func (u *ui) say(format string, args ...any) {
	elapsed := fmt.Sprintf("%6.1fs", time.Since(u.begin).Seconds())
	u.print(u.paint(faint, elapsed) + "  " + fmt.Sprintf(format, args...) + "\n")
}

func (u *ui) note(format string, args ...any) {
	u.print("         " + fmt.Sprintf(format, args...) + "\n")
}

func (u *ui) fail(text string) { u.print("\n" + u.paint(red, text) + "\n") }

func (u *ui) print(text string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, _ = io.WriteString(u.out, text)
}

func (u *ui) steps() io.Writer { return &lineWriter{ui: u, step: true} }

// lines returns a writer that marks each line as the output of a program. It holds back an
// incomplete line until the rest arrives, or until flush.
func (u *ui) lines() *lineWriter { return &lineWriter{ui: u} }

type lineWriter struct {
	ui      *ui
	step    bool
	mu      sync.Mutex
	partial []byte
}

// Write implements [io.Writer].
func (w *lineWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.partial = append(w.partial, p...)
	for {
		i := bytes.IndexByte(w.partial, '\n')
		if i < 0 {
			return len(p), nil
		}
		if line := string(w.partial[:i]); w.step {
			w.ui.say("%s", line)
		} else {
			w.ui.print("         " + w.ui.paint(faint, "│") + " " + line + "\n")
		}
		w.partial = w.partial[i+1:]
	}
}

func (w *lineWriter) flush() {
	w.mu.Lock()
	unfinished := len(w.partial) > 0
	w.mu.Unlock()
	if unfinished {
		_, _ = w.Write([]byte("\n"))
	}
}
