package kubernetes

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"workflowagent/internal/agent/executor"
)

// full is a writer on a disk without space.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, executor.ErrNoSpace }

func TestCopyTail(t *testing.T) {
	var copied bytes.Buffer
	if err := copyTail(&copied, strings.NewReader("spool")); err != nil || copied.String() != "spool" {
		t.Errorf("copied %q, %v", &copied, err)
	}
	// The agent repeats a copy after ErrNoSpace, but the output disappears together with the pod.
	if err := copyTail(full{}, strings.NewReader("spool")); !errors.Is(err, errTailSpace) || errors.Is(err, executor.ErrNoSpace) {
		t.Errorf("without space: %v", err)
	}
	if err := copyTail(io.Discard, iotest.ErrReader(io.ErrUnexpectedEOF)); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("after a broken stream: %v", err)
	}
}
