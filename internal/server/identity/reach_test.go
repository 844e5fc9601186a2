package identity

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/server/store"
)

// TestReachOfJobs tests that a job lists its own stack only, regardless of its requester, so that lists need no separate condition.
func TestReachOfJobs(t *testing.T) {
	job := Principal{
		Kind: KindJob, Org: store.Organization{ID: "o"}, StackID: "s", User: store.User{ID: "u", SiteAdmin: true},
		Roles: map[string]string{"o": RoleAdmin, "other": RoleAdmin}, Admin: true,
	}
	own := store.Reach{One: []string{"o"}, StackID: "s"}
	for _, tt := range []struct {
		orgs []string
		want store.Reach
	}{{nil, own}, {[]string{"o"}, own}, {[]string{"other", "o"}, own}, {[]string{"other"}, store.Reach{}}} {
		if diff := cmp.Diff(tt.want, job.Reach(tt.orgs...)); diff != "" {
			t.Errorf("the reach of a job in %q (-want +got):\n%s", tt.orgs, diff)
		}
	}
	if diff := cmp.Diff(store.Reach{}, job.ReachOfDeleted("o")); diff != "" {
		t.Errorf("the deleted stacks that a job restores (-want +got):\n%s", diff)
	}
}
