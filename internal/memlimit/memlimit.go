// Package memlimit lets the garbage collector respect the memory limit of the process's control group.
package memlimit

import (
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
)

var (
	mu       sync.Mutex
	group    int64 // the limit that Apply has set because of the control group, or 0
	reserved int64 // bytes
)

// Apply returns the Go memory limit in bytes, or [math.MaxInt64] if the process has none. If
// GOMEMLIMIT is unset, Apply sets the limit to nine tenths of the control group's limit. What is
// reserved is part of the returned limit.
func Apply() int64 {
	mu.Lock()
	defer mu.Unlock()
	if group != 0 {
		return group
	}
	limit := debug.SetMemoryLimit(-1)
	if limit == math.MaxInt64 {
		if all := controlGroupLimit("/"); all < math.MaxInt64 {
			limit = all / 10 * 9
			group = limit
			debug.SetMemoryLimit(limit)
		}
	}
	return limit
}

// Reserve leaves memory to another process in the control group, in bytes, until release is called.
// At least half of the limit remains for this process. A limit from GOMEMLIMIT does not change: who
// sets it knows what else needs memory.
func Reserve(bytes int64) (release func()) {
	reserve(bytes)
	return func() { reserve(-bytes) }
}

func reserve(bytes int64) {
	mu.Lock()
	defer mu.Unlock()
	reserved += bytes
	if group != 0 {
		debug.SetMemoryLimit(max(group/2, group-reserved))
	}
}

// controlGroupLimit returns the smallest memory limit of this process's control groups (v2), in
// bytes; root is the root of the file system.
func controlGroupLimit(root string) int64 {
	limit := int64(math.MaxInt64)
	groups, err := os.ReadFile(path.Join(root, "proc/self/cgroup"))
	if err != nil {
		return limit
	}
	for line := range strings.Lines(string(groups)) {
		group, ok := strings.CutPrefix(strings.TrimSpace(line), "0::/")
		if !ok {
			continue
		}
		for dir := group; ; dir = path.Dir(dir) {
			text, err := os.ReadFile(path.Join(root, "sys/fs/cgroup", dir, "memory.max"))
			if err == nil {
				if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil { // without a limit, the file contains "max"
					limit = min(limit, n)
				}
			}
			if dir == "." || dir == "" || dir == "/" {
				break
			}
		}
	}
	return limit
}
