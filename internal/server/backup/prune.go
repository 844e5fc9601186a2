package backup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/sys/durable"
)

// prune removes the oldest backups of an installation if it has more than keep, but never the one just written.
func prune(dir string, keep int, written Manifest, path string) (removed []string, err error) {
	if keep <= 0 {
		return nil, nil
	}
	found, err := list(dir)
	if err != nil {
		return nil, err
	}
	var earlier []string
	var errs []error
	for _, e := range found {
		name := filepath.Base(e.Path)
		switch {
		case e.Path == path:
		case e.Problem != nil:
			errs = append(errs, fmt.Errorf("the backup %s is neither counted nor removed: %w", name, e.Problem))
		case e.Manifest.Installation != written.Installation:
		case e.time.After(written.Time):
			errs = append(errs, fmt.Errorf("the backup %s is neither counted nor removed: its time is later than now, because the clock was wrong then, or is wrong now; remove it if you do not need it", name))
		default:
			earlier = append(earlier, name)
		}
	}
	for _, name := range earlier[:max(0, len(earlier)+1-keep)] {
		// With that name, what remains of it after a crash is no backup, and the next one removes it.
		rest := filepath.Join(dir, partialPrefix+name)
		err := os.Rename(filepath.Join(dir, name), rest)
		if err == nil {
			err = os.RemoveAll(rest)
		}
		if err != nil {
			errs = append(errs, fault.While(err, "removing the old backup %s", name))
			break
		}
		removed = append(removed, name)
	}
	return removed, errors.Join(append(errs, durable.SyncDir(dir))...)
}
