package delivery

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"workflowagent/internal/sys/boundedfile"
	"workflowagent/internal/sys/filelock"
)

// stateSize is the fixed size of a state file. One system call overwrites the file in place, so a
// crash cannot tear it.
const stateSize = 256

const stateFormat = "workflow log spool, state 1 received=%d durable=%d cut=%d ended=%t truncated=%t"

// state is the data that a stream stores in addition to its frames. It is a hint: if it is lost,
// the shipper sends the spool again, and the server's response corrects the state.
type state struct {
	received  int64 // bytes on the server
	durable   int64 // bytes that the server can no longer lose
	cut       int64 // offset at which the server's limit ends the stream, or -1
	ended     bool
	truncated bool
}

// Suffixes of the files of a step other than its segments; see parseStepName.
const (
	stateSuffix = ".state"
	marksSuffix = ".lines"
)

func stepName(step int, suffix string) string { return fmt.Sprintf("step-%04d", step) + suffix }

func parseStepName(name, suffix string) (step int, ok bool) {
	if _, err := fmt.Sscanf(name, "step-%d"+suffix, &step); err != nil {
		return 0, false
	}
	return step, step >= 0 && step <= maxStep && name == stepName(step, suffix)
}

func (st state) encode() []byte {
	text := fmt.Sprintf(stateFormat, st.received, st.durable, st.cut, st.ended, st.truncated)
	return []byte(fmt.Sprintf("%-*s\n", stateSize-1, text))
}

func readState(f *os.File) (st state, ok bool, err error) {
	b := make([]byte, stateSize)
	if _, err := f.ReadAt(b, 0); err != nil {
		if errors.Is(err, io.EOF) {
			return state{}, false, nil
		}
		return state{}, false, fmt.Errorf("reading the log's state: %w", err)
	}
	_, err = fmt.Sscanf(strings.TrimSpace(string(b)), stateFormat, &st.received, &st.durable, &st.cut, &st.ended, &st.truncated)
	if err != nil || st.durable < 0 || st.received < st.durable || st.received > maxOffset || st.cut < -1 {
		return state{}, false, nil //nolint:nilerr // a torn state file counts as missing; the server's response replaces it
	}
	return st, true, nil
}

// MaxCopy bounds the total size of the files of a spool with the default limit, in bytes. It covers
// frames up to the limit, one write beyond it, headers and other small files.
const MaxCopy = defaultLimit + defaultSegmentBytes

// IsFileName reports whether a file with this name is needed to continue a spool elsewhere. The
// directory can belong to a job, which can create any file there.
func IsFileName(name string) bool {
	_, _, isSegment := parseSegmentName(name)
	_, isState := parseStepName(name, stateSuffix)
	_, isMarks := parseStepName(name, marksSuffix)
	return isSegment || isState || isMarks
}

func lockFile(root *os.Root, name string) (*filelock.Lock, error) {
	f, err := openRegular(root, name, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	lock, err := filelock.Try(f)
	if _, held := errors.AsType[*filelock.HeldError](err); held {
		return nil, fmt.Errorf("%w: %w", ErrInUse, err)
	}
	return lock, err
}

// readable are the permissions with which other users read a spool; see [Options].
const readable fs.FileMode = 0o044

// share makes a file readable for other users if they can read the spool's directory.
func share(root *os.Root, f *os.File, info fs.FileInfo) error {
	dir, err := root.Stat(".")
	if err != nil || dir.Mode()&readable == 0 || info.Mode()&readable == readable {
		return err
	}
	return f.Chmod(0o600 | readable)
}

// openRegular opens a spool file. It returns an error unless the file is a regular file, because a
// job could have created a pipe to block the agent.
func openRegular(root *os.Root, name string, flag int) (*os.File, error) {
	f, info, err := boundedfile.OpenIn(root, name, flag)
	if err != nil || flag&os.O_CREATE == 0 {
		return f, err
	}
	if err := share(root, f, info); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("opening %s: %w", name, err)
	}
	return f, nil
}
