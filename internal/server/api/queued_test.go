package api_test

import (
	"strings"
	"testing"

	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// TestQueuedDeployment reads a waiting deployment as an administrator, and as a collaborator, who
// may read the stack but not the organization's pools.
func TestQueuedDeployment(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		path := l.deployable("dev")
		ann := l.person("ann", "acme", "stack-collaborator")
		l.do("PUT", strings.TrimSuffix(path, "/deployments")+"/collaborators/ann", map[string]any{"permission": 101}).want(204, nil)
		l.nothing("a")
		l.disconnect("a")
		id := l.deploy(path, "update")

		d := l.details(path, id)
		q := d.Queued
		if q == nil || q.Reason != "no-agent" || q.Message != d.Message || len(q.Pools) != 1 || len(q.Agents) != 1 {
			t.Fatalf("the administrator reads %+v", q)
		}
		if p := q.Pools[0]; p.ID != l.pool || p.Name != "p1" || p.Agents != 1 || p.ConnectedAgents != 0 {
			t.Errorf("the pool is %+v", p)
		}
		if a := q.Agents[0]; a.ID != "a" || a.Hostname != "host-a" || a.Connected || a.Running != 0 || !strings.Contains(a.Why, "not connected") {
			t.Errorf("the agent is %+v", a)
		}
		var seen details
		l.send(call{Method: "GET", Path: path + "/" + id, Auth: ann}).want(200, &seen)
		if q := seen.Queued; q == nil || q.Reason != "no-agent" || q.Message == "" || q.Pools != nil || q.Agents != nil {
			t.Errorf("the collaborator reads %+v, want neither pools nor agents", q)
		}
		l.claim("a")
		if q := l.details(path, id).Queued; q != nil {
			t.Errorf("a claimed deployment is queued: %+v", q)
		}
	})
}

// disconnect ends an agent's session, as a lost connection does.
func (l *lab) disconnect(name string) {
	l.t.Helper()
	err := l.db.Write(l.t.Context(), scope.Server(), func(tx *store.Tx) error {
		a, err := tx.Agent(l.pool, name)
		if err == nil {
			_, err = tx.EndSession(a)
		}
		return err
	})
	if err != nil {
		l.t.Fatal(err)
	}
}
