package harness

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/must"
)

// Leftovers fails the test if a job's container still exists on the engine a while after the last
// deployment has finished. The agent must still be running, because a stopped agent removes
// containers only after its next start. Leftovers also removes the containers, so that they do not
// disturb later tests with the same engine. If the test has already failed, it removes them at
// once.
func Leftovers(ctx context.Context, t *testing.T, engine *lab.Engine) {
	t.Helper()
	docker := must.Get(engine.Client())(t)
	defer docker.Close()
	failed, patience := t.Failed(), 2*time.Minute
	if failed {
		patience = 10 * time.Second
	}
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var names, ids []string
	jobs := client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("label", "workflowagent.kind")}
	err := Until(limited, func() (bool, error) {
		list, err := docker.ContainerList(limited, jobs)
		if err != nil {
			return false, err
		}
		names, ids = nil, nil
		for _, c := range list.Items {
			names = append(names, fmt.Sprintf("%s: %s, labels %v", c.Names, c.Status, c.Labels))
			ids = append(ids, c.ID)
		}
		return len(names) == 0, nil
	})
	if err == nil {
		return
	}
	if !failed {
		t.Errorf("containers were left behind: %q (%v)", names, err)
	}
	for _, id := range ids {
		if _, err := docker.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true}); err != nil && !errdefs.IsNotFound(err) {
			t.Error(err)
		}
	}
}
