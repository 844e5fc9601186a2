package delivery

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"sync"
	"time"
)

// Stream is the log of one step. It is safe for concurrent use.
//
// Offsets count bytes from 0 over the whole life of the stream. The server can no longer lose bytes
// below durable. It has received the bytes below received. The spool has received the bytes below
// size.
type Stream struct {
	sp   *Spool
	step int

	// writing is held by a writer from its first byte to its last, even while it waits for space.
	// It protects the fields of writer.
	writing sync.Mutex
	writer
	closeOnce sync.Once
	closing   chan struct{}

	mu       sync.Mutex // held briefly, and never while waiting
	segments []*segment // without gaps; writes go to the last one
	sum      hash.Hash  // of all frames
	size     int64
	state
	savedState state
	limit      int64 // the server accepts no bytes from this offset on; 0 until it reports a limit
	stateFile  *os.File
	abandoned  string // why the shipper abandoned the stream, or ""

	// unsentSince is the arrival time of the first byte that no request has carried. If it is zero,
	// either no such byte exists, or the request that carried it failed and must be repeated at
	// once.
	unsentSince time.Time
	openSize    int64 // size when the stream was reopened; -1 if it was not, or the server has confirmed the size
}

func newStream(sp *Spool, step int) *Stream {
	return &Stream{sp: sp, step: step, closing: make(chan struct{}), sum: sha256.New(), state: state{cut: -1}, openSize: -1}
}

func (s *Stream) load() error {
	if err := s.openState(); err != nil {
		return err
	}
	if st, ok, err := readState(s.stateFile); err != nil {
		return err
	} else if ok {
		s.state, s.savedState = st, st
	}
	for i, seg := range s.segments {
		if err := seg.open(s.sp.root); err != nil {
			return err
		}
		sum, err := seg.readHeader()
		if err == nil && i > 0 && s.segments[i-1].end() != seg.start {
			err = errors.New("bytes before it are missing")
		}
		if err != nil {
			// Only a machine crash causes this: it lost the end of the log.
			s.sp.opts.Log.WithError(err).WithField("step", s.step).Warn("part of the log in the spool is lost")
			s.truncated = true
			if i > 0 {
				if err := s.discard(i); err != nil {
					return err
				}
				break
			}
			sum = sha256.New()
		}
		info, err := seg.file.Stat()
		if err != nil {
			return fmt.Errorf("reading %s: %w", seg.name, err)
		}
		s.sum, seg.size = sum, max(0, info.Size()-segmentHeader)
	}
	base := int64(0)
	if n := len(s.segments); n > 0 {
		var err error
		if s.breakLine, err = s.segments[n-1].recover(s.sum); err != nil {
			return err
		}
		base, s.size = s.segments[0].start, s.segments[n-1].end()
	}
	s.openSize = s.size
	s.durable = min(max(s.durable, base), s.size)
	s.received = min(max(s.received, s.durable), s.size)
	return nil
}

// discard removes the segments from index i on.
func (s *Stream) discard(i int) error {
	for _, seg := range s.segments[i:] {
		if seg.file != nil {
			_ = seg.file.Close()
		}
		if err := s.sp.root.Remove(seg.name); err != nil {
			return fmt.Errorf("removing %s: %w", seg.name, err)
		}
	}
	s.segments = s.segments[:i]
	return nil
}

func (s *Stream) openState() (err error) {
	if s.stateFile == nil {
		s.stateFile, err = openRegular(s.sp.root, stepName(s.step, stateSuffix), os.O_RDWR|os.O_CREATE)
	}
	return err
}

// save writes the state if it has changed. It ignores failures: the state is only a hint, and the
// next write of frames reports a full disk. The lock is held.
func (s *Stream) save() {
	if s.state == s.savedState || s.openState() != nil {
		return
	}
	if _, err := s.stateFile.WriteAt(s.encode(), 0); err == nil {
		s.savedState = s.state
	}
}

// Size returns the number of bytes of framed log in the stream, whether on disk or on the server.
func (s *Stream) Size() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size
}

// Acked returns how many bytes the server has, and how many of these it can no longer lose.
func (s *Stream) Acked() (received, durable int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.received, s.durable
}

func (s *Stream) summary() StepSummary {
	s.mu.Lock()
	defer s.mu.Unlock()
	return StepSummary{Step: s.step, Bytes: s.size, SHA256: hex.EncodeToString(s.sum.Sum(nil)), Truncated: s.truncated}
}

// append stores all of frames or nothing. It returns errNoSpace if the spool is at its limit and
// force is not set, or the disk's error. The caller may retry.
func (s *Stream) append(frames []byte, force bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.appendLocked(frames, force)
}

func (s *Stream) appendLocked(frames []byte, force bool) error {
	if s.cut >= 0 || s.abandoned != "" {
		// The server will never request these bytes.
		s.truncated = true
		s.save()
		return nil
	}
	n := int64(len(frames))
	if !s.sp.reserve(n, force) {
		return errNoSpace
	}
	seg, err := s.segment()
	if err == nil {
		_, err = seg.file.WriteAt(frames, segmentHeader+seg.size)
	}
	if err != nil {
		if seg != nil {
			// If truncating fails too, recover finds the end.
			_ = seg.file.Truncate(segmentHeader + seg.size)
		}
		s.sp.unreserve(n)
		return err
	}
	s.sum.Write(frames)
	seg.size += n
	s.size += n
	if s.ended {
		s.ended = false
		s.save()
	}
	pending := s.size - s.received
	if s.unsentSince.IsZero() {
		s.unsentSince = time.Now()
		s.sp.signal()
	} else if pending >= shipBytes && pending-n < shipBytes {
		s.sp.signal()
	}
	return nil
}

var zeros [batchBytes]byte

// tryRoom reports whether n more bytes, at most batchBytes, can be stored.
func (s *Stream) tryRoom(n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cut >= 0 || s.abandoned != "" {
		return true // nothing more is stored
	}
	if !s.sp.reserve(n, false) {
		return false
	}
	defer s.sp.unreserve(n)
	seg, err := s.segment()
	if err != nil {
		return false
	}
	_, err = seg.file.WriteAt(zeros[:n], segmentHeader+seg.size)
	// If truncating fails, recover detects that the zeros are not frames.
	return errors.Join(err, seg.file.Truncate(segmentHeader+seg.size)) == nil
}

func (s *Stream) segment() (*segment, error) {
	if n := len(s.segments); n > 0 && s.segments[n-1].size < s.sp.opts.SegmentBytes {
		return s.segments[n-1], nil
	}
	return s.roll(s.size)
}

// roll starts a new segment at the offset start. The lock is held.
func (s *Stream) roll(start int64) (*segment, error) {
	seg, err := createSegment(s.sp.root, s.step, start, s.sum)
	if err != nil {
		return nil, err
	}
	s.segments = append(s.segments, seg)
	keepSpare(s.sp.root)
	return seg, nil
}

// reclaim releases the segments that the server has stored durably or will never accept. If all is
// set, it includes the segment in use. The lock is held.
func (s *Stream) reclaim(all bool) {
	if n := len(s.segments); all && n > 0 && s.segments[n-1].size > 0 && !s.needed(s.segments[n-1]) {
		if _, err := s.roll(s.size); err != nil {
			return
		}
	}
	s.remove(s.needed)
}

// remove deletes all segments except the last one and those for which keep returns true. The lock
// is held.
func (s *Stream) remove(keep func(*segment) bool) {
	kept := s.segments[:0]
	for i, seg := range s.segments {
		if i == len(s.segments)-1 || keep(seg) {
			kept = append(kept, seg)
			continue
		}
		if seg.file != nil {
			_ = seg.file.Close()
		}
		if err := s.sp.root.Remove(seg.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.sp.opts.Log.WithError(err).WithField("step", s.step).Warn("cannot remove a part of the log that is no longer needed")
		}
		s.sp.release(seg.size)
	}
	clear(s.segments[len(kept):])
	s.segments = kept
}

// needed reports whether bytes of seg might still have to be shipped. The lock is held.
func (s *Stream) needed(seg *segment) bool {
	return seg.end() > s.durable && (s.cut < 0 || seg.start < s.cut) && s.abandoned == ""
}

// base returns the offset of the first byte that is still on disk. The lock is held.
func (s *Stream) base() int64 {
	if len(s.segments) == 0 {
		return s.size
	}
	return s.segments[0].start
}

// readAt fills p with the bytes from offset on, which must be on disk.
func (s *Stream) readAt(p []byte, offset int64) error {
	s.mu.Lock()
	segments := make([]segment, len(s.segments))
	for i, seg := range s.segments {
		segments[i] = *seg
	}
	s.mu.Unlock()
	for _, seg := range segments {
		in := offset - seg.start
		n := min(int64(len(p)), seg.size-in)
		if in < 0 || n <= 0 {
			continue
		}
		if _, err := seg.file.ReadAt(p[:n], segmentHeader+in); err != nil {
			return fmt.Errorf("reading %s: %w", seg.name, err)
		}
		p, offset = p[n:], offset+n
	}
	if len(p) > 0 {
		return fmt.Errorf("reading the log of step %d: bytes from %d on are not in the spool", s.step, offset)
	}
	return nil
}

func (s *Stream) closeFiles() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, seg := range s.segments {
		if seg.file != nil {
			errs = append(errs, seg.file.Close())
		}
	}
	if s.stateFile != nil {
		errs = append(errs, s.stateFile.Close())
	}
	return errors.Join(errs...)
}
