package connlimit

import (
	"math"

	"golang.org/x/sys/unix"
)

const (
	// leastServer is the least limit of a large server. 5 000 agents need two connections each.
	leastServer = 10_000
	mostServer  = 100_000
	// reserve is the number of files that a large server needs besides its connections.
	reserve = 1000
)

// Files returns the number of connections that a large server can have, from the number of files that
// the process may open, and reports whether that number is large enough. It first raises the soft
// limit to the hard one.
func Files() (connections int, files uint64, enough bool) {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return leastServer, 0, true
	}
	if raised := (unix.Rlimit{Cur: limit.Max, Max: limit.Max}); limit.Cur < limit.Max && unix.Setrlimit(unix.RLIMIT_NOFILE, &raised) == nil {
		limit = raised
	}
	return connectionsFor(limit.Cur), limit.Cur, limit.Cur >= leastServer+reserve
}

func connectionsFor(files uint64) int {
	return max(leastServer, min(int(min(files, math.MaxInt32))-reserve, mostServer))
}
