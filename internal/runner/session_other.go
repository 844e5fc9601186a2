//go:build !linux

package runner

import "syscall"

// Protect does nothing here: the system does not let processes of one user read
// each other's memory without asking.
func Protect() error { return nil }

// killSessions kills the process groups of leaders.
func killSessions(leaders ...int) {
	for _, leader := range leaders {
		_ = syscall.Kill(-leader, syscall.SIGKILL)
	}
}

// killDescendants does nothing: what left its session cannot be found here.
func killDescendants() bool { return true }

// reapOrphans does nothing: they belong to the system's first process.
func reapOrphans() {}

// oomKills is not known here.
func oomKills() int { return 0 }
