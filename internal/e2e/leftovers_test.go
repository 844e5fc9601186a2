package e2e

import (
	"context"
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
		names = nil
		for _, c := range list.Items {
			names = append(names, c.Names...)
		}
		return len(names) == 0, err
	})
	if err != nil {
		t.Errorf("containers were left behind: %q (%v)", names, err)
	}
}
