package setup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// ErrStopped reports that the operator has ended the questions.
var ErrStopped = errors.New("stopped; nothing was written")

// Terminal prompts the operator.
type Terminal struct {
	in  *os.File
	out io.Writer
}

// TerminalOf returns the terminal of a program's input, or nil if the input is not a terminal.
func TerminalOf(in io.Reader, out io.Writer) *Terminal {
	file, isFile := in.(*os.File)
	if !isFile || !term.IsTerminal(int(file.Fd())) {
		return nil
	}
	return &Terminal{in: file, out: out}
}

// Coloured reports whether text for the terminal may have colours. A nil terminal has none.
func (t *Terminal) Coloured() bool { return t != nil && os.Getenv("NO_COLOR") == "" }

// Confirm asks a question and reports whether the response is yes.
func (t *Terminal) Confirm(ctx context.Context, question string) (bool, error) {
	answer, err := t.Line(ctx, question+" [y/N]: ")
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes", err
}

// Secret prints a prompt and returns the response without echoing it.
func (t *Terminal) Secret(ctx context.Context, prompt string) (string, error) {
	fd := int(t.in.Fd())
	modes, err := unix.IoctlGetTermios(fd, getModes)
	if err != nil {
		return "", fmt.Errorf("reading the terminal's modes: %w", err)
	}
	hidden := *modes
	hidden.Lflag &^= unix.ECHO
	// Disable the echo before the prompt appears, because the response can follow immediately.
	if err := unix.IoctlSetTermios(fd, setModes, &hidden); err != nil {
		return "", fmt.Errorf("hiding the answer: %w", err)
	}
	answer, err := t.Line(ctx, prompt)
	fmt.Fprintln(t.out) // the newline that the operator typed was not echoed
	return answer, errors.Join(err, unix.IoctlSetTermios(fd, setModes, modes))
}

// Line prints a prompt and returns the response. A read from a terminal cannot be canceled: when
// ctx is canceled, Line returns, but its goroutine continues to read until the process exits.
func (t *Terminal) Line(ctx context.Context, prompt string) (string, error) {
	fmt.Fprint(t.out, prompt)
	type answer struct {
		text string
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		text, err := t.readLine()
		answered <- answer{text, err}
	}()
	select {
	case a := <-answered:
		if errors.Is(a.err, io.EOF) {
			return "", ErrStopped
		}
		return a.text, a.err
	case <-ctx.Done():
		return "", ErrStopped
	}
}

// readLine reads byte by byte, because any text after the newline is the response to the next
// prompt.
func (t *Terminal) readLine() (string, error) {
	var line []byte
	for one := make([]byte, 1); len(line) < maxSecret; {
		n, err := t.in.Read(one)
		switch {
		case n > 0 && one[0] == '\n':
			return string(line), nil
		case n > 0:
			line = append(line, one[0])
		case err != nil:
			return "", err
		}
	}
	return "", errors.New("the answer is too long")
}
