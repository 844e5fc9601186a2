package executor

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

const namePrefix = "workflow-"

// plainID matches job IDs that are safe in paths. The server chooses the IDs, so the agent must
// check them.
var plainID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)

// ObjectName returns the name of a job's directory, container and volume. The name is valid for all
// three and depends only on its arguments. Different owners get different names, so equal job IDs
// from different servers do not collide.
func ObjectName(owner, jobID string, epoch int64) string {
	id := jobID
	if !plainID.MatchString(id) {
		id = Digest(id)
	}
	return fmt.Sprintf("%s%s-%d-%s", namePrefix, id, epoch, ownerSuffix(owner))
}

func ownerSuffix(owner string) string { return Digest(owner)[:8] }

// IsObjectName reports whether name has the form of a job's object name, for any owner. A name of
// this form is a single path element.
func IsObjectName(name string) bool {
	return strings.HasPrefix(name, namePrefix) && !strings.ContainsAny(name, `/\`)
}

// ParseObjectName extracts the job ID and the epoch from the name of an owner's object. The job ID
// is a digest if the original ID was not safe in names.
func ParseObjectName(owner, name string) (jobID string, epoch int64, ok bool) {
	rest, found := strings.CutSuffix(name, "-"+ownerSuffix(owner))
	if !found || !IsObjectName(name) {
		return "", 0, false
	}
	rest = strings.TrimPrefix(rest, namePrefix)
	dash := strings.LastIndexByte(rest, '-')
	if dash < 0 {
		return "", 0, false
	}
	epoch, err := strconv.ParseInt(rest[dash+1:], 10, 64)
	return rest[:dash], epoch, err == nil
}

// Digest returns the first 16 hexadecimal digits of the SHA-256 of s.
func Digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}
