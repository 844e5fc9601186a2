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

// plainID matches IDs that are safe in paths. IDs must be checked because the server chooses them.
var plainID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)

// ObjectName returns the name for a job's directory, container and volume. The name is valid for
// all three and is the same for the same job and epoch. It differs between owners, so equal job IDs
// from different servers do not collide.
func ObjectName(owner, jobID string, epoch int64) string {
	id := jobID
	if !plainID.MatchString(id) {
		id = Digest(id)
	}
	return fmt.Sprintf("%s%s-%d-%s", namePrefix, id, epoch, ownerSuffix(owner))
}

func ownerSuffix(owner string) string { return Digest(owner)[:8] }

// IsObjectName reports whether name has the form of a job's object name, for any owner. Such a name
// is a single path element.
func IsObjectName(name string) bool {
	return strings.HasPrefix(name, namePrefix) && !strings.ContainsAny(name, `/\`)
}

// ParseObjectName returns the job and epoch of an owner's object from its name alone. The job ID is
// a digest if the original was not safe in names.
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
