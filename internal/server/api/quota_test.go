package api_test

import (
	"maps"
	"strings"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/storage/quota"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// TestQuota checks that a full organization starts nothing that stores more, that nothing is half
// written, that running work continues, and that space can be freed.
func TestQuota(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		l := newLabWith(t, db, options{quota: 20_000})
		const list = "/api/stacks/acme/proj/"
		deployments := l.deployable("dev")
		path := list + "dev"
		full := l.fixture.start(path, "update")
		full.send("PATCH", "/checkpoint", state(1)).want(204, nil)
		queued := l.deploy(deployments, "update")
		l.stack("other")
		running := l.fixture.start(list+"other", "update")

		l.do("POST", path+"/import", state(3)).want(409, nil) // the update holds the stack
		full.send("POST", "/complete", map[string]any{"status": "succeeded"}).want(204, nil)
		l.do("POST", path+"/import", state(2)).want(200, nil)
		l.use("acme", 20_000)

		refused := func(method, path string, body any) {
			t.Helper()
			l.do(method, path, body).want(403, nil).says("organization 'acme' has reached its quota")
		}
		for _, kind := range []string{"update", "preview", "refresh"} {
			refused("POST", path+"/"+kind, program())
		}
		refused("POST", deployments, map[string]any{"operation": "update"})
		refused("POST", path+"/import", state(3))
		refused("POST", "/api/stacks/acme/proj", map[string]any{"stackName": "new", "state": state(1)})
		l.do("GET", list+"new", nil).want(404, nil)
		var resources struct {
			Deployment struct{ Resources []any }
		}
		l.do("GET", path+"/export", nil).want(200, &resources)
		if n := len(resources.Deployment.Resources); n != 2 {
			t.Errorf("after refused imports, the state has %d resources, want 2", n)
		}

		running.send("PATCH", "/checkpoint", state(5)).want(204, nil)
		running.send("POST", "/complete", map[string]any{"status": "succeeded"}).want(204, nil)
		_, jc := l.start("a")
		definition, err := jc.Definition(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := l.details(deployments, queued).Status; got != "running" {
			t.Errorf("the queued deployment is %s", got)
		}
		l.send(call{Method: "POST", Path: path + "/update", Body: program(), Auth: "token " + definition.Env["PULUMI_ACCESS_TOKEN"]}).want(200, nil)
		l.do("POST", path+"/import", state(1)).want(200, nil) // pulumi state delete
		l.use("acme", 40_000)
		refused("POST", path+"/import", state(1)) // the same again and again would never end
		l.use("acme", 20_000)
		l.do("PATCH", path+"/tags", map[string]string{"a": "b"}).want(204, nil)
		l.stack("empty")
		l.deploy(list+"dev/deployments", "destroy")
		destroy := l.fixture.start(path, "destroy")
		destroy.send("PATCH", "/checkpoint", state(0)).want(204, nil)
		destroy.send("POST", "/complete", map[string]any{"status": "succeeded"}).want(204, nil)
		l.use("acme", 0)
		l.fixture.start(path, "update")
	})
}

// TestQuotaCountsLongTexts sends what a client can store without starting anything. The quota refuses it,
// but neither what destroys stacks nor what jobs need.
func TestQuotaCountsLongTexts(t *testing.T) {
	l := newLabWith(t, storetest.SQLite(t), options{quota: 1 << 20})
	deployments := l.deployable("dev")
	path := strings.TrimSuffix(deployments, "/deployments")
	long := strings.Repeat("x", 400<<10)
	large := program()
	large["config"] = map[string]any{"proj:a": map[string]any{"string": long}}
	settings := map[string]any{"operationContext": map[string]any{"environmentVariables": map[string]string{"A": long}}}
	deployment := maps.Clone(settings)
	deployment["operation"] = "update"
	l.deploy(deployments, "update") // for the job below
	if err := quota.New(l.db, storetest.Log(), 0).Measure(t.Context()); err != nil {
		t.Fatal(err)
	}

	l.do("POST", path+"/update", large).want(200, nil)
	l.do("POST", deployments, deployment).want(202, nil)
	refused := func(method, path string, body any) {
		t.Helper()
		l.do(method, path, body).want(403, nil).says("organization 'acme' has reached its quota")
	}
	for range 2 {
		refused("POST", path+"/update", large)
		refused("POST", path+"/preview", large)
		refused("POST", deployments, deployment)
		refused("PUT", deployments+"/settings", settings)
		refused("POST", deployments+"/schedules", map[string]any{"scheduleCron": "0 0 * * *", "request": deployment})
	}
	l.do("POST", path+"/update", program()).want(200, nil)

	var ids [2]struct{ UpdateID string }
	l.do("POST", path+"/destroy", large).want(200, &ids[0])
	_, jc := l.start("a")
	definition, err := jc.Definition(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	job := "token " + definition.Env["PULUMI_ACCESS_TOKEN"]
	l.send(call{Method: "POST", Path: path + "/update", Body: large, Auth: job}).want(200, &ids[1])
	for i, want := range []int{100, len(long)} {
		stored, err := store.Read(t.Context(), l.db, func(tx *store.Tx) (string, error) { return tx.Program(ids[i].UpdateID) })
		if err != nil || len(stored) < want || want < 4096 && len(stored) > 4096 || !strings.Contains(stored, `"git.head":"abc"`) {
			t.Errorf("the program of update %d has %d bytes, %v: %.300s", i, len(stored), err, stored)
		}
	}
	deployment["operation"] = "destroy"
	l.do("POST", deployments, deployment).want(202, nil)
}

// use changes what an organization is known to store.
func (f *fixture) use(org string, bytes int64) {
	f.t.Helper()
	err := f.db.Write(f.t.Context(), scope.Server(), func(tx *store.Tx) error {
		o, err := tx.OrganizationByName(org)
		if err != nil {
			return err
		}
		s, err := tx.Storage(o.ID)
		if err != nil {
			return err
		}
		s.Measured = bytes
		return tx.SaveStorage(s)
	})
	if err != nil {
		f.t.Fatal(err)
	}
}
