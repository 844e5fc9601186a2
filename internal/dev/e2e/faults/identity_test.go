package faults

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/dev/lab/child"
	"workflowagent/internal/dev/must"
)

func (a *arena) deletePool() {
	a.t.Helper()
	path := "/api/orgs/" + a.Server.Organization + "/agent-pools/" + a.Pool.ID + "?force=true"
	must.OK(a.t, a.Server.Call(a.t.Context(), http.MethodDelete, path, nil, nil))
}

// refusedResult reports a result with the token of an earlier claim; the server must refuse it as
// superseded.
func (a *arena) refusedResult(token string) {
	a.t.Helper()
	body := strings.NewReader(`{"status": "failed", "reason": "signal", "steps": []}`)
	req := must.Get(http.NewRequestWithContext(a.t.Context(), http.MethodPost, a.Server.URL+a.proxy.job+"/result", body))(a.t)
	req.Header.Set("Authorization", "token "+token)
	resp := must.Get(http.DefaultClient.Do(req))(a.t)
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusGone {
		a.t.Errorf("the result of a superseded claim got %s, want 410", resp.Status)
	}
}

// twin starts a second agent with a copy of the first one's identity, as from a copied disk, and
// waits until it reports the conflict.
func (a *arena) twin() {
	a.t.Helper()
	id := must.Get(os.ReadFile(filepath.Join(a.Dir, "agent0", "state", "instances", "0", "id")))(a.t)
	dir := filepath.Join(a.Dir, "agent1", "state", "instances", "0")
	must.OK(a.t, os.MkdirAll(dir, 0o700))
	must.OK(a.t, os.WriteFile(filepath.Join(dir, "id"), id, 0o600))
	twin := must.Get(a.LaunchAgent(a.t.Context(), a.place.target(), a.place.settings, a.Last.Env...))(a.t)
	a.eventually(patience, "the second agent reports the conflict", func() (bool, error) {
		return strings.Contains(child.Tail(twin.LogFile, 100), "another agent with this identity"), nil
	})
}

var identityRows = []faultRow{
	{phase: inClaimed, fault: "the pool and so the agent's token are deleted", want: kept, do: func(a *arena) {
		held := pins[inClaimed](a.proxy)
		a.enqueueFree()
		held.await(a.t)
		a.deletePool()
		held.lift()
	}},
	{phase: inRunning, fault: "the pool and so the agent's token are deleted", want: kept, do: func(a *arena) {
		a.running()
		a.deletePool()
		a.resume()
	}},
	{phase: inRunning, fault: "the pool is deleted; SIGKILL of the agent", want: kept, do: func(a *arena) {
		a.running()
		a.deletePool()
		a.killAgent()
		a.bringBack()
		a.resume()
	}},
	{
		phase: inRunning, fault: "a superseded claim sends a result: the server refuses it", want: keptByNextClaim,
		scaled: scaledLease, server: scaledTimers(),
		do: func(a *arena) {
			held := pins[inClaimed](a.proxy)
			a.enqueue()
			held.await(a.t)
			old := a.proxy.jobTokens()
			a.killAgent()
			a.status(patience, "not-started")
			a.refusedResult(old[0])
			a.bringBack()
			a.marked(patience, "half")
			a.refusedResult(old[0])
			a.resume()
		},
	},
	{
		phase: "lost", fault: "it reports success, but its update was refused, failed or did not end", want: endedBy("lost"),
		evidence: "server/deployments.TestSuccessAfterLostNeedsAnUpdate",
	},
	{
		phase: "lost", fault: "its result arrives after 24 h", want: endedBy("lost"),
		evidence: "server/deployments.TestEvidenceComesTooLate",
	},
	{
		phase: "lost", fault: "its runner returns after the claim of the stack's next deployment: it starts nothing",
		want:     outcome{status: "failed", reason: "lost", or: "exit-code"},
		evidence: "server/deployments.TestLostDeploymentStartsNothingAfterItsSuccessor",
	},
	{phase: "queued", fault: "two agents share a state directory", want: kept, do: func(a *arena) {
		a.row.agent = append(a.row.agent, "state_directory="+filepath.Join(a.Dir, "agent0", "state"))
		a.startAgent()
		a.enqueueFree()
	}},
	{phase: "queued", fault: "a second agent has a copy of the identity: the server rejects it", want: kept, do: func(a *arena) {
		a.twin()
		a.enqueueFree()
	}},
	{phase: inRunning, fault: "a second agent with a copy of the identity starts", want: kept, do: func(a *arena) {
		a.running()
		a.twin()
		a.resume()
	}},
}

func TestFaultIdentity(t *testing.T) { runRows(t, identityRows, processes) }
