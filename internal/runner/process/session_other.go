//go:build !linux

package process

import "syscall"

// Protect does nothing here: the system does not let processes of one user read
// each other's memory without asking.
func Protect() error { return nil }

// KillSessions kills the process groups of leaders.
func KillSessions(leaders ...int) {
	for _, leader := range leaders {
		_ = syscall.Kill(-leader, syscall.SIGKILL)
	}
}

// KillDescendants does nothing: what left its session cannot be found here.
func KillDescendants() bool { return true }

// ReapOrphans does nothing: they belong to the system's first process.
func ReapOrphans() {}

// OOMKills is not known here.
func OOMKills() int { return 0 }
