package executor

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
)

// plainID is what a job id may look like to be used in the names of objects as
// it is. The id comes from the server: whatever else it is must not reach a path.
var plainID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)

// ObjectName returns the name that the directory, container and volume of a job
// have. It is made of characters that are safe in all of them, is the same for
// the same job and epoch, and differs between owners, so that two agents with
// equal job ids from different servers do not meet.
func ObjectName(owner, jobID string, epoch int64) string {
	id := jobID
	if !plainID.MatchString(id) {
		id = Digest(id)
	}
	return fmt.Sprintf("workflow-%s-%d-%s", id, epoch, Digest(owner)[:8])
}

// Digest returns the first 16 hexadecimal digits of the SHA-256 of s, for names.
func Digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}
