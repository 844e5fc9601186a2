package pooltoken

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestReadFile(t *testing.T) {
	const secret = "secret.token.here"
	for _, tt := range []struct {
		name, content string
		mode          os.FileMode
		want          string // expected part of the error; "" for no error
	}{
		{"plain", secret, 0o600, ""},
		{"with a newline", secret + "\n", 0o440, ""},
		{"with carriage return", secret + "\r\n", 0o644, ""},
		{"empty", "", 0o600, "is empty"},
		{"only white space", " \n\n", 0o600, "is empty"},
		{"two lines", secret + "\n" + secret + "\n", 0o600, "more than one line"},
		{"two words", "Bearer " + secret, 0o600, "white space"},
		{"control character", secret + "\x1b[2J", 0o600, "white space or characters"},
		{"not ASCII", secret + "…", 0o600, "white space or characters"},
		{"too large", strings.Repeat("x", maxFile+1), 0o600, "64 KiB"},
		{"written by the group", secret, 0o660, "chmod go-w"},
		{"written by all", secret, 0o602, "chmod go-w"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "token")
			if err := os.WriteFile(path, []byte(tt.content), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, tt.mode); err != nil { // regardless of the umask
				t.Fatal(err)
			}
			checkRead(t, path, secret, tt.want)
		})
	}
	t.Run("directory", func(t *testing.T) { checkRead(t, t.TempDir(), secret, "not a regular file") })
	t.Run("named pipe", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "token")
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		checkRead(t, path, secret, "not a regular file")
	})
	t.Run("absent", func(t *testing.T) { checkRead(t, filepath.Join(t.TempDir(), "token"), secret, "does not exist") })
	t.Run("link", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "data"), []byte(secret), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("data", filepath.Join(dir, "token")); err != nil {
			t.Fatal(err)
		}
		checkRead(t, filepath.Join(dir, "token"), secret, "")
	})
}

func checkRead(t *testing.T, path, secret, want string) {
	t.Helper()
	got, err := readFile(path)
	switch {
	case want == "" && (err != nil || got != secret):
		t.Errorf("read %q, %v", got, err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path)):
		t.Errorf("read %q, %v; want an error with %q and the path", got, err, want)
	case err != nil && strings.Contains(err.Error(), secret):
		t.Errorf("the error contains the file's content: %v", err)
	}
}
