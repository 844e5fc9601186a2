package configure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// terminal prompts the operator.
type terminal struct {
	in  *os.File
	out io.Writer
}

func (t *terminal) coloured() bool { return t != nil && os.Getenv("NO_COLOR") == "" }

// secret prints a prompt and returns the response without echoing it.
func (t *terminal) secret(ctx context.Context, prompt string) (string, error) {
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
	answer, err := t.line(ctx, prompt)
	fmt.Fprintln(t.out) // the newline that the operator typed was not echoed
	return answer, errors.Join(err, unix.IoctlSetTermios(fd, setModes, modes))
}

// line prints a prompt and returns the response. A read from a terminal cannot be canceled: when
// ctx is canceled, line returns, but its goroutine continues to read until the process exits.
func (t *terminal) line(ctx context.Context, prompt string) (string, error) {
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
			return "", errStopped
		}
		return a.text, a.err
	case <-ctx.Done():
		return "", errStopped
	}
}

// readLine reads byte by byte, because any text after the newline is the response to the next
// prompt.
func (t *terminal) readLine() (string, error) {
	var line []byte
	for one := make([]byte, 1); len(line) < maxToken; {
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

// terminal returns the terminal for prompts, or nil if the input is not a terminal. It also reports
// whether to prompt for the settings, which requires a terminal and no flag that sets a setting.
func (o Options) terminal() (*terminal, bool) {
	in, isFile := o.In.(*os.File)
	if !isFile || !term.IsTerminal(int(in.Fd())) {
		return nil, false
	}
	t := &terminal{in: in, out: o.Out}
	return t, o.ServiceURL == "" && o.TokenFile == "" && o.DeployTarget == "" && len(o.Set) == 0
}
