package checkup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Account is a user as whom a service runs.
type Account struct {
	UID, GID int
	Name     string // "" if the UID has none
	Groups   []int
}

// AccountOf returns the account with an id, whose groups are not known if it has no name.
func AccountOf(uid int) Account {
	u, err := user.LookupId(strconv.Itoa(uid))
	if err != nil {
		return Account{UID: uid, GID: uid}
	}
	return newAccount(u)
}

// AccountNamed returns the account with a name.
func AccountNamed(name string) (Account, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return Account{}, err
	}
	return newAccount(u), nil
}

func newAccount(u *user.User) Account {
	a := Account{Name: u.Username}
	a.UID, _ = strconv.Atoi(u.Uid) // both are numbers on unix
	a.GID, _ = strconv.Atoi(u.Gid)
	ids, _ := u.GroupIds() // without the list, the primary group remains
	for _, id := range ids {
		if gid, err := strconv.Atoi(id); err == nil {
			a.Groups = append(a.Groups, gid)
		}
	}
	return a
}

// String returns the user in words.
func (a Account) String() string {
	if a.Name == "" {
		return "user " + strconv.Itoa(a.UID)
	}
	return "user " + a.Name
}

// IsSelf reports whether this process runs as the account.
func (a Account) IsSelf() bool { return a.UID == os.Geteuid() }

// Read returns an error if the account cannot read a file. It tries to open the file only if the account
// is the current user. Otherwise, it looks at the permissions.
func (a Account) Read(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a named pipe must not block the doctor
	if err == nil {
		err = f.Close()
	}
	if err != nil && (a.IsSelf() || !errors.Is(err, fs.ErrPermission)) {
		return fmt.Errorf("%s: %w", path, Reason(err))
	}
	if a.IsSelf() || a.UID == 0 {
		return nil
	}
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return fmt.Errorf("%s: %w", dir, Reason(err))
		}
		if !a.may(info, 0o1) {
			return fmt.Errorf("%s: the directory %s %s", path, dir, permissions(info))
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("%s: %w", path, Reason(err))
	}
	if !a.may(info, 0o4) {
		return fmt.Errorf("%s %s", path, permissions(info))
	}
	return nil
}

// permissions describes whom the permissions of a file let do what.
func permissions(info fs.FileInfo) string {
	mode := fmt.Sprintf("has mode %04o", info.Mode().Perm())
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return mode
	}
	group := strconv.Itoa(int(stat.Gid))
	if g, err := user.LookupGroupId(group); err == nil {
		group = g.Name
	}
	owner := AccountOf(int(stat.Uid))
	return fmt.Sprintf("%s, and belongs to %s and group %s", mode, owner, group)
}

// may reports whether the permissions grant one to the account: 4 to read, or 1 to enter a directory.
func (a Account) may(info fs.FileInfo, permission fs.FileMode) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch mode := info.Mode().Perm(); {
	case !ok:
		return true
	case int(stat.Uid) == a.UID:
		return mode>>6&permission != 0
	case int(stat.Gid) == a.GID, slices.Contains(a.Groups, int(stat.Gid)):
		return mode>>3&permission != 0
	default:
		return mode&permission != 0
	}
}

// NamedFile is a file that a configuration names with a key.
type NamedFile struct{ Key, Path string }

// Readable returns the result of checking whether whose account, such as "the server's", can read files.
func (a Account) Readable(whose string, files []NamedFile) Result {
	var paths, problems []string
	for _, f := range files {
		paths = append(paths, f.Path)
		if err := a.Read(f.Path); err != nil {
			problems = append(problems, fmt.Sprintf("%s: %v", f.Key, err))
		}
	}
	switch {
	case len(problems) > 0:
		return Fail(whose+" "+a.String()+" cannot read all files of the configuration",
			"let that user read each file and enter the directories above it, for example with chgrp and chmod g+r", problems...)
	case len(files) == 0:
		return Skip("the configuration names no file")
	}
	return OK(whose + " " + a.String() + " can read " + strings.Join(paths, ", "))
}
