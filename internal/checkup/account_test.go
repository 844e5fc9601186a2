package checkup

import (
	"os"
	"path/filepath"
	"testing"

	"workflowagent/internal/dev/must"
)

func TestPermissionsOfAnotherUser(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	must.OK(t, os.WriteFile(path, nil, 0o640))
	info := must.Get(os.Stat(path))(t)
	other := Account{UID: 12345, GID: 12345}
	if other.may(info, 0o4) || !(Account{UID: 12345, GID: os.Getegid()}).may(info, 0o4) || !(Account{UID: 12345, Groups: []int{os.Getegid()}}).may(info, 0o4) {
		t.Error("the permissions of a group are not respected")
	}
	must.OK(t, os.Chmod(path, 0o604))
	info = must.Get(os.Stat(path))(t)
	if !other.may(info, 0o4) || (Account{UID: 12345, GID: os.Getegid()}).may(info, 0o4) {
		t.Error("the permissions of others are not respected")
	}
}

// TestPermissionsInWords checks that the text names the owner and the group, which an operator can have changed.
func TestPermissionsInWords(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	path := filepath.Join(t.TempDir(), "file")
	must.OK(t, os.WriteFile(path, nil, 0o600))
	must.OK(t, os.Chown(path, 0, 12345))
	if got, want := permissions(must.Get(os.Stat(path))(t)), "has mode 0600, and belongs to user root and group 12345"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
