package runner

import (
	"bytes"
	"strings"
	"testing"

	"workflowagent/internal/protocol"
)

func TestEchoIsBounded(t *testing.T) {
	var out bytes.Buffer
	e := newEcho(&out)
	line := strings.Repeat("x", 1<<20-1) + "\n"
	for range protocol.MaxEcho>>20 + 10 {
		if n, err := e.Write([]byte(line[:100] + "\n" + line)); n != len(line)+101 || err != nil {
			t.Fatalf("Write: %d, %v", n, err)
		}
	}
	if out.Len() > protocol.MaxEcho+1000 {
		t.Errorf("%d bytes were written", out.Len())
	}
	last := out.String()[out.Len()-200:]
	if !strings.Contains(last, "\nThe copy of the job's output ends here") || strings.Count(out.String(), "ends here") != 1 {
		t.Errorf("the output ends with %q", last)
	}
}
