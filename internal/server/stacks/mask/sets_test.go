package mask

import (
	"context"
	"fmt"
	"testing"

	"workflowagent/internal/redact"
)

// TestSetsOfSecretsAreBounded checks that the updates of a deployment share a set, and that the
// number and size of cached sets are bounded.
func TestSetsOfSecretsAreBounded(t *testing.T) {
	made := 0
	value := "hunter2-secret"
	var s Sets
	find := func(context.Context, string) ([]redact.Secret, error) {
		made++
		return []redact.Secret{{Name: "a", Value: value}}, nil
	}
	mask := func(deployment int) {
		t.Helper()
		set, err := s.Of(t.Context(), fmt.Sprint(deployment), find)
		if err != nil || set.String(value) != redact.Marker {
			t.Fatalf("the secret is not masked: %v", err)
		}
	}
	for range 100 {
		mask(1)
	}
	if made != 1 {
		t.Errorf("%d sets were made for the updates of one deployment", made)
	}
	for i := range 2 * maxSets {
		mask(i)
	}
	if n := len(s.sets); n > maxSets {
		t.Errorf("%d sets are kept, want %d at most", n, maxSets)
	}
	for i := range 10 {
		s.made(s.entry(fmt.Sprint("large ", i)), maxBytes/4)
	}
	if n := len(s.sets); n > maxSets-6 || n < 4 {
		t.Errorf("%d sets are kept next to four that are large", n)
	}
	s.made(s.entry("huge"), 2*maxBytes)
	if n := len(s.sets); n != 1 {
		t.Errorf("%d sets are kept next to a huge one", n)
	}
}
