package delivery

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// lockFile creates the file and locks it. The lock ends with the file descriptor, so
// also with the process, however that ends.
func lockFile(root *os.Root, name string) (*os.File, error) {
	f, err := openRegular(root, name, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, ErrInUse
		}
		return nil, fmt.Errorf("locking the log spool: %w", err)
	}
	return f, nil
}

// openRegular opens a file of the spool and refuses anything but a regular file:
// who can write to the directory could have put a pipe there to make us wait.
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
