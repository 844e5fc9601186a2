package blob

import (
	"container/list"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// maxOpened is the maximum number of unused files that stay open, if the process may open many
// more.
const maxOpened = 1024

// opened are the files to which logs were last appended. They stay open, because a busy log
// receives many appends per second.
type opened struct {
	limit int

	mu     sync.Mutex
	byKey  map[string]*openFile
	unused list.List // of *openFile, last used first
}

type openFile struct {
	*os.File
	key     string
	entered atomic.Bool // the directory entry is durable
	syncing sync.Mutex  // serializes syncs

	// The fields below are guarded by opened.mu.
	users   int
	dropped bool          // not in byKey; its last user closes it
	element *list.Element // in unused, or nil
}

func newOpened() *opened {
	limit := maxOpened
	var files syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) == nil {
		limit = int(min(maxOpened, files.Cur/8)) // connections need the others
	}
	return &opened{limit: limit, byKey: map[string]*openFile{}}
}

// get returns the file of a key and its state. It calls open if the file is not open, or no longer
// has a name. The caller must call put.
func (o *opened) get(key string, open func() (*os.File, error)) (*openFile, fs.FileInfo, error) {
	if f := o.take(key); f != nil {
		st, err := f.Stat()
		if err == nil && named(st) {
			return f, st, nil
		}
		o.drop(key)
		o.put(f)
	}
	file, err := open()
	if err != nil {
		return nil, nil, err
	}
	f := o.add(key, file)
	st, err := f.Stat()
	if err != nil {
		o.put(f)
		return nil, nil, err
	}
	return f, st, nil
}

// named reports whether a file still has a name. A file that was removed or replaced has none.
func named(st fs.FileInfo) bool {
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && sys.Nlink > 0
}

func (o *opened) take(key string) *openFile {
	o.mu.Lock()
	defer o.mu.Unlock()
	f := o.byKey[key]
	if f != nil {
		o.use(f)
	}
	return f
}

func (o *opened) use(f *openFile) {
	f.users++
	if f.element != nil {
		o.unused.Remove(f.element)
		f.element = nil
	}
}

func (o *opened) add(key string, file *os.File) *openFile {
	o.mu.Lock()
	defer o.mu.Unlock()
	if f := o.byKey[key]; f != nil { // opened by a concurrent call
		_ = file.Close()
		o.use(f)
		return f
	}
	f := &openFile{File: file, key: key, users: 1}
	o.byKey[key] = f
	return f
}

// put ends a use of a file. The file stays open until many others have been used.
func (o *opened) put(f *openFile) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if f.users--; f.users > 0 {
		return
	}
	if f.dropped {
		_ = f.Close()
		return
	}
	f.element = o.unused.PushFront(f)
	for o.unused.Len() > o.limit {
		if last, ok := o.unused.Back().Value.(*openFile); ok {
			o.forget(last)
		}
	}
}

// drop closes the files whose key is prefix or below prefix + "/", after their last use.
func (o *opened) drop(prefix string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key, f := range o.byKey {
		if key == prefix || strings.HasPrefix(key, prefix) && key[len(prefix)] == '/' {
			o.forget(f)
		}
	}
}

func (o *opened) forget(f *openFile) {
	delete(o.byKey, f.key)
	f.dropped = true
	if f.element != nil {
		o.unused.Remove(f.element)
		f.element = nil
		_ = f.Close()
	}
}

// writable opens the file of a key for appends, and creates it if create is set.
func (b *Files) writable(key string, create bool) (*openFile, fs.FileInfo, error) {
	f, st, err := b.opened.get(key, func() (*os.File, error) {
		path, err := b.path(key)
		if err != nil {
			return nil, err
		}
		if !create {
			return os.OpenFile(path, os.O_RDWR, 0)
		}
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
		if err := b.makeParent(path); err != nil {
			return nil, err
		}
		return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	})
	if err != nil {
		return nil, nil, fmt.Errorf("opening blob %s: %w", key, err)
	}
	return f, st, nil
}
