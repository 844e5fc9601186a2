package protocol

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"
	"unicode/utf8"
)

// The raw log of a step is a sequence of frames, one per line of text:
//
//	2006-01-02T15:04:05.000000Z text of the line\n
//
// A frame consists of a UTC timestamp of fixed width, one marker byte, the text and a newline. The
// marker is a space if the text ends its line, and a plus sign if the next frame continues the
// line. The text can contain any byte except newline. Offsets into a log count the bytes of these
// frames, masked and uncompressed.
const (
	// MaxFrameText limits the text of one frame, in bytes. Longer lines are split into fragments.
	MaxFrameText = 64 << 10

	// FrameOverhead is the size of a frame's timestamp, marker and newline, in bytes.
	FrameOverhead = frameHeader + 1

	frameLayout = "2006-01-02T15:04:05.000000Z"
	frameTime   = len(frameLayout)
	frameHeader = frameTime + 1

	markerLine     = ' '
	markerFragment = '+'
)

// ErrBadFrame is returned for bytes that cannot begin a frame, whatever follows them.
var ErrBadFrame = errors.New("not a log frame")

// Frame is one decoded frame of a raw log.
type Frame struct {
	// Time is the time at which the text was read from the job, in UTC, to the microsecond.
	Time time.Time
	// Fragment means that the next frame continues this frame's line.
	Fragment bool
	// Text is the text without the newline. It aliases the parsed bytes.
	Text []byte
}

// FrameStamp is a formatted frame timestamp. Lines that arrive together share one.
type FrameStamp [frameTime]byte

// NewFrameStamp returns the timestamp for t, clamped to the years 0 to 9999.
func NewFrameStamp(t time.Time) (s FrameStamp) {
	switch t = t.UTC(); {
	case t.Year() < 0:
		copy(s[:], "0000-01-01T00:00:00.000000Z")
	case t.Year() > 9999:
		copy(s[:], "9999-12-31T23:59:59.999999Z")
	default:
		copy(s[:], t.Format(frameLayout))
	}
	return s
}

// AppendFrame appends text to dst as a frame with time t. See [FrameStamp.AppendFrame].
func AppendFrame(dst []byte, t time.Time, fragment bool, text []byte) []byte {
	stamp := NewFrameStamp(t)
	return stamp.AppendFrame(dst, fragment, text)
}

// AppendFrame appends text to dst as a frame and returns the extended slice. If fragment is set,
// the next frame continues the line.
//
// A newline in text ends a line, and a line longer than [MaxFrameText] is cut into fragments. So
// dst remains a valid log, whatever text contains.
func (s *FrameStamp) AppendFrame(dst []byte, fragment bool, text []byte) []byte {
	for {
		part, marker, last := text, byte(markerLine), true
		if fragment {
			marker = markerFragment
		}
		limit := min(len(text), MaxFrameText+1)
		if i := bytes.IndexByte(text[:limit], '\n'); i >= 0 {
			part, marker, last = text[:i], markerLine, false
			text = text[i+1:]
		} else if len(text) > MaxFrameText {
			cut := FrameCut(text)
			part, marker, last = text[:cut], markerFragment, false
			text = text[cut:]
		}
		dst = append(dst, s[:]...)
		dst = append(dst, marker)
		dst = append(dst, part...)
		dst = append(dst, '\n')
		if last {
			return dst
		}
	}
}

// FrameCut returns the length of the first fragment of text, which is longer than a frame. The
// fragment ends with a whole character, because readers decode each frame by itself.
func FrameCut(text []byte) int {
	for cut := MaxFrameText; cut > MaxFrameText-utf8.UTFMax; cut-- {
		if utf8.RuneStart(text[cut]) {
			return cut
		}
	}
	return MaxFrameText // no text
}

// ParseFrame decodes the frame at the start of b and returns it with its length in bytes. The
// frame's text aliases b.
//
// It returns [io.ErrUnexpectedEOF] if b is the beginning of an incomplete frame, as after a torn
// write, and an error that wraps [ErrBadFrame] if b does not start with a frame. It reads no
// further than the longest possible frame.
func ParseFrame(b []byte) (Frame, int, error) {
	const shape = "0000-00-00T00:00:00.000000Z"
	for i := range min(len(b), frameTime) {
		if c := b[i]; c != shape[i] && (shape[i] != '0' || c < '0' || c > '9') {
			return Frame{}, 0, fmt.Errorf("%w: byte %d is not part of a timestamp", ErrBadFrame, i)
		}
	}
	if len(b) < frameTime {
		return Frame{}, 0, io.ErrUnexpectedEOF
	}
	t, ok := parseStamp(b)
	if !ok {
		return Frame{}, 0, fmt.Errorf("%w: the time does not exist", ErrBadFrame)
	}
	if len(b) == frameTime {
		return Frame{}, 0, io.ErrUnexpectedEOF
	}
	if b[frameTime] != markerLine && b[frameTime] != markerFragment {
		return Frame{}, 0, fmt.Errorf("%w: unknown marker after the timestamp", ErrBadFrame)
	}
	text := b[frameHeader:min(len(b), frameHeader+MaxFrameText+1)]
	n := bytes.IndexByte(text, '\n')
	if n < 0 {
		if len(text) > MaxFrameText {
			return Frame{}, 0, fmt.Errorf("%w: more than %d bytes of text", ErrBadFrame, MaxFrameText)
		}
		return Frame{}, 0, io.ErrUnexpectedEOF
	}
	return Frame{Time: t, Fragment: b[frameTime] == markerFragment, Text: text[:n:n]}, frameHeader + n + 1, nil
}

// parseStamp returns the time at the start of b, which has the shape of a timestamp. It is several
// times faster than [time.Parse].
func parseStamp(b []byte) (time.Time, bool) {
	number := func(from, to int) (n int) {
		for _, c := range b[from:to] {
			n = 10*n + int(c-'0')
		}
		return n
	}
	month, day := time.Month(number(5, 7)), number(8, 10)
	hour, minute, second := number(11, 13), number(14, 16), number(17, 19)
	t := time.Date(number(0, 4), month, day, hour, minute, second, 1000*number(20, 26), time.UTC)
	// Date normalizes days and months that do not exist.
	return t, t.Month() == month && t.Day() == day && hour < 24 && minute < 60 && second < 60
}
