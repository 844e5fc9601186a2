package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/google/renameio/v2"

	"workflowagent/internal/sys/durable"
)

// registration is a file of a service manager and its new content. If text is nil, the file must
// not exist.
type registration struct {
	path string
	text []byte
}

// replaceAll writes or removes all files, or changes nothing if it fails. undo restores their
// previous state.
func replaceAll(files []registration) (undo func() error, err error) {
	var undos []func() error
	undo = func() error {
		var errs []error
		for _, u := range undos {
			errs = append(errs, u())
		}
		return errors.Join(errs...)
	}
	for _, f := range files {
		back, err := replaceFile(f.path, f.text, 0o644)
		if err != nil {
			return nil, errors.Join(err, undo())
		}
		undos = append(undos, back)
	}
	return undo, nil
}

// replaceFile replaces the file with a single rename if its content differs from text. If text is
// nil, it removes the file. undo restores the previous state.
func replaceFile(path string, text []byte, mode fs.FileMode) (undo func() error, err error) {
	before, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	write := func(text []byte) error {
		if text == nil {
			return os.Remove(path)
		}
		return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), durable.WriteFile(path, text, mode))
	}
	if (before == nil) == (text == nil) && bytes.Equal(before, text) {
		return func() error { return nil }, nil
	}
	return func() error { return write(before) }, write(text)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// SetEnvironment sets variables in a service's environment file. It removes a variable whose
// value is empty. The other lines and the file's owner do not change. Only the service's account
// can read the file, because proxy variables can contain passwords.
func SetEnvironment(path string, variables map[string]string) error {
	before, owner, err := readOwned(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading the service's environment: %w", err)
	}
	text, err := editEnvironment(string(before), variables)
	if err != nil {
		return fmt.Errorf("changing %s: %w", path, err)
	}
	if before == nil {
		_, err = replaceFile(path, []byte(text), 0o600)
	} else {
		err = rewriteFile(path, []byte(text), owner)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// readOwned reads a file's content and owner through one descriptor, so that both belong to the
// same file.
func readOwned(path string) (text []byte, owner *syscall.Stat_t, err error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, nil, err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("%s is not a regular file", path)
	}
	text, err = io.ReadAll(file)
	return text, owner, err
}

// changeFile opens a regular file and calls change, which changes the file's owner or mode. It does
// not follow a link, and change uses the descriptor, so that neither affects a file that is swapped
// in. It rejects a file with several hard links, because another link could be the name of another
// user's file.
func changeFile(path string, change func(file *os.File, mode fs.FileMode, owner *syscall.Stat_t) error) error {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) {
		return nil // the link is an administrator's own configuration
	}
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() {
		return nil
	}
	if owner.Nlink != 1 {
		return fmt.Errorf("%s has %d hard links: replace it with a copy that has no other links", path, owner.Nlink)
	}
	return change(file, info.Mode().Perm(), owner)
}

func rewriteFile(path string, text []byte, owner *syscall.Stat_t) (err error) {
	file, err := renameio.NewPendingFile(path, renameio.WithTempDir(filepath.Dir(path)), renameio.WithStaticPermissions(0o600))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Cleanup()) }()
	if int(owner.Uid) != os.Geteuid() {
		if err := file.Chown(int(owner.Uid), int(owner.Gid)); err != nil {
			return err
		}
	}
	if _, err := file.Write(text); err != nil {
		return err
	}
	if err := file.CloseAtomicallyReplace(); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(path))
}

// runner runs the service manager's programs. Tests replace it to check the command lines.
type runner interface {
	// run returns the program's output without the last line break. If the program fails, the error
	// is an *exitError.
	run(ctx context.Context, name string, args ...string) (string, error)
	// stream copies the program's output to out, and its standard error to the standard error of
	// this process, until the program exits or ctx is canceled.
	stream(ctx context.Context, out io.Writer, name string, args ...string) error
}

type exitError struct {
	command string
	code    int
	said    string
}

func (e *exitError) Error() string {
	if e.said == "" {
		return fmt.Sprintf("%s ended with exit code %d", e.command, e.code)
	}
	return fmt.Sprintf("%s: %s", e.command, e.said)
}

// exitCode returns the exit code in err, or -1 if err contains none.
func exitCode(err error) int {
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.code
	}
	return -1
}

type execRunner struct{}

func (execRunner) run(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.Env = append(os.Environ(), "TZ=UTC") // for the times in systemctl's output
	err := cmd.Run()
	out := strings.TrimRight(stdout.String(), "\n")
	if ctx.Err() != nil {
		return out, fmt.Errorf("%s did not end in time: %w", commandLine(name, args), ctx.Err())
	}
	return out, failure(err, name, args, strings.TrimSpace(stderr.String()))
}

func (execRunner) stream(ctx context.Context, out io.Writer, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	err := cmd.Run()
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the caller ends ctx to stop following
	}
	return failure(err, name, args, "")
}

func failure(err error, name string, args []string, said string) error {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return &exitError{command: commandLine(name, args), code: exit.ExitCode(), said: said}
	}
	if err != nil {
		return fmt.Errorf("running %s: %w", commandLine(name, args), err)
	}
	return nil
}

func commandLine(name string, args []string) string {
	return strings.Join(append([]string{name}, args...), " ")
}
