// Package ancestors walks from a file up to the root directory, to check who can replace the file.
// A user who can change a directory can replace everything below it.
package ancestors

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Walk calls check for an absolute path and then for each of its parent directories. It stops when
// check returns an error.
func Walk(path string, check func(at string, mode fs.FileMode, owner *syscall.Stat_t) error) error {
	for at := path; ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if err != nil {
			return err
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return fmt.Errorf("reading the owner of %s: this system does not state it", at)
		}
		if err := check(at, info.Mode(), stat); err != nil || at == filepath.Dir(at) {
			return err
		}
	}
}
