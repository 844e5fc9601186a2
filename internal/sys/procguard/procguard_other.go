//go:build !linux

package procguard

// Protect does nothing, because the system already restricts access to another process's memory.
func Protect() error { return nil }
