package browser

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/protocol"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/workflow"
)

// TestAgents shows pools, a pool and an agent as their drawing does, with agents in all states.
func TestAgents(t *testing.T) {
	w := newTown(t)
	for _, name := range []string{"web/prod-ap", "web/prod-eu", "data-warehouse/staging", "ml/train"} {
		project, stack, _ := strings.Cut(name, "/")
		w.Stack(project, stack)
	}
	pools := map[string]string{}
	for _, p := range [][2]string{{"gpu", "Hosts with GPUs in eu-west " + hostile}, {"default", "Every stack without a pool of its own"}, {"production", "May reach production accounts"}, {"new", ""}} {
		var made struct{ ID, TokenValue string }
		w.API(http.MethodPost, "/api/orgs/acme/agent-pools", object{"name": p[0], "description": p[1]}, &made)
		if pools[p[0]] = made.ID; p[0] == "default" {
			w.pool = made.TokenValue
		}
	}
	w.API(http.MethodPatch, "/api/orgs/acme", object{"setDefaultAgentPoolID": pools["default"]}, nil)
	db := w.DB()
	now := time.Now()
	save := func(pool, name, version string, seen time.Duration, slots int64) {
		a := store.PoolAgent{
			PoolID: pools[pool], AgentID: name, SessionID: name, Hostname: name, IP: "192.0.2.7", Platform: "linux/amd64", Version: version,
			Slots: slots, Every: time.Hour, LiveUntil: now.Add(time.Hour), LastSeenAt: now.Add(-seen),
		}
		if seen > time.Minute {
			a.LiveUntil, a.Every = time.Time{}, time.Minute
		}
		must.OK(t, db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error { return tx.SaveAgent(a) }))
	}
	save("gpu", "gpu-1", "v1.4.0", 41*time.Minute, 1)
	save("default", "agent-c", "v1.4.0", 2*time.Second, 1)
	save("default", "agent-e-spot-eu-west-1b-00f3", "v0.9.2", time.Second, 1)
	save("default", "agent-f", "v1.4.0", 3*time.Second, 1)
	save("default", hostile+"\u202e", hostile, 4*time.Second, 0)
	for _, name := range []string{"agent-prod-1", "agent-prod-2"} {
		save("production", name, "v1.4.0", time.Second, 2)
	}
	zero := 0
	for range 6 {
		job := w.StartJob(w.pool, "web", "prod-ap")
		job.Step(0, workflow.StepRunning, nil)
		job.Step(0, workflow.StepSucceeded, &zero)
		job.Finish(protocol.ResultRequest{Status: workflow.StatusSucceeded})
	}
	running := w.StartJob(w.pool, "web", "prod-eu")
	must.OK(t, db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		_, err := tx.Exec("UPDATE jobs SET agent_id = $1, started_at = ended_at - (version * version) * 1000000 WHERE ended_at > 0", running.AgentID)
		return err
	}))
	queue := func(stack, pool string) {
		w.API(http.MethodPost, "/api/stacks/acme/"+stack+"/deployments", object{"operation": "preview", "agentPoolID": pools[pool]}, nil)
	}
	queue("web/prod-eu", "default")
	queue("ml/train", "gpu")
	queue("data-warehouse/staging", "gpu")

	const path = "/acme/-/pools"
	tb := newTab(t, w.URL)
	signIn(tb, w.Token)
	tb.open(path + "/" + pools["default"] + "/agents/agent-f")
	tb.click("main form[action$='/drain'] button")
	tb.see("Drained by")
	tb.looks(path, "agents")
	tb.window(path, "light", 1440, 900)
	if heights := evaluate[[]float64](tb, `[...document.querySelectorAll(".l-ag .row")].map((r) => r.getBoundingClientRect().height)`); slices.ContainsFunc(heights, func(h float64) bool { return h != 36 }) {
		t.Errorf("the rows have the heights %v, want 36", heights)
	}
	tb.broken("agents")
	tb.wait("the pool without agents is first", `document.querySelector(".pool h2 a").textContent === "gpu"`)
	tb.looks(path+"/"+pools["default"], "pool")
	tb.looks(path+"/"+pools["gpu"], "pool-gpu")
	tb.looks(path+"/"+pools["default"]+"/agents/"+running.AgentID, "agent")
	tb.looks(path+"/"+pools["default"]+"/agents/"+url.PathEscape(hostile+"\u202e"), "agent-hostile")
	must.Get(running.Heartbeat(t.Context(), protocol.PhaseRunning))(t) // the job is not lost on a slow machine

	// The queue of a pool moves to another one, whose open page shows it.
	other := newTab(t, w.URL)
	signIn(other, w.Token)
	other.open(path + "/" + pools["production"])
	other.see("No deployment waits for this pool.")
	other.wait("the pool without agents is counted at Home", `document.querySelector("#nav-home").textContent === "1"`)
	tb.window(path, "light", 1440, 900)
	tb.click(".pool .note summary")
	tb.fill(".pool .note select", pools["production"])
	tb.shot("move")
	tb.click(".pool .note form .btn.primary")
	tb.wait("the page of the other pool opens", `location.pathname.endsWith("`+pools["production"]+`")`)
	other.wait("the other page shows the queue", `document.querySelectorAll("#queue .row[id]").length === 2`)

	// The numbers of the navigation change on open pages.
	w.API(http.MethodPost, "/api/stacks/acme/web/prod-ap/deployments", object{"operation": "preview"}, nil)
	other.wait("the new deployment is counted", `document.querySelector("#nav-deployments").textContent === "5"`)
}
