package delivery

import (
	"errors"
	"fmt"
	"time"

	"workflowagent/internal/protocol"
)

// due returns how long the shipper can wait before it sends from this stream. The result is
// negative if the stream has nothing to send.
func (s *Stream) due(flushing bool, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	pending := s.size - s.received
	switch {
	case pending <= 0 || s.cut >= 0 || s.abandoned != "":
		return -1
	case flushing || s.ended || pending >= shipBytes || s.unsentSince.IsZero():
		return 0
	}
	return max(0, shipDelay-now.Sub(s.unsentSince))
}

// missing returns how many of the bytes below target the server can still lose, excluding those
// that it will never accept.
func (s *Stream) missing(target int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.abandoned != "" {
		return 0
	}
	if s.cut >= 0 {
		target = min(target, s.cut)
	}
	return max(0, target-s.durable)
}

func (s *Stream) unsent() (offset int64, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cut >= 0 || s.openSize >= 0 {
		// The server decides where a stream from an earlier process continues.
		return s.received, 0
	}
	n = int(min(s.size-s.received, maxRequest))
	if s.received+int64(n) == s.size {
		s.unsentSince = time.Time{}
	}
	return s.received, n
}

// fit returns the whole frames of a chunk that fit the server's limit. If none does, cut is true,
// and the stream ends here for the server.
func (s *Stream) fit(chunk []byte, offset int64) (_ []byte, cut bool) {
	if len(chunk) == 0 {
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.limit > 0 {
		chunk = chunk[:max(0, min(int64(len(chunk)), s.limit-offset))]
	}
	if chunk = chunk[:wholeFrames(chunk)]; len(chunk) > 0 {
		return chunk, false
	}
	s.cut = offset
	s.truncated = true
	s.reclaim(true)
	s.save()
	return nil, true
}

// acknowledge applies the response to a request with n bytes from offset on. gap means that the
// response was a [protocol.LogGapError]. taken reports whether the server accepted the bytes. An
// error means that the spool and the server no longer contain the same log.
func (s *Stream) acknowledge(ack protocol.LogAck, gap bool, offset int64, n int) (taken bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.save()
	if ack.Limit > 0 {
		s.limit = ack.Limit
	}
	received := max(0, ack.Received)
	if received > s.size {
		s.truncated = true
		received, err = s.serverIsAhead(received)
	}
	s.openSize = -1
	if received < s.base() {
		// The server lost bytes that it had reported as durable, and that the spool has discarded.
		err = fmt.Errorf("the server expects offset %d, but the spool begins at offset %d", received, s.base())
		s.abandon(err.Error())
		return true, err
	}
	s.received = received
	s.durable = min(max(s.durable, ack.Durable), received)
	s.reclaim(false)
	return !gap && (received > offset || n == 0 && received == offset), err
}

// abandon stops shipping and storing the stream. The lock is held.
func (s *Stream) abandon(why string) {
	s.abandoned = why
	s.truncated = true
	s.reclaim(true)
}

// serverIsAhead handles a server that has more bytes than the spool, for example after a machine
// crash that lost the end of the spool. It moves this process's bytes to the end of the server's
// bytes and returns the offset to continue with. The lock is held.
func (s *Stream) serverIsAhead(received int64) (int64, error) {
	mine := s.size - s.openSize
	if s.openSize < 0 || mine > maxRequest || received-s.size > s.sp.opts.Limit {
		return s.size, errors.New("the server has more of the log than was ever written")
	}
	tail := make([]byte, mine)
	if n := len(s.segments); n > 0 && mine > 0 {
		last := s.segments[n-1]
		if last.start > s.openSize {
			return s.size, errors.New("the server has more of the log than the spool")
		}
		if _, err := last.file.ReadAt(tail, segmentHeader+s.openSize-last.start); err != nil {
			return s.size, fmt.Errorf("moving the end of the log past the server's bytes: %w", err)
		}
	}
	if _, err := s.roll(received); err != nil {
		return s.size, fmt.Errorf("moving the end of the log past the server's bytes: %w", err)
	}
	s.size = received
	s.remove(func(*segment) bool { return false })
	if len(tail) > 0 {
		// The server's last frame might be a fragment, which the tail does not continue.
		tail = append(protocol.AppendFrame(nil, time.Now(), false, nil), tail...)
		if err := s.appendLocked(tail, true); err != nil {
			return received, err
		}
	}
	return received, errors.New("the end of the log in the spool was lost in a crash; the server has more of it")
}

// undelivered returns how many bytes the server has yet to receive, excluding those that it will
// never accept.
func (s *Stream) undelivered() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cut >= 0 || s.abandoned != "" {
		return 0
	}
	return s.size - s.received
}

// Progress returns how many bytes of framed log the spool has received, and how many of them the
// server has yet to receive. It may be called after Close.
func (sp *Spool) Progress() (written, pending int64) {
	for _, s := range sp.list() {
		written += s.Size()
		pending += s.undelivered()
	}
	return written, pending
}
