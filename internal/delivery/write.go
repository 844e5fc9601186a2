package delivery

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"workflowagent/internal/protocol"
)

const (
	// batchBytes is how many bytes of frames are stored at once, about. It bounds
	// the memory of a writer.
	batchBytes = 256 << 10

	// retryDisk is the pause before a write that the disk refused is repeated: the
	// system does not report when space becomes available.
	retryDisk = time.Second
)

var (
	// errNoSpace says that the spool has reached its limit.
	errNoSpace = errors.New("the log spool is full")
	// errNoRoom says that there is too little space to end a gap.
	errNoRoom = errors.New("the log spool has too little room")
)

// writer is the part of a [Stream] that writers use. Its lock is writing.
type writer struct {
	frames    []byte
	fragment  bool // the last of frames is a fragment
	midLine   bool // the last frame that was stored is a fragment
	breakLine bool // the line in progress belongs to a process that died: end it first
	dropped   int64
	because   string // of the drop
	closed    bool
}

// Write appends lines to the stream, see [Stream.WriteContext].
func (s *Stream) Write(p []byte) (int, error) {
	return s.WriteContext(context.Background(), p)
}

// WriteContext appends p to the stream, in frames that carry the present time. What
// follows the last newline in p is stored as a fragment that the next write goes on
// with, so that a crash loses nothing of what was written.
//
// If the spool has reached its limit or the disk refuses to take more, WriteContext
// blocks until there is space, until ctx ends, or until the stream or spool is closed.
// After [Options.DropAfter] it drops what it cannot store, and goes on so until there
// is space; then a line in the log says how much is missing and why.
func (s *Stream) WriteContext(ctx context.Context, p []byte) (int, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.closed {
		return 0, ErrClosed
	}
	stamp := protocol.NewFrameStamp(time.Now())
	done := 0
	for done < len(p) {
		n := s.frame(&stamp, p[done:])
		if err := s.put(ctx, n); err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

// Close marks the stream as ended and makes it safe on disk. Writers that block
// return [ErrClosed]. Closing twice is allowed.
func (s *Stream) Close() error {
	s.closeOnce.Do(func() { close(s.closing) })
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	s.frames = s.frames[:0]
	s.fragment = false
	var err error
	if s.midLine || s.breakLine || s.dropped > 0 {
		// A last frame must end its line, and a gap must be told. Both are small, so
		// the limit does not count.
		if err = s.store(true); err != nil {
			err = fmt.Errorf("ending the log of step %d: %w", s.step, err)
		}
	}
	s.frames = nil
	if serr := s.end(); serr != nil && err == nil {
		err = fmt.Errorf("making the log of step %d safe: %w", s.step, serr)
	}
	return err
}

// end notes that the stream is complete. The shipper is told before the disk is
// waited for, which may take as long as shipping the rest.
func (s *Stream) end() error {
	s.mu.Lock()
	s.ended = true
	s.save()
	files := make([]interface{ Sync() error }, 0, 2)
	if n := len(s.segments); n > 0 && s.segments[n-1].file != nil {
		files = append(files, s.segments[n-1].file)
	}
	if s.stateFile != nil {
		files = append(files, s.stateFile)
	}
	s.mu.Unlock()
	s.sp.signal()
	for _, f := range files {
		// The file may be gone by now, because the server already has it all.
		if err := f.Sync(); err != nil && !errors.Is(err, os.ErrClosed) {
			return err
		}
	}
	return nil
}

// frame encodes the beginning of p, as much as makes a batch, and returns how much that is.
func (s *Stream) frame(stamp *protocol.FrameStamp, p []byte) int {
	s.frames = s.frames[:0]
	n := 0
	for n < len(p) && len(s.frames) < batchBytes {
		text := p[n:min(len(p), n+protocol.MaxFrameText+1)]
		end := bytes.IndexByte(text, '\n')
		s.fragment = end < 0
		switch {
		case end >= 0:
			n++ // the newline
		case len(text) > protocol.MaxFrameText:
			end = protocol.MaxFrameText
		default:
			end = len(text)
		}
		s.frames = stamp.AppendFrame(s.frames, s.fragment, text[:end])
		n += end
	}
	return n
}

// put stores the encoded frames, which stand for n bytes, or drops them.
func (s *Stream) put(ctx context.Context, n int) error {
	err := s.store(false)
	if err == nil {
		return nil
	}
	if s.dropped > 0 {
		// One gap blocks the job only once.
		s.dropped += int64(n)
		return nil
	}
	s.sp.addBlocked(1)
	defer s.sp.addBlocked(-1)
	patience := time.NewTimer(s.sp.opts.DropAfter)
	defer patience.Stop()
	retry := time.NewTicker(retryDisk)
	defer retry.Stop()
	for {
		space := s.sp.space()
		if err = s.store(false); err == nil {
			return nil
		}
		select {
		case <-space:
		case <-retry.C:
		case <-patience.C:
			s.drop(n, err)
			return nil
		case <-ctx.Done():
			return fmt.Errorf("waiting for space in the log spool: %w", context.Cause(ctx))
		case <-s.closing:
			return ErrClosed
		case <-s.sp.closing:
			return ErrClosed
		}
	}
}

// drop begins a gap in the stream.
func (s *Stream) drop(n int, err error) {
	s.dropped = int64(n)
	s.sp.addBlocked(1) // until store succeeds
	if errors.Is(err, errNoSpace) {
		s.because = fmt.Sprintf("the log spool was full (%d bytes) and the server took nothing for %s", s.sp.opts.Limit, s.sp.opts.DropAfter)
	} else {
		s.because = fmt.Sprintf("the log spool could not be written for %s: %v", s.sp.opts.DropAfter, err)
	}
	s.sp.opts.Log.WithField("step", s.step).Error("dropping output of the job because " + s.because)
	s.mu.Lock()
	s.truncated = true
	s.save()
	s.mu.Unlock()
}

// store writes the encoded frames behind what must stand before them: the end of an
// interrupted line, the marker of a gap.
func (s *Stream) store(force bool) error {
	frames := s.frames
	if s.dropped > 0 && !force && !s.roomy() {
		return errNoRoom
	}
	// A fragment before a gap is not continued by what comes after it.
	if interrupted := s.breakLine || s.midLine && (s.dropped > 0 || s.closed); interrupted || s.dropped > 0 {
		now := time.Now()
		frames = nil
		if interrupted {
			frames = protocol.AppendFrame(frames, now, false, nil)
		}
		if s.dropped > 0 {
			frames = protocol.AppendFrame(frames, now, false,
				fmt.Appendf(nil, "*** %d bytes of output dropped because %s ***", s.dropped, s.because))
		}
		frames = append(frames, s.frames...)
	}
	err := s.append(frames, force)
	// On a full disk as in a full spool, what the server has is in the way.
	if err != nil && s.sp.reclaimAll() {
		err = s.append(frames, force)
	}
	if err != nil {
		return err
	}
	if s.dropped > 0 {
		s.sp.addBlocked(-1)
	}
	s.midLine, s.breakLine, s.dropped = s.fragment, false, 0
	return nil
}

// roomy says whether there is room for a whole batch. A gap ends only then: the rest
// of a block that a full disk still takes would end it for one line, and the job
// would stand still for the whole patience again.
func (s *Stream) roomy() bool {
	if s.tryRoom(batchBytes) {
		return true
	}
	return s.sp.reclaimAll() && s.tryRoom(batchBytes)
}

// reclaimAll gives back whatever the server has made durable, also of the segments
// that are written to, and says whether that was anything.
func (sp *Spool) reclaimAll() bool {
	sp.mu.Lock()
	before := sp.used
	sp.mu.Unlock()
	for _, s := range sp.list() {
		s.mu.Lock()
		s.reclaim(true)
		s.mu.Unlock()
	}
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if sp.used == before {
		return false
	}
	keepSpare(sp.root)
	return true
}
