package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// frozen are the readers to which growing blobs have the length of an earlier time.
type frozen struct {
	mu      sync.Mutex
	readers []*FrozenReader
}

// note records the size that a blob has before it grows. The caller serializes the appends to the blob.
func (f *frozen) note(key string, size int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.readers {
		if _, known := r.sizes[key]; !known {
			r.sizes[key] = size
		}
	}
}

// FrozenReader is a [Reader] of files that have grown since. Only the sizes of those are in memory.
type FrozenReader struct {
	files *Files
	sizes map[string]int64 // guarded by files.frozen.mu
}

// Freeze returns a reader to which all blobs end where they end now. Appends continue. The caller must call
// [Files.Hold] before and [FrozenReader.Close] afterwards.
func (b *Files) Freeze() *FrozenReader {
	r := &FrozenReader{b, map[string]int64{}}
	b.frozen.mu.Lock()
	defer b.frozen.mu.Unlock()
	b.frozen.readers = append(b.frozen.readers, r)
	return r
}

// Close ends the use of the reader.
func (r *FrozenReader) Close() {
	f := &r.files.frozen
	f.mu.Lock()
	defer f.mu.Unlock()
	f.readers = slices.DeleteFunc(f.readers, func(other *FrozenReader) bool { return other == r })
}

// size returns the size of a blob that has grown.
func (r *FrozenReader) size(key string) (size int64, grown bool) {
	r.files.frozen.mu.Lock()
	defer r.files.frozen.mu.Unlock()
	size, grown = r.sizes[key]
	return size, grown
}

// Keys implements [Reader].
func (r *FrozenReader) Keys(ctx context.Context, prefix string) ([]string, error) {
	root, err := r.files.path(prefix)
	if err != nil {
		return nil, err
	}
	var keys []string
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err := errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		if !entry.Type().IsRegular() || strings.HasPrefix(entry.Name(), ".") || path == root {
			return nil
		}
		below, err := filepath.Rel(r.files.dir, path)
		key := filepath.ToSlash(below)
		if size, grown := r.size(key); !grown || size > 0 { // otherwise it is new
			keys = append(keys, key)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing the blobs of %s: %w", prefix, err)
	}
	return keys, nil
}

// Stat implements [Reader].
func (r *FrozenReader) Stat(_ context.Context, key string) (Info, error) {
	path, err := r.files.path(key)
	if err != nil {
		return Info{}, err
	}
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Info{}, fmt.Errorf("blob %s: %w", key, ErrNotFound)
	}
	if err != nil {
		return Info{}, fmt.Errorf("reading blob %s: %w", key, err)
	}
	info := Info{st.Size(), st.ModTime().UTC()}
	if size, grown := r.size(key); grown { // asked after the file, to which an append writes after its note
		info.Size = min(size, info.Size) // a failed sync cuts files
	}
	return info, nil
}

// Open implements [Reader].
func (r *FrozenReader) Open(ctx context.Context, key string) (io.ReadCloser, error) {
	info, err := r.Stat(ctx, key)
	if err != nil {
		return nil, err
	}
	f, err := r.files.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(f, info.Size), f}, nil
}
