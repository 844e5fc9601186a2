package diskspace

import (
	"errors"
	"io/fs"
	"path/filepath"
	"testing"
)

func TestOf(t *testing.T) {
	dir := t.TempDir()
	if size, free, err := Of(dir); err != nil || size <= 0 || free < 0 || free > size {
		t.Errorf("%d of %d bytes are free: %v", free, size, err)
	}
	if _, _, err := Of(filepath.Join(dir, "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing directory has the error %v", err)
	}
}
