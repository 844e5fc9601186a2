package delivery

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"workflowagent/internal/filelock"
)

func lockFile(root *os.Root, name string) (*filelock.Lock, error) {
	f, err := openRegular(root, name, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	lock, err := filelock.Try(f)
	if _, held := errors.AsType[*filelock.HeldError](err); held {
		return nil, fmt.Errorf("%w: %w", ErrInUse, err)
	}
	return lock, err
}

// openRegular opens a file of the spool and refuses anything but a regular file: the job could
// have put a pipe there to block the agent.
func openRegular(root *os.Root, name string, flag int) (*os.File, error) {
	f, err := root.OpenFile(name, flag|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is not a regular file")
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("opening %s: %w", name, err)
	}
	return f, nil
}
