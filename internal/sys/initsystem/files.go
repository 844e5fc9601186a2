package initsystem

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"workflowagent/internal/sys/durable"
)

// File is a file of a service manager and its new content. If Text is nil, the file must
// not exist.
type File struct {
	Path string
	Text []byte
}

// ReplaceAll writes or removes all files, or changes nothing if it fails. undo restores their
// previous state.
func ReplaceAll(files ...File) (undo func() error, err error) {
	var undos []func() error
	undo = func() error {
		var errs []error
		for _, u := range undos {
			errs = append(errs, u())
		}
		return errors.Join(errs...)
	}
	for _, f := range files {
		back, err := ReplaceFile(f.Path, f.Text, 0o644)
		if err != nil {
			return nil, errors.Join(err, undo())
		}
		undos = append(undos, back)
	}
	return undo, nil
}

// ReplaceFile replaces the file with a single rename if its content differs from text. If text is
// nil, it removes the file. undo restores the previous state.
func ReplaceFile(path string, text []byte, mode fs.FileMode) (undo func() error, err error) {
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

// MakeFile creates a file that only its owner can read, unless it exists.
func MakeFile(path, text string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	if err = errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// ChangeFile opens a regular file and calls change, which changes the file's owner or mode. It does
// not follow a link, and change uses the descriptor, so that neither affects a file that is swapped
// in. It rejects a file with several hard links, because another link could be the name of another
// user's file.
func ChangeFile(path string, change func(file *os.File, mode fs.FileMode, owner *syscall.Stat_t) error) error {
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

// ShareFile makes a file of root readable for the group of an account, besides root. It does not change a
// file of another user, which is an administrator's own.
func ShareFile(path, account string) error {
	owner, err := user.Lookup(account)
	if err != nil {
		return err
	}
	gid, err := strconv.Atoi(owner.Gid)
	if err != nil {
		return fmt.Errorf("the group of %s is not a number: %w", account, err)
	}
	return ChangeFile(path, func(file *os.File, mode fs.FileMode, stat *syscall.Stat_t) error {
		if stat.Uid != 0 {
			return nil
		}
		if err := file.Chown(0, gid); err != nil {
			return fmt.Errorf("giving %s to the group of %s: %w", path, account, err)
		}
		return file.Chmod(mode&0o600 | 0o040)
	})
}
