// Package delivery keeps the log of one job on disk until the server has it.
//
// A [Spool] is a directory with one [Stream] for each step of the job. A stream is a sequence of
// frames (see package protocol) with byte offsets. The job's runner writes the spool, and a
// [Shipper] sends it. If the runner dies, another process can continue both. Bytes that the server
// has not accepted remain in segment files, not in memory. When these files reach their limit, or
// the disk is full, writes block. So the job waits until log is shipped.
package delivery

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/sys/filelock"
)

const (
	defaultLimit        = 256 << 20
	minLimit            = 1 << 20
	defaultSegmentBytes = 16 << 20
	defaultDropAfter    = 15 * time.Minute
	stoppedDropAfter    = 5 * time.Second // after [Options.Stopped]

	maxStep = 9999

	lockName = "lock"
)

var (
	// ErrInUse reports that another process, or another [Spool] in this process, has the directory
	// open.
	ErrInUse = errors.New("the log spool is in use by another process")
	// ErrClosed reports that the stream or its spool was closed.
	ErrClosed = errors.New("the log stream is closed")
)

// Options configure a [Spool]. The zero value means the defaults.
type Options struct {
	// Limit bounds the size of the spool on disk in bytes, 256 MiB by default and at least 1 MiB.
	// Writers block when the limit is reached.
	Limit int64
	// SegmentBytes is the maximum size of a stream's files in bytes, 16 MiB by default and at most
	// a quarter of Limit. Disk space is released in these units.
	SegmentBytes int64
	// DropAfter is the time for which a write can block before it drops output, 15 minutes by
	// default.
	DropAfter time.Duration
	// Stopped is closed when the job must stop; nil means never. A write then blocks for at most 5
	// seconds more, because a command that cannot write does not react to an interrupt, and is killed
	// in the end.
	Stopped <-chan struct{}
	// Has reports whether Open continues the stream of a step; nil means every step. It excludes
	// streams that a job wrote into its own spool.
	Has func(step int) bool
	// Readable lets other users of the machine read the spool, such as another container of the
	// job's pod that has another user.
	Readable bool
	// Log receives messages for the operator. Nil discards them.
	Log *logrus.Entry
}

func (o Options) withDefaults() Options {
	o.Limit = max(cmp.Or(o.Limit, defaultLimit), minLimit)
	o.SegmentBytes = min(cmp.Or(o.SegmentBytes, defaultSegmentBytes), o.Limit/4)
	o.DropAfter = cmp.Or(o.DropAfter, defaultDropAfter)
	o.Log = orDiscard(o.Log)
	if o.Has == nil {
		o.Has = func(int) bool { return true }
	}
	return o
}

func orDiscard(log *logrus.Entry) *logrus.Entry {
	if log != nil {
		return log
	}
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	return logrus.NewEntry(quiet)
}

// Spool is the log of one job on disk. It is safe for concurrent use.
type Spool struct {
	opts Options
	// root confines the spool to its directory: a job that can write there must not redirect reads
	// and writes through links.
	root *os.Root
	lock *filelock.Lock

	closing chan struct{} // closed by Close
	wake    chan struct{} // wakes the shipper; never blocks

	mu       sync.Mutex // acquired after the mu of a stream, never before
	closed   bool
	streams  []*Stream     // ordered by step
	used     int64         // bytes of frames on disk
	blocked  int           // number of writers that wait for space or drop output for lack of it
	freed    chan struct{} // closed and replaced when space is released
	progress chan struct{} // closed and replaced when the server accepts bytes
}

// Open opens the spool in dir. It creates a missing spool, and continues the spool of an earlier
// process after removing a torn frame. It returns [ErrInUse] if that process is still alive.
func Open(dir string, opts Options) (_ *Spool, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the log spool: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the log spool: %w", err)
	}
	sp := &Spool{
		opts: opts.withDefaults(), root: root,
		closing: make(chan struct{}), wake: make(chan struct{}, 1),
		freed: make(chan struct{}), progress: make(chan struct{}),
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, sp.closeFiles())
		}
	}()
	mode := fs.FileMode(0o700)
	if opts.Readable {
		mode = 0o711 | readable
	}
	if err := root.Chmod(".", mode); err != nil {
		return nil, fmt.Errorf("setting the permissions of the log spool: %w", err)
	}
	if sp.lock, err = lockFile(root, lockName); err != nil {
		return nil, fmt.Errorf("opening the log spool in %s: %w", filepath.Clean(dir), err)
	}
	if err := sp.load(); err != nil {
		return nil, fmt.Errorf("reading the log spool in %s: %w", filepath.Clean(dir), err)
	}
	return sp, nil
}

func (sp *Spool) load() error {
	entries, err := fs.ReadDir(sp.root.FS(), ".")
	if err != nil {
		return err
	}
	has := sp.opts.Has
	found := make(map[int]*Stream)
	stream := func(step int) *Stream {
		if found[step] == nil {
			found[step] = newStream(sp, step)
		}
		return found[step]
	}
	for _, e := range entries { // sorted by name, and so by offset
		if !e.Type().IsRegular() {
			continue
		}
		if step, start, ok := parseSegmentName(e.Name()); ok && has(step) {
			s := stream(step)
			s.segments = append(s.segments, &segment{name: e.Name(), start: start})
		} else if step, ok := parseStepName(e.Name(), stateSuffix); ok && has(step) {
			stream(step)
		} else if name, ok := strings.CutSuffix(e.Name(), unfinished); ok {
			if _, _, ok := parseSegmentName(name); ok {
				_ = sp.root.Remove(e.Name()) // the next write creates the file again
			}
		}
	}
	for _, s := range found {
		if err := s.load(); err != nil {
			return fmt.Errorf("step %d: %w", s.step, err)
		}
		sp.streams = append(sp.streams, s)
		for _, seg := range s.segments {
			sp.used += seg.size
		}
	}
	slices.SortFunc(sp.streams, func(a, b *Stream) int { return cmp.Compare(a.step, b.step) })
	return nil
}

// Step returns the stream of step i, counted from 0. Repeated calls return the same stream.
func (sp *Spool) Step(i int) (*Stream, error) {
	if i < 0 || i > maxStep {
		return nil, fmt.Errorf("step %d has no log: steps are numbered from 0 to %d", i, maxStep)
	}
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if sp.closed {
		return nil, ErrClosed
	}
	at, found := slices.BinarySearchFunc(sp.streams, i, func(s *Stream, i int) int { return cmp.Compare(s.step, i) })
	if !found {
		// Insert into a copy, because the shipper iterates over the old slice without the lock.
		sp.streams = slices.Insert(slices.Clone(sp.streams), at, newStream(sp, i))
	}
	return sp.streams[at], nil
}

// StepSummary describes the log of one step.
type StepSummary struct {
	Step   int
	Bytes  int64  // size of the framed log
	SHA256 string // of these bytes, in hex
	// Truncated reports missing lines: output was dropped, or the server did not accept all of it.
	Truncated bool
}

// Summaries returns the summaries of all streams, ordered by step. It may be called after Close.
func (sp *Spool) Summaries() []StepSummary {
	var all []StepSummary
	for _, s := range sp.list() {
		all = append(all, s.summary())
	}
	return all
}

// Close releases the directory, so that another process can continue, and makes blocked writes
// return [ErrClosed]. The files remain. The caller must have stopped the shipper.
func (sp *Spool) Close() error {
	sp.mu.Lock()
	if sp.closed {
		sp.mu.Unlock()
		return nil
	}
	sp.closed = true
	close(sp.closing)
	streams := sp.streams
	sp.mu.Unlock()
	for _, s := range streams {
		s.writing.Lock() // after the last writer has returned
		s.closed = true
		s.writing.Unlock()
	}
	return sp.closeFiles()
}

func (sp *Spool) closeFiles() error {
	var errs []error
	for _, s := range sp.list() {
		errs = append(errs, s.closeFiles())
	}
	if sp.lock != nil {
		sp.lock.Release()
	}
	if err := errors.Join(append(errs, sp.root.Close())...); err != nil {
		return fmt.Errorf("closing the log spool: %w", err)
	}
	return nil
}

func (sp *Spool) list() []*Stream {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	return sp.streams
}

func (sp *Spool) signal() {
	select {
	case sp.wake <- struct{}{}:
	default:
	}
}

// reserve counts n bytes against the limit if they fit or force is set, and reports whether it did.
func (sp *Spool) reserve(n int64, force bool) bool {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if sp.used+n > sp.opts.Limit && !force {
		return false
	}
	sp.used += n
	return true
}

func (sp *Spool) unreserve(n int64) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	sp.used -= n
}

func (sp *Spool) release(n int64) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	sp.used -= n
	close(sp.freed)
	sp.freed = make(chan struct{})
}

func (sp *Spool) space() <-chan struct{} {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	return sp.freed
}

func (sp *Spool) addBlocked(n int) {
	sp.mu.Lock()
	sp.blocked += n
	sp.mu.Unlock()
	sp.signal()
}

func (sp *Spool) anyBlocked() bool {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	return sp.blocked > 0
}

// advanced wakes the callers in Flush after the server has accepted bytes.
func (sp *Spool) advanced() {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	close(sp.progress)
	sp.progress = make(chan struct{})
}

func (sp *Spool) advance() <-chan struct{} {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	return sp.progress
}
