package runners

import "syscall"

// attributes makes a child run as a user, in its own process group, so that a signal from the
// terminal does not reach it. If the server is killed, the child is asked to stop.
func attributes(a account) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: a.uid, Gid: a.gid, Groups: a.groups},
		Setpgid:    true, Pdeathsig: syscall.SIGTERM,
	}
}
