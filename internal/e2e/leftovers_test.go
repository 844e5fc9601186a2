package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"workflowagent/internal/lab"
)

// leftovers fails the test if a container is left on the engine a while after
// the last deployment ended.
func leftovers(ctx context.Context, t *testing.T, engine *lab.Engine) {
	t.Helper()
	docker, err := engine.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer docker.Close()
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var names []string
	err = until(ctx, func() (bool, error) {
		list, err := docker.ContainerList(ctx, client.ContainerListOptions{All: true})
		if err != nil {
			return false, err
		}
		names = nil
		for _, c := range list.Items {
			names = append(names, fmt.Sprintf("%s: %s, labels %v", c.Names, c.Status, c.Labels))
		}
		return len(names) == 0, nil
	})
	if err != nil {
		t.Errorf("containers were left behind: %q (%v)", names, err)
	}
}
