package pooltoken

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"unicode"
)

const maxFile = 64 << 10

var errNoFile = errors.New("does not exist: check the path, and the program that writes the file; the agent waits for it")

// fileError is a problem with the token file. It never contains the file's content.
type fileError struct {
	path string
	err  error
}

// Error returns one sentence that contains the configuration key and the path.
func (e *fileError) Error() string { return fmt.Sprintf("oidc_token_file: %s %v", e.path, e.err) }

// Unwrap returns the cause.
func (e *fileError) Unwrap() error { return e.err }

// readFile returns the file's content, a token. It rejects a file that users other than its owner
// can write to, because the content determines the agent's identity.
func readFile(path string) (string, error) {
	token, err := readToken(path)
	if err != nil {
		return "", &fileError{path: path, err: err}
	}
	return token, nil
}

func readToken(path string) (string, error) {
	// O_NONBLOCK prevents a named pipe from blocking the agent. The checks apply to the open file.
	// Symbolic links are followed, because Kubernetes replaces tokens by changing links.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return "", errNoFile
	}
	if err != nil {
		return "", fmt.Errorf("cannot be read: %w: make it readable by the agent's user", plain(err))
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return "", fmt.Errorf("cannot be read: %w", plain(err))
	case !info.Mode().IsRegular():
		return "", errors.New("is not a regular file: name the file that contains the token")
	case info.Mode().Perm()&0o022 != 0:
		return "", fmt.Errorf("can be written by other users (mode %04o), who could give this agent another identity: run chmod go-w on it", info.Mode().Perm())
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return "", fmt.Errorf("cannot be read: %w", plain(err))
	}
	token := strings.TrimSpace(string(data))
	switch {
	case len(data) > maxFile:
		return "", errors.New("is larger than 64 KiB, too large for a token: check that it is the right file")
	case token == "":
		return "", errors.New("is empty: the agent waits for a token in it")
	case strings.ContainsAny(token, "\r\n"):
		return "", errors.New("has more than one line: it must contain only the token")
	case strings.ContainsFunc(token, func(r rune) bool { return r > unicode.MaxASCII || !unicode.IsGraphic(r) || r == ' ' }):
		return "", errors.New("contains white space or characters that no token contains: it must contain only the token")
	}
	return token, nil
}

// plain returns the cause of a file system error without the path, which the caller adds.
func plain(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
