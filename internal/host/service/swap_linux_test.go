package service

import (
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOwnershipThroughSwappedLinks changes the owner and mode of a file in a directory of another
// user, who constantly replaces the file with a link to a file of root's.
func TestOwnershipThroughSwappedLinks(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	for name, change := range map[string]func(path string) error{
		"group": func(path string) error { return shareConfig(path, "nobody") },
		"owner": func(path string) error { return giveFile(path, "nobody", true) },
		"content": func(path string) error {
			return SetEnvironment(path, map[string]string{"A": "b"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			victim, config, link := filepath.Join(t.TempDir(), "shadow"), filepath.Join(dir, "config"), filepath.Join(dir, "link")
			const secret = "SECRET=of-root\n"
			must(t, os.WriteFile(victim, []byte(secret), 0o604))
			must(t, os.Symlink(victim, link))
			owner := 0
			if name == "content" {
				owner = 12345
			}
			for range 60 {
				renew(t, config, owner)
				stop := swapping(config, link)
				for range 5 {
					_ = change(config) // errors are expected, because the file is swapped constantly
				}
				stop()
				info, err := os.Stat(victim)
				if err != nil {
					t.Fatal(err)
				}
				if stat := info.Sys().(*syscall.Stat_t); info.Mode().Perm() != 0o604 || stat.Uid != 0 || stat.Gid != 0 {
					t.Fatalf("the file behind the link became %v %d:%d", info.Mode(), stat.Uid, stat.Gid)
				}
				unlessRoots(t, dir, secret)
				must(t, os.RemoveAll(link))
				must(t, os.Symlink(victim, link))
			}
		})
	}
}

// unlessRoots fails the test if a file that belongs to a user other than root contains the secret.
func unlessRoots(t *testing.T, dir, secret string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || !info.Mode().IsRegular() || info.Sys().(*syscall.Stat_t).Uid == 0 {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil || len(data) >= len(secret) && string(data[:len(secret)]) == secret {
			t.Fatalf("the secret of root is in a file of user %d: %q, %v", info.Sys().(*syscall.Stat_t).Uid, data, err)
		}
	}
}

func renew(t *testing.T, path string, owner int) {
	t.Helper()
	must(t, os.RemoveAll(path))
	must(t, os.WriteFile(path, nil, 0o600))
	must(t, os.Chown(path, owner, 0))
}

// swapping exchanges two names repeatedly until stop is called.
func swapping(a, b string) (stop func()) {
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				_ = exchange(a, b)
			}
		}
	})
	return func() {
		close(done)
		running.Wait()
	}
}

// TestHardLinksKeepTheirOwner replaces the configuration with a hard link to a file of root's. The
// owner of that file must not change.
func TestHardLinksKeepTheirOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	dir := t.TempDir()
	victim, config := filepath.Join(dir, "shadow"), filepath.Join(dir, "config")
	must(t, os.WriteFile(victim, nil, 0o600))
	must(t, os.Link(victim, config))
	for name, err := range map[string]error{"shareConfig": shareConfig(config, "nobody"), "giveFile": giveFile(config, "nobody", true)} {
		if err == nil {
			t.Errorf("%s took a file with two names", name)
		}
	}
	if info, err := os.Stat(victim); err != nil || info.Mode().Perm() != 0o600 || info.Sys().(*syscall.Stat_t).Uid != 0 {
		t.Errorf("the file became %v, %v", info.Mode(), err)
	}
}

func exchange(a, b string) error {
	return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
}
