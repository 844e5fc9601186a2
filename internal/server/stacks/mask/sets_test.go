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
	made, grown := 0, int64(0)
	value := "hunter2-secret"
	s := NewSets()
	find := func(context.Context, string) ([]redact.Secret, error) {
		made++
		return []redact.Secret{{Name: "a", Value: value}}, nil
	}
	mask := func(deployment int) {
		t.Helper()
		set, err := s.Of(t.Context(), fmt.Sprint(deployment), grown, find)
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
	made = 0
	mask(2*maxSets - 1)
	mask(0)
	if made != 1 {
		t.Errorf("%d sets were made for a recent deployment and one that was dropped, want 1", made)
	}
	k := s.sets.Get("huge")
	s.sets.Resize("huge", k, 2*maxBytes)
	mask(0)
	if made != 2 {
		t.Error("a set is kept next to a huge one")
	}
	grown, made = 1, 0 // its job has opened an environment
	mask(0)
	mask(0)
	if made != 1 {
		t.Errorf("%d sets were made for a deployment that has grown once", made)
	}
}
