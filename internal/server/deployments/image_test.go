package deployments_test

import (
	"strings"
	"testing"
)

// TestRegistryPasswordOfAFile checks that the newline at the end of a file is no part of the password.
func TestRegistryPasswordOfAFile(t *testing.T) {
	p, st := newPlaces(t)
	p.must(p.put(st, `{"executorContext":{"executorImage":{"reference":"registry.example/a:1",
		"credentials":{"username":"u","password":{"secret":"the registry\r\n"}}}}}`))
	id, err := p.ask(st, `{"operation":"update"}`)
	p.must(err)
	if got := p.opened(id); !strings.Contains(got, "the registry") || strings.Contains(got, `the registry\r`) || strings.Contains(got, "the registry\r") {
		t.Errorf("the job gets %q", got)
	}
}
