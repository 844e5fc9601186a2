package blob

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"workflowagent/internal/sys/durable"
)

// postponedName is the file with the prefixes of blobs whose removal is postponed, one per line. No key starts
// with a dot.
const postponedName = ".postponed"

// holds postpones the removal of blobs while backups copy them. The prefixes are kept in a file, so that they
// need no memory, and so that a crash does not leave blobs that no sweep finds.
type holds struct {
	mu    sync.Mutex
	count int
	path  string
}

// Hold postpones the removal of all blobs until release is called. Appends and replacements continue; [Files.Freeze]
// hides the former. The removal takes place at the release, so the keys of removed blobs must not be used again.
func (b *Files) Hold() (release func() error) {
	b.held.mu.Lock()
	defer b.held.mu.Unlock()
	b.held.count++
	return sync.OnceValue(func() error {
		b.held.mu.Lock()
		defer b.held.mu.Unlock()
		if b.held.count--; b.held.count > 0 {
			return nil
		}
		return b.removePostponed()
	})
}

// postpone records a removal if a backup holds the blobs, and reports whether it has.
func (b *Files) postpone(prefix string) (postponed bool, err error) {
	b.held.mu.Lock()
	defer b.held.mu.Unlock()
	if b.held.count == 0 {
		return false, nil
	}
	f, err := os.OpenFile(b.held.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return true, fmt.Errorf("postponing the removal of blobs until the backup ends: %w", err)
	}
	_, err = f.WriteString(prefix + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return true, fmt.Errorf("postponing the removal of blobs until the backup ends: %w", err)
	}
	return true, nil
}

// finish removes what an earlier process has postponed, unless a backup holds the blobs. It reports whether none does.
func (h *holds) finish(b *Files) (idle bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.count > 0 {
		return false, nil
	}
	return true, b.removePostponed()
}

// removePostponed removes the blobs whose removal was postponed, also by an earlier process. The caller holds b.held.mu.
func (b *Files) removePostponed() error {
	f, err := os.Open(b.held.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("removing blobs that a backup held: %w", err)
	}
	defer f.Close()
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			break // a crash or a full disk can have cut the last line, which may then be the prefix of all blobs
		}
		if err != nil {
			return fmt.Errorf("removing blobs that a backup held: %w", err)
		}
		prefix := strings.TrimSuffix(line, "\n")
		if checkKey(prefix) != nil {
			continue // it follows a line that was cut
		}
		if err := b.remove(prefix); err != nil {
			return err
		}
	}
	if err := os.Remove(b.held.path); err != nil {
		return fmt.Errorf("removing blobs that a backup held: %w", err)
	}
	return durable.SyncDir(filepath.Dir(b.held.path))
}
