package delivery

import (
	"fmt"
	"strings"
)

// MaxCopy bounds the files of a spool with the default limit, in bytes: frames up to the limit,
// one write beyond it, headers and the like.
const MaxCopy = defaultLimit + defaultSegmentBytes

// IsFileName reports whether the file is needed to continue a spool elsewhere. The directory
// may belong to a job, which can put anything there.
func IsFileName(name string) bool {
	if _, _, ok := parseSegmentName(name); ok {
		return true
	}
	if _, ok := parseStateName(name); ok {
		return true
	}
	var step int
	_, err := fmt.Sscanf(name, "step-%d.lines", &step)
	return err == nil && step >= 0 && step <= maxStep && name == marksName(step) && !strings.ContainsAny(name, `/\`)
}
