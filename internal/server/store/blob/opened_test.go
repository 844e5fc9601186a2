package blob

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func newFiles(t *testing.T, limit int) *Files {
	t.Helper()
	b, err := NewFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b.opened.limit = limit
	return b
}

func appendAll(t *testing.T, b *Files, key, text string) {
	t.Helper()
	size, err := b.Size(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if _, added, err := b.Append(t.Context(), key, size, []byte(text)); err != nil || added != int64(len(text)) {
		t.Fatalf("Append to %s added %d of %d bytes: %v", key, added, len(text), err)
	}
	if n, err := b.Sync(t.Context(), key, 0); err != nil || n != size+int64(len(text)) {
		t.Fatalf("Sync of %s = %d, %v; want %d", key, n, err, size+int64(len(text)))
	}
}

// TestOpenFilesNotStale appends to files that were removed or replaced while they were open.
func TestOpenFilesNotStale(t *testing.T) {
	b := newFiles(t, 10)
	const key = "logs/j/1/0"
	path := filepath.Join(b.dir, key)
	for _, change := range []struct {
		name, left string
		make       func() error
	}{
		{"Delete", "", func() error { return b.Delete(t.Context(), "logs/j") }},
		{"Put", "new", func() error { return b.Put(t.Context(), key, bytes.NewReader([]byte("new"))) }},
		{"a removal by others", "", func() error { return os.Remove(path) }},
		{"a truncation by others", "o", func() error { return os.Truncate(path, 1) }},
	} {
		if err := b.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		appendAll(t, b, key, "old")
		if err := change.make(); err != nil {
			t.Fatal(err)
		}
		if n, err := b.Sync(t.Context(), key, 0); err != nil || n != int64(len(change.left)) {
			t.Errorf("after %s, Sync = %d, %v; want %d", change.name, n, err, len(change.left))
		}
		appendAll(t, b, key, "more")
		if got, err := os.ReadFile(path); err != nil || string(got) != change.left+"more" {
			t.Errorf("after %s, the file contains %q (%v), want %q", change.name, got, err, change.left+"more")
		}
	}
}

func TestOpenFilesBounded(t *testing.T) {
	b := newFiles(t, 3)
	for range 2 {
		for i := range 10 {
			appendAll(t, b, fmt.Sprintf("logs/%d", i), "line\n")
		}
	}
	if len(b.opened.byKey) != 3 || b.opened.unused.Len() != 3 {
		t.Errorf("%d files are open, %d of them unused; want 3", len(b.opened.byKey), b.opened.unused.Len())
	}
	for i := range 10 {
		if n, err := b.Size(t.Context(), fmt.Sprintf("logs/%d", i)); err != nil || n != 10 {
			t.Errorf("log %d has %d bytes (%v), want 10", i, n, err)
		}
	}
	if err := b.Delete(t.Context(), "logs"); err != nil {
		t.Fatal(err)
	}
	if len(b.opened.byKey) != 0 || b.opened.unused.Len() != 0 {
		t.Errorf("%d files are open after their removal", len(b.opened.byKey))
	}
}
