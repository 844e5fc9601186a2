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
	// batchBytes is the approximate size of one write. It limits a writer's memory.
	batchBytes = 256 << 10

	// retryDisk is the pause before a failed write to disk is retried, because the system does not
	// report when space becomes available.
	retryDisk = time.Second
)

var (
	errNoSpace = errors.New("the log spool is full")
	// errNoRoom means that the space does not suffice to end a gap.
	errNoRoom = errors.New("the log spool has too little room")
)

type writer struct {
	frames    []byte
	fragment  bool // frames ends with a fragment
	midLine   bool // the last stored frame is a fragment
	breakLine bool // the unfinished line belongs to a dead process and must be ended first
	dropped   int64
	because   string // reason why output was dropped
	closed    bool
}

// Write appends p to the stream; see [Stream.WriteContext].
func (s *Stream) Write(p []byte) (int, error) {
	return s.WriteContext(context.Background(), p)
}

// WriteContext appends p to the stream, in frames with the current time. It stores the bytes after
// the last newline as a fragment that the next write continues, so that a crash loses nothing that
// was written.
//
// If the spool is at its limit or the disk is full, WriteContext blocks until space is available,
// ctx is done, or the stream or spool is closed. After [Options.DropAfter], or soon after
// [Options.Stopped], it drops output until space is available. A line in the log then states how much is missing and why.
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

// Close marks the stream as complete and syncs it to disk. Blocked writes return [ErrClosed]. Close
// may be called more than once.
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
		// The last frame must end its line, and the log must report a gap. Both are small, so the
		// limit does not apply to them.
		if err = s.store(true); err != nil {
			err = fmt.Errorf("ending the log of step %d: %w", s.step, err)
		}
	}
	s.frames = nil
	if serr := s.complete(); serr != nil && err == nil {
		err = fmt.Errorf("syncing the log of step %d: %w", s.step, serr)
	}
	return err
}

// complete marks the stream as complete. It wakes the shipper before the sync, which can take as long as
// shipping the remaining bytes.
func (s *Stream) complete() error {
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
		// The file might already be closed, because the server has all of it.
		if err := f.Sync(); err != nil && !errors.Is(err, os.ErrClosed) {
			return err
		}
	}
	return nil
}

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
			end = protocol.FrameCut(text)
		default:
			end = len(text)
		}
		s.frames = stamp.AppendFrame(s.frames, s.fragment, text[:end])
		n += end
	}
	return n
}

// put stores the encoded frames, which contain n bytes of output, or drops them.
func (s *Stream) put(ctx context.Context, n int) error {
	err := s.store(false)
	if err == nil {
		return nil
	}
	if s.dropped > 0 {
		// A gap blocks the job only once.
		s.dropped += int64(n)
		return nil
	}
	s.sp.addBlocked(1)
	defer s.sp.addBlocked(-1)
	limit, stopped := s.sp.opts.DropAfter, s.sp.opts.Stopped
	patience := time.NewTimer(limit)
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
			s.drop(n, err, limit)
			return nil
		case <-stopped:
			stopped, limit = nil, min(limit, stoppedDropAfter)
			patience.Reset(limit)
		case <-ctx.Done():
			return fmt.Errorf("waiting for space in the log spool: %w", context.Cause(ctx))
		case <-s.closing:
			return ErrClosed
		case <-s.sp.closing:
			return ErrClosed
		}
	}
}

// drop drops n bytes after a wait because of err.
func (s *Stream) drop(n int, err error, after time.Duration) {
	s.dropped = int64(n)
	s.sp.addBlocked(1) // until store succeeds
	if errors.Is(err, errNoSpace) {
		s.because = fmt.Sprintf("the log spool was full (%d bytes) and the server accepted nothing for %s", s.sp.opts.Limit, after)
	} else {
		s.because = fmt.Sprintf("the log spool could not be written for %s: %v", after, err)
	}
	s.sp.opts.Log.WithField("step", s.step).Error("dropping output of the job because " + s.because)
	s.mu.Lock()
	s.truncated = true
	s.save()
	s.mu.Unlock()
}

// store writes the encoded frames. If necessary, it first ends an interrupted line and adds the
// marker of a gap.
func (s *Stream) store(force bool) error {
	frames := s.frames
	if s.dropped > 0 && !force && !s.roomy() {
		return errNoRoom
	}
	// Output after a gap does not continue the fragment before it.
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
	// On a full disk or in a full spool, release the bytes that the server has.
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

// roomy reports whether a whole batch fits. A gap ends only then. Otherwise the last bytes of a
// nearly full disk would end it for one line, and the job would block for all of DropAfter again.
func (s *Stream) roomy() bool {
	if s.tryRoom(batchBytes) {
		return true
	}
	return s.sp.reclaimAll() && s.tryRoom(batchBytes)
}

// reclaimAll releases all bytes that the server has made durable, including those in segments in
// use. It reports whether it released any.
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
