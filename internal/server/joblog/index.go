package joblog

import (
	"context"
	"sync"
)

const (
	// indexEvery is the number of lines between two entries of the index of a short stream.
	indexEvery = 512
	// indexEntries bounds the entries of an index. When it is full, it drops every second entry.
	indexEntries = 4096
	// allLines is a line that no stream has.
	allLines = 1 << 62
)

// lineIndex contains the offsets of some lines in the scanned part of a stream.
type lineIndex struct {
	mu      sync.Mutex
	every   int64   // number of lines between two entries
	at      []int64 // at[i] is the offset of line i*every
	lines   int64   // number of complete lines scanned
	scanned int64   // total size of these lines in bytes
}

// add adds the line at an offset. The caller must hold the lock.
func (ix *lineIndex) add(offset int64) {
	if ix.lines%ix.every == 0 {
		if len(ix.at) == indexEntries {
			for i := range indexEntries / 2 {
				ix.at[i] = ix.at[2*i]
			}
			ix.at = ix.at[:indexEntries/2]
			ix.every *= 2
		}
		ix.at = append(ix.at, offset)
	}
	ix.lines++
}

// before returns the last known line not after the given one, its offset, and the number of scanned
// lines.
func (ix *lineIndex) before(line int64) (start, at, known int64) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if len(ix.at) == 0 {
		return 0, 0, ix.lines
	}
	i := min(line/ix.every, int64(len(ix.at)-1))
	return i * ix.every, ix.at[i], ix.lines
}

// end returns the number of scanned lines and their size in bytes.
func (ix *lineIndex) end() (lines, scanned int64) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	return ix.lines, ix.scanned
}

// scan indexes a stream up to its end or the wanted line. It does not decode the text.
func (l *Store) scan(ctx context.Context, key string, ix *lineIndex, want int64) error {
	buf, done := buffer()
	defer done()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if more, err := l.scanNext(ctx, key, ix, want, buf); err != nil || !more {
			return err
		}
	}
}

// scanNext indexes the next lines of a stream. Other readers can use the index between two calls.
func (l *Store) scanNext(ctx context.Context, key string, ix *lineIndex, want int64, buf []byte) (more bool, err error) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if ix.lines > want {
		return false, nil
	}
	size, err := l.blobs.ReadAt(ctx, key, ix.scanned, buf)
	if err != nil {
		return false, err
	}
	chunk := buf[:size]
	n := 0
	for n < len(chunk) {
		_, used := parseLine(chunk[n:])
		if used == 0 {
			break
		}
		ix.add(ix.scanned + int64(n))
		n += used
	}
	ix.scanned += int64(n)
	return n > 0, nil
}

// index returns the index of a stream.
func (l *Store) index(key string) *lineIndex {
	return l.indexes.GetOr(key, func() *lineIndex { return &lineIndex{every: indexEvery} })
}
