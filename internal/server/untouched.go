package server

import (
	"context"

	"workflowagent/internal/server/store"
)

// Untouched reports whether only starts of a server have written to the SQLite database in a file; see
// [store.Untouched]. If root runs this process, it becomes the owner of the file.
func Untouched(ctx context.Context, path string) (bool, error) {
	become, err := becomingOwnerOf(path, true, true)
	if err == nil {
		err = become()
	}
	if err != nil {
		return false, err
	}
	return store.Untouched(ctx, path)
}
