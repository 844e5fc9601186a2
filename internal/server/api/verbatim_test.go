package api_test

import (
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
)

func TestVerbatimCheckpoints(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixtureOn(t, db, options{})
		path := f.stack("dev")
		for _, kind := range []string{"update", "refresh", "destroy"} {
			u := f.start(path, kind)
			u.path = path + "/" + kind + u.path[len(path+"/update"):]
			send := func(sequence, resources int) answer {
				return u.send("PATCH", "/checkpointverbatim", map[string]any{"version": 3, "sequenceNumber": sequence, "untypedDeployment": state(resources)})
			}
			count := func(want int) {
				t.Helper()
				var c struct{ ResourceCount int }
				f.do("GET", path+"/resources/count", nil).want(200, &c)
				if c.ResourceCount != want {
					t.Errorf("after a checkpoint of %s, the stack has %d resources, want %d", kind, c.ResourceCount, want)
				}
			}
			send(1, 1).want(204, nil)
			send(2, 2).want(204, nil)
			count(2)
			send(2, 3).want(204, nil) // arrived twice
			send(1, 4).want(204, nil) // arrived late
			count(2)
			send(0, 1).want(400, nil)
			u.send("PATCH", "/checkpointverbatim", map[string]any{"version": 3, "sequenceNumber": 3}).want(400, nil)
			u.send("PATCH", "/checkpointverbatim", []byte(`{"sequenceNumber":3,`)).want(400, nil)
			send(3, 5).want(204, nil)
			u.send("POST", "/complete", map[string]string{"status": "succeeded"}).want(204, nil)
			send(4, 1).want(409, nil)
			count(5)
		}
		preview := f.start(path, "preview")
		preview.send("PATCH", "/checkpointverbatim", map[string]any{"sequenceNumber": 1, "untypedDeployment": state(1)}).want(403, nil)
	})
}
