//go:build !linux

package process

import "syscall"

// Protect does nothing, because the system protects the memory of a user's processes from each
// other.
func Protect() error { return nil }

// KillSessions kills the process groups of leaders.
func KillSessions(leaders ...int) {
	for _, leader := range leaders {
		_ = syscall.Kill(-leader, syscall.SIGKILL)
	}
}

// KillDescendants does nothing, because processes that left their session cannot be found on this
// system. It returns true.
func KillDescendants() bool { return true }

// ReapOrphans does nothing, because the system's first process adopts orphans.
func ReapOrphans() {}

// OOMKills returns 0, because the number is unknown on this system.
func OOMKills() int { return 0 }
