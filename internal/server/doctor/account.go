package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"workflowagent/internal/checkup"
	"workflowagent/internal/server/config"
)

// serviceUser is the user of the service.
const serviceUser = "workflow-server"

// account is the user as whom the server runs.
type account struct {
	uid, gid int
	name     string // "" if the uid has none
	groups   []int
}

// accountOf returns the owner of the data directory, or for a new installation the user of the service,
// or the current user.
func accountOf(c config.Config) account {
	if info, err := os.Stat(c.DataDir); err == nil {
		if uid, ok := ownerOf(info); ok {
			return newAccount(user.LookupId(strconv.Itoa(uid)))(uid)
		}
	}
	if os.Geteuid() == 0 {
		if u, err := user.Lookup(serviceUser); err == nil {
			return newAccount(u, nil)(0)
		}
	}
	return newAccount(user.LookupId(strconv.Itoa(os.Geteuid())))(os.Geteuid())
}

// newAccount returns a function that returns the account of a user, or that of a uid if the user is not
// known.
func newAccount(u *user.User, err error) func(uid int) account {
	return func(uid int) account {
		if err != nil {
			return account{uid: uid, gid: uid}
		}
		a := account{name: u.Username}
		a.uid, _ = strconv.Atoi(u.Uid) // both are numbers on unix
		a.gid, _ = strconv.Atoi(u.Gid)
		ids, _ := u.GroupIds() // without the list, the primary group remains
		for _, id := range ids {
			if gid, err := strconv.Atoi(id); err == nil {
				a.groups = append(a.groups, gid)
			}
		}
		return a
	}
}

// String returns the user in words.
func (a account) String() string {
	if a.name == "" {
		return "user " + strconv.Itoa(a.uid)
	}
	return "user " + a.name
}

func (a account) isSelf() bool { return a.uid == os.Geteuid() }

// read returns an error if the account cannot read a file. It tries to open the file only if the account
// is the current user. Otherwise, it looks at the permissions.
func (a account) read(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a named pipe must not block the doctor
	if err == nil {
		err = f.Close()
	}
	if err != nil && (a.isSelf() || !errors.Is(err, fs.ErrPermission)) {
		return fmt.Errorf("%s: %w", path, checkup.Reason(err))
	}
	if a.isSelf() || a.uid == 0 {
		return nil
	}
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return fmt.Errorf("%s: %w", dir, checkup.Reason(err))
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
		return fmt.Errorf("%s: %w", path, checkup.Reason(err))
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
	owner := newAccount(user.LookupId(strconv.Itoa(int(stat.Uid))))(int(stat.Uid))
	return fmt.Sprintf("%s, and belongs to %s and group %s", mode, owner, group)
}

// may reports whether the permissions grant one to the account: 4 to read, or 1 to enter a directory.
func (a account) may(info fs.FileInfo, permission fs.FileMode) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch mode := info.Mode().Perm(); {
	case !ok:
		return true
	case int(stat.Uid) == a.uid:
		return mode>>6&permission != 0
	case int(stat.Gid) == a.gid, slices.Contains(a.groups, int(stat.Gid)):
		return mode>>3&permission != 0
	default:
		return mode&permission != 0
	}
}

func ownerOf(info fs.FileInfo) (uid int, ok bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(stat.Uid), true
}

// Readers returns the group of the server's user, which must be able to read a new configuration file of root. It
// returns nil if the file needs no group.
func Readers(c config.Config) *int {
	a := accountOf(c)
	if os.Geteuid() != 0 || a.uid == 0 {
		return nil
	}
	return &a.gid
}
