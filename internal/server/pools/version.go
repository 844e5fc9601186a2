package pools

import (
	"slices"
	"strconv"
	"strings"
)

// OldestAgent is the oldest version of the agent that this server supports. Versions that are no releases,
// such as those of stock agents, are not compared with it.
const OldestAgent = "v1.0.0"

// TooOld reports whether this server does not support a version of the agent.
func TooOld(version string) bool { return Older(version, OldestAgent) }

// Older reports whether a released version is older than another one.
func Older(version, than string) bool {
	a, b := numbers(version), numbers(than)
	return a != nil && b != nil && slices.Compare(a, b) < 0
}

// numbers returns the three numbers of a released version, or nil.
func numbers(version string) []int {
	parts := strings.Split(strings.TrimPrefix(version, "v"), ".")
	if len(parts) != 3 {
		return nil
	}
	out := make([]int, len(parts))
	for i, part := range parts {
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil
		}
		out[i] = n
	}
	return out
}
