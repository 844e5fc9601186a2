package program

import (
	"errors"
	"fmt"
	"testing"
)

func TestResult(t *testing.T) {
	broken := errors.New("broken")
	for _, tt := range []struct {
		name string
		err  error
		code int
		line string
	}{
		{"no error", Exit(0, nil), 0, ""},
		{"an error without a code", Exit(0, broken), 1, "error: broken"},
		{"a code", Exit(7, nil), 7, ""},
		{"both, wrapped", fmt.Errorf("running: %w", Exit(7, broken)), 7, "error: running: broken"},
	} {
		if code, line := Result(tt.err); code != tt.code || line != tt.line {
			t.Errorf("%s: got %d, %q; want %d, %q", tt.name, code, line, tt.code, tt.line)
		}
	}
}

func TestVersion(t *testing.T) {
	if got := Version("v1.2.3"); got != "v1.2.3" {
		t.Errorf("a release has the version %s", got)
	}
	if got := Version(""); len(got) < len("v0.0.0-dev") || got[:10] != "v0.0.0-dev" {
		t.Errorf("a build without a version has the version %s", got)
	}
}
