package guard

import (
	"errors"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	want := errors.New("failed")
	if err := Run(func() error { return want }); !errors.Is(err, want) {
		t.Errorf("the error is %v, want %v", err, want)
	}
	err := Run(func() error {
		return errors.New([]string{}[len(want.Error())])
	})
	if err == nil || !strings.Contains(err.Error(), "index out of range") || !strings.Contains(err.Error(), "guard_test.go") {
		t.Errorf("the error of a panic is %v", err)
	}
}
