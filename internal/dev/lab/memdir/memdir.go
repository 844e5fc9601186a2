// Package memdir finds a directory in memory for tests that otherwise mostly wait for the disk.
package memdir

import "golang.org/x/sys/unix"

const (
	memory = "/dev/shm"
	enough = 2 << 30 // bytes that must be free, so that the directories of several tests fit
)

// Parent returns a directory in memory, or "", which means the directory for temporary files, if the machine has
// none with enough free memory. Memory is not removed when a process dies, so callers must remove what they create.
func Parent() string {
	var fs unix.Statfs_t
	if unix.Statfs(memory, &fs) != nil || fs.Bavail*uint64(fs.Bsize) < enough {
		return ""
	}
	return memory
}
