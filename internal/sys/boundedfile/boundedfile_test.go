package boundedfile

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestRead(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	for name, text := range map[string]string{"full": "12345678", "long": "123456789"} {
		if err := os.WriteFile(path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(path("pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path("full"), path("link")); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ path, want, problem string }{
		{path("full"), "12345678", ""},
		{path("link"), "12345678", ""},
		{path("long"), "", "more than 8 bytes"},
		{path("pipe"), "", "not a regular file"},
		{"/dev/zero", "", "not a regular file"},
		{dir, "", "not a regular file"},
		{path("missing"), "", "no such file"},
	} {
		data, err := Read(tt.path, 8)
		if string(data) != tt.want || (err == nil) != (tt.problem == "") || err != nil && !strings.Contains(err.Error(), tt.problem) {
			t.Errorf("%s: got %q, %v; want %q, %q", tt.path, data, err, tt.want, tt.problem)
		}
	}
}
