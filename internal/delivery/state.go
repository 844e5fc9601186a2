package delivery

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// stateSize is fixed: a crash cannot tear a state file that one system call overwrites in
// place.
const stateSize = 256

const stateFormat = "workflow log spool, state 1 received=%d durable=%d cut=%d ended=%t truncated=%t"

// state is what a stream stores besides its frames. It is a hint: if it is lost, the shipper
// sends the spool again, and the server corrects that.
type state struct {
	received  int64 // bytes on the server
	durable   int64 // bytes that it can no longer lose
	cut       int64 // where the server's limit ends the stream, else -1
	ended     bool
	truncated bool
}

func stateName(step int) string { return fmt.Sprintf("step-%04d.state", step) }

func parseStateName(name string) (step int, ok bool) {
	if _, err := fmt.Sscanf(name, "step-%d.state", &step); err != nil {
		return 0, false
	}
	return step, step >= 0 && step <= maxStep && name == stateName(step)
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
		return state{}, false, fmt.Errorf("reading the state of the log: %w", err)
	}
	_, err = fmt.Sscanf(strings.TrimSpace(string(b)), stateFormat, &st.received, &st.durable, &st.cut, &st.ended, &st.truncated)
	if err != nil || st.durable < 0 || st.received < st.durable || st.received > maxOffset || st.cut < -1 {
		return state{}, false, nil //nolint:nilerr // a torn state file is no state; the server's answer replaces it
	}
	return st, true, nil
}
