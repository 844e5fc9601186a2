//go:build !linux

package process

import "syscall"

// Protect does nothing: the system protects the memory of a user's processes from each other.
func Protect() error { return nil }

// KillSessions kills the process groups of leaders.
func KillSessions(leaders ...int) {
	for _, leader := range leaders {
		_ = syscall.Kill(-leader, syscall.SIGKILL)
	}
}

// KillDescendants does nothing: processes that left their session cannot be found here.
func KillDescendants() bool { return true }

// ReapOrphans does nothing: the system's first process adopts orphans.
func ReapOrphans() {}

// OOMKills returns 0: the number is unknown here.
func OOMKills() int { return 0 }
