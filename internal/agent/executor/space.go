package executor

import "workflowagent/internal/sys/diskspace"

// LeastSpace is the free space on the disk of the state directory, in bytes, below which an agent
// claims no jobs: it could store neither their logs nor their results.
const LeastSpace = 200 << 20

// FreeSpace returns the number of bytes on the disk of dir that the agent's user may use.
func FreeSpace(dir string) (int64, error) {
	_, free, err := diskspace.Of(dir)
	return free, err
}
