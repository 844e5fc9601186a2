package agent

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
)

// KnownID returns the id of the first agent that has lived in a state directory, for those who
// look at what is its own; "" if there was none, or none that the caller may see. It changes
// nothing, and the agent may well be alive.
func KnownID(stateDir string) string {
	data, err := os.ReadFile(filepath.Join(stateDir, "instances", "0", "id"))
	if err != nil {
		return ""
	}
	id, err := uuid.Parse(strings.TrimSpace(string(data)))
	if err != nil {
		return ""
	}
	return id.String()
}
