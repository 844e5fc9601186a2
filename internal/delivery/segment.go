package delivery

import (
	"bytes"
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"strconv"
	"strings"

	"workflowagent/internal/protocol"
)

// A segment file begins with one line of text, padded to this size. The line contains the state of
// the stream's SHA-256 at the start of the segment. So the hash of a whole stream can be computed
// from its last segment, without the earlier ones.
const segmentHeader = 512

const segmentMagic = "workflow log spool, segment 1"

// maxOffset limits offsets. It is far above the size of any log, and keeps sums of offsets from
// overflowing.
const maxOffset = 1 << 50

type segment struct {
	name  string
	start int64    // offset of the segment's first byte in the stream
	size  int64    // number of bytes of frames
	file  *os.File // nil until it is needed
}

func (seg *segment) end() int64 { return seg.start + seg.size }

func segmentName(step int, start int64) string {
	return fmt.Sprintf("step-%04d-%016d.log", step, start)
}

func parseSegmentName(name string) (step int, start int64, ok bool) {
	if _, err := fmt.Sscanf(name, "step-%d-%d.log", &step, &start); err != nil {
		return 0, 0, false
	}
	return step, start, step >= 0 && step <= maxStep && start >= 0 && start <= maxOffset && name == segmentName(step, start)
}

// unfinished is the suffix of a segment whose header is incomplete.
const unfinished = ".new"

// createSegment creates the file of a segment that begins at start with the given hash. The file
// gets its final name only when its header is complete. So a process that dies earlier leaves
// nothing that looks like lost frames.
func createSegment(root *os.Root, step int, start int64, sum hash.Hash) (*segment, error) {
	state, err := sum.(encoding.BinaryMarshaler).MarshalBinary()
	if err != nil {
		return nil, fmt.Errorf("saving the hash state: %w", err)
	}
	seg := &segment{name: segmentName(step, start), start: start}
	header := fmt.Sprintf("%s start=%d sha256=%x", segmentMagic, start, state)
	seg.file, err = headerFile(root, seg.name+unfinished, fmt.Appendf(nil, "%-*s\n", segmentHeader-1, header))
	if err != nil {
		return nil, err
	}
	if err := root.Rename(seg.name+unfinished, seg.name); err != nil {
		_ = seg.file.Close()
		_ = root.Remove(seg.name + unfinished)
		return nil, err
	}
	return seg, nil
}

// spareName is the name of a spare file as large as a header. On a full disk, it becomes the
// segment that replaces one whose frames the server has. Without it, the spool could neither begin
// the new segment nor release the old one.
const spareName = "spare"

func keepSpare(root *os.Root) {
	f, err := openRegular(root, spareName, os.O_WRONLY|os.O_CREATE)
	if err != nil {
		return // on a full disk, the spool waits until other programs free space
	}
	if info, err := f.Stat(); err == nil && info.Size() < segmentHeader {
		_, err = f.WriteAt(make([]byte, segmentHeader), 0)
		if err != nil {
			_ = root.Remove(spareName)
		}
	}
	_ = f.Close()
}

func headerFile(root *os.Root, name string, header []byte) (*os.File, error) {
	f, err := openRegular(root, name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err == nil {
		if _, err = f.WriteAt(header, 0); err == nil {
			return f, nil
		}
		_ = f.Close()
		_ = root.Remove(name)
	}
	if root.Rename(spareName, name) != nil {
		return nil, err
	}
	f, serr := openRegular(root, name, os.O_RDWR)
	if serr != nil {
		_ = root.Remove(name)
		return nil, err
	}
	if _, serr = f.WriteAt(header, 0); serr == nil {
		serr = f.Truncate(segmentHeader)
	}
	if serr != nil {
		_ = f.Close()
		_ = root.Remove(name)
		return nil, err
	}
	return f, nil
}

func (seg *segment) open(root *os.Root) (err error) {
	if seg.file == nil {
		seg.file, err = openRegular(root, seg.name, os.O_RDWR)
	}
	return err
}

func (seg *segment) readHeader() (hash.Hash, error) {
	var line [segmentHeader]byte
	if _, err := seg.file.ReadAt(line[:], 0); err != nil {
		return nil, fmt.Errorf("reading the header of %s: %w", seg.name, err)
	}
	rest, ok := strings.CutPrefix(string(line[:]), segmentMagic+" start="+strconv.FormatInt(seg.start, 10)+" sha256=")
	if !ok {
		return nil, fmt.Errorf("%s does not begin with the header of a segment", seg.name)
	}
	state, err := hex.DecodeString(strings.TrimSpace(rest))
	if err != nil {
		return nil, fmt.Errorf("reading the header of %s: %w", seg.name, err)
	}
	sum := sha256.New()
	if err := sum.(encoding.BinaryUnmarshaler).UnmarshalBinary(state); err != nil {
		return nil, fmt.Errorf("reading the header of %s: %w", seg.name, err)
	}
	return sum, nil
}

// recover finds the end of the last whole frame, truncates the bytes that a crash left after it,
// and adds the frames to sum. It reports whether the last frame is a fragment.
func (seg *segment) recover(sum hash.Hash) (midLine bool, err error) {
	var (
		frames = io.NewSectionReader(seg.file, segmentHeader, maxOffset)
		buf    = make([]byte, 1<<20)
		held   = 0
	)
	seg.size = 0
	for {
		n, rerr := frames.Read(buf[held:])
		if rerr != nil && !errors.Is(rerr, io.EOF) {
			return false, fmt.Errorf("reading %s: %w", seg.name, rerr)
		}
		held += n
		whole := 0
		var perr error
		for {
			frame, n, err := protocol.ParseFrame(buf[whole:held])
			if err != nil {
				perr = err
				break
			}
			whole += n
			midLine = frame.Fragment
		}
		sum.Write(buf[:whole])
		seg.size += int64(whole)
		held = copy(buf, buf[whole:held])
		// A whole frame always fits the buffer, so an incomplete or invalid one at the end of
		// the file was torn.
		if rerr != nil || errors.Is(perr, protocol.ErrBadFrame) {
			break
		}
	}
	if err := seg.file.Truncate(segmentHeader + seg.size); err != nil {
		return false, fmt.Errorf("removing a torn frame from %s: %w", seg.name, err)
	}
	return midLine, nil
}

func wholeFrames(b []byte) int { return bytes.LastIndexByte(b, '\n') + 1 }
