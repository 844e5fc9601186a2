package docker

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"

	"workflowagent/internal/workflow"
)

// TestPullFailureNamesTheSetting checks that the owner of an image that exists only on the engine
// learns how to use it.
func TestPullFailureNamesTheSetting(t *testing.T) {
	ref, err := name.ParseReference("registry.invalid/team/program:1")
	if err != nil {
		t.Fatal(err)
	}
	err = pullFailure(ref, &workflow.Image{Reference: ref.String()}, login{}, errors.New("dial tcp: lookup registry.invalid: no such host"))
	for _, part := range []string{"registry.invalid/team/program:1", "cannot be reached", "pull_image: false"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not contain %q", err, part)
		}
	}
}
