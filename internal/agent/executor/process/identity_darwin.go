package process

import (
	"context"

	"golang.org/x/sys/unix"
)

// carries always returns false, because macOS does not expose the environments of processes. The
// executor therefore does not find the job's processes outside the session.
func carries(int, string) bool { return false }

func waitGone(ctx context.Context, id identity) (*unix.WaitStatus, error) {
	return nil, pollGone(ctx, id)
}
