package backup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"workflowagent/internal/server/fault"
)

// Find returns the directory of a backup: dir itself, or the newest whole backup in it. It returns an error if the
// newest one is from the future, because the time at which it was written is then unknown.
func Find(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("finding the backup: %w", err)
	}
	if strings.HasPrefix(filepath.Base(dir), partialPrefix) {
		return "", fault.Invalid("%s is the rest of a backup that was interrupted or removed: use another one", dir)
	}
	if _, err := os.Lstat(filepath.Join(dir, manifestName)); err == nil {
		return dir, nil
	}
	found, err := list(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fault.NotFound("the directory %s does not exist, so it contains no backup; workflow-server backup DIR writes one", dir)
	}
	if err != nil {
		return "", fmt.Errorf("finding the backup: %w", err)
	}
	if len(found) == 0 {
		return "", fault.NotFound("%s is no backup, and contains none; workflow-server backup DIR writes one", dir)
	}
	newest := found[len(found)-1]
	if err := newest.ahead(time.Now()); err != nil {
		return "", fault.Invalid("%s seems to be the newest backup, but %v: name the backup that is to be used", newest.Path, err)
	}
	return newest.Path, nil
}

// Entry is a backup in a list.
type Entry struct {
	Path     string
	Manifest Manifest // empty if it cannot be read
	// Problem says why the manifest cannot be read, or that it is from the future, or is nil.
	Problem error
	time    time.Time
}

// List describes the whole backups in a directory, the oldest first. It verifies only their manifests.
func List(dir string) ([]Entry, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("listing the backups: %w", err)
	}
	found, err := list(dir)
	if err != nil {
		return nil, fmt.Errorf("listing the backups: %w", err)
	}
	now := time.Now()
	for i, e := range found {
		if e.Problem == nil {
			found[i].Problem = e.ahead(now)
		}
	}
	return found, nil
}

// maxAhead is by how much the clocks of two machines may differ.
const maxAhead = 10 * time.Minute

// ahead returns an error if a backup is from the future.
func (e Entry) ahead(now time.Time) error {
	if e.time.After(now.Add(maxAhead)) {
		return fmt.Errorf("its time, %s, is in the future: the clock was wrong then, or is wrong now", e.time.Format(time.RFC3339))
	}
	return nil
}

// list describes the whole backups in a directory, the oldest first. The time of one that cannot be read is that in its
// name.
func list(dir string) ([]Entry, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []Entry
	for _, f := range files {
		at, err := time.Parse(timeLayout, f.Name())
		if err != nil || !f.IsDir() {
			continue
		}
		e := Entry{Path: filepath.Join(dir, f.Name()), time: at}
		b, err := open(e.Path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			e.Problem = fmt.Errorf("it has no %s: if it is not being copied, it is the rest of a backup: remove it then", manifestName)
		case err != nil:
			e.Problem = err
		default:
			e.Manifest, e.time = b.manifest, b.manifest.Time
			b.close()
		}
		all = append(all, e)
	}
	slices.SortStableFunc(all, func(a, b Entry) int { return a.time.Compare(b.time) })
	return all, nil
}
