package service

import (
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestShareConfig(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Skip("the user nobody does not exist here")
	}
	made := filepath.Join(t.TempDir(), "new.yaml")
	kept := filepath.Join(t.TempDir(), "kept.yaml")
	must(t, os.WriteFile(kept, []byte("token: pul-1\n"), 0o644))
	for _, path := range []string{made, kept} {
		must(t, shareConfig(path, "nobody"))
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		stat := info.Sys().(*syscall.Stat_t)
		if info.Mode().Perm() != 0o640 || stat.Uid != 0 || nobody.Gid != strconv.Itoa(int(stat.Gid)) {
			t.Errorf("%s: %v %d:%d", path, info.Mode(), stat.Uid, stat.Gid)
		}
	}
	if data, err := os.ReadFile(kept); err != nil || string(data) != "token: pul-1\n" {
		t.Errorf("the file became %q, %v", data, err)
	}
	others := filepath.Join(t.TempDir(), "others.yaml")
	must(t, os.WriteFile(others, nil, 0o600))
	must(t, os.Chown(others, 12345, 12345))
	must(t, shareConfig(others, "nobody"))
	if info, err := os.Stat(others); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("another user's file became %v, %v", info.Mode(), err)
	}
}

func TestForeignAccountMustExist(t *testing.T) {
	commands := &scripted{}
	if err := ensureAccount(t.Context(), commands, "no-such-user-here"); err == nil || !strings.Contains(err.Error(), "no-such-user-here") {
		t.Errorf("got %v", err)
	}
	if err := ensureAccount(t.Context(), commands, "root"); err != nil {
		t.Error(err)
	}
	commands.want(t)
}
