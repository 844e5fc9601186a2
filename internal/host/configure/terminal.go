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

// terminal asks the operator.
type terminal struct {
	in  *os.File
	out io.Writer
}

func (t *terminal) coloured() bool { return t != nil && os.Getenv("NO_COLOR") == "" }

// secret asks a question without showing the answer.
func (t *terminal) secret(ctx context.Context, prompt string) (string, error) {
	fd := int(t.in.Fd())
	modes, err := unix.IoctlGetTermios(fd, getModes)
	if err != nil {
		return "", fmt.Errorf("reading the terminal's modes: %w", err)
	}
	hidden := *modes
	hidden.Lflag &^= unix.ECHO
	// Hide input before the prompt appears, because the answer may follow at once.
	if err := unix.IoctlSetTermios(fd, setModes, &hidden); err != nil {
		return "", fmt.Errorf("hiding the answer: %w", err)
	}
	answer, err := t.line(ctx, prompt)
	fmt.Fprintln(t.out) // the typed newline was hidden
	return answer, errors.Join(err, unix.IoctlSetTermios(fd, setModes, modes))
}

// line asks a question and returns the answer. Only input ends a read of a terminal: when ctx ends,
// the goroutine keeps reading until the process exits.
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

// readLine reads byte by byte, because text typed ahead belongs to the next question.
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

// terminal returns the terminal for questions. Flags with settings disable questions.
func (o Options) terminal() (*terminal, bool) {
	in, isFile := o.In.(*os.File)
	if !isFile || !term.IsTerminal(int(in.Fd())) {
		return nil, false
	}
	t := &terminal{in: in, out: o.Out}
	return t, o.ServiceURL == "" && o.TokenFile == "" && o.DeployTarget == "" && len(o.Set) == 0
}
