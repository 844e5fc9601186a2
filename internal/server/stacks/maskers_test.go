package stacks

import (
	"context"
	"fmt"
	"testing"

	"workflowagent/internal/redact"
	"workflowagent/internal/server/store"
)

// TestSetsOfSecretsAreBounded lets deployments begin many updates: one set of
// secrets serves those of one deployment, and only some sets are kept.
func TestSetsOfSecretsAreBounded(t *testing.T) {
	made := 0
	value := "hunter2-secret"
	s := &Service{}
	s.Follow(Hooks{KnownSecrets: func(context.Context, string) ([]redact.Secret, error) {
		made++
		return []redact.Secret{{Name: "a", Value: value}}, nil
	}})
	mask := func(deployment int, update string) {
		t.Helper()
		set, err := s.masker(t.Context(), store.Update{ID: update, DeploymentID: fmt.Sprint(deployment), Status: string(Running)})
		if err != nil || set.String(value) != redact.Marker {
			t.Fatalf("the secret is not masked: %v", err)
		}
	}
	for i := range 100 {
		mask(1, fmt.Sprint(i))
	}
	if made != 1 {
		t.Errorf("%d sets were made for the updates of one deployment", made)
	}
	for i := range 2 * maxMaskers {
		mask(i, "u")
	}
	if n := len(s.maskers.sets); n > maxMaskers {
		t.Errorf("%d sets are kept, want %d at most", n, maxMaskers)
	}
	for i := range 10 {
		s.maskers.made(s.maskers.of(fmt.Sprint("large ", i)), maxMaskerBytes/4)
	}
	if n := len(s.maskers.sets); n > maxMaskers-6 || n < 4 {
		t.Errorf("%d sets are kept beside four that are large", n)
	}
	s.maskers.made(s.maskers.of("huge"), 2*maxMaskerBytes)
	if n := len(s.maskers.sets); n != 1 {
		t.Errorf("%d sets are kept beside a huge one", n)
	}
}
