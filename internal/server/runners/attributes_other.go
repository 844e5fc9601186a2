//go:build !linux

package runners

import "syscall"

// attributes makes a child run as a user, in its own process group.
func attributes(a account) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: a.uid, Gid: a.gid, Groups: a.groups},
		Setpgid:    true,
	}
}
