package faults

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/must"
)

// evaluationPlace is the heading of the rows about policy evaluations.
const evaluationPlace = "Policy evaluations"

const testEvaluations = "dev/e2e/faults.TestFaultEvaluations"

var (
	reportedOnce  = outcome{update: "evaluated again by another claim; one report"}
	evaluatedOnce = outcome{update: "evaluated once; one report"}
)

// evaluationEvidence are separate rows of tests, because an evaluation is no deployment.
var evaluationEvidence = []faultRow{
	{phase: "claimed", fault: agentKilled, want: reportedOnce, evidence: testEvaluations},
	{phase: "fetching the state", fault: runnerKilled, want: reportedOnce, evidence: testEvaluations},
	{phase: "fetching packs", fault: runnerKilled, want: reportedOnce, evidence: testEvaluations},
	{phase: "installing dependencies", fault: runnerKilled, want: reportedOnce, evidence: testEvaluations},
	{phase: "evaluating", fault: runnerKilled, want: reportedOnce, evidence: testEvaluations},
	{phase: "reporting", fault: "SIGKILL of the runner and its step", want: reportedOnce, evidence: testEvaluations},
	{phase: "evaluating", fault: "SIGKILL of agent and runner; the agent does not return", want: reportedOnce, evidence: testEvaluations},
	{phase: "evaluating", fault: "the runner is silent and returns after the next claim: the server refuses what it sends", want: reportedOnce, evidence: "server/policies/evaluations.TestHandedOutAgain"},
	{phase: "evaluating", fault: agentKilled, want: evaluatedOnce, evidence: testEvaluations},
	{phase: "evaluating", fault: serverKilled, want: evaluatedOnce, evidence: testEvaluations},
	{phase: "claimed", fault: "the response with the claim is lost", want: evaluatedOnce, evidence: "server/policies/evaluations.TestRepeatedPollGetsItsEvaluation"},
	{phase: "results stored", fault: serverKilled, want: evaluatedOnce, evidence: testEvaluations},
	{phase: "results stored", fault: runnerKilled, want: evaluatedOnce, evidence: testEvaluations},
	{phase: "results stored", fault: "the runner is silent", want: evaluatedOnce, evidence: "server/policies/evaluations.TestSilentAfterItsResults"},
}

// auditor is a site with the audit group "audits" and one pack, which a stand-in for pulumi runs.
type auditor struct {
	t     *testing.T
	w     *harness.Site
	proxy *faultProxy // between the server and everything else
	hold  harness.Hold
	path  string // of the agents
	runs  string // file with one line per run of the pack
}

func newAuditor(t *testing.T) *auditor {
	t.Helper()
	ctx, dir := t.Context(), t.TempDir()
	proxy := startProxy(t, "127.0.0.1", "")
	w := harness.StartSite(t, ownLoopback(), "--job-lease", "3s", "--external-url", proxy.URL)
	proxy.target, w.AgentURL = w.Server.URL, proxy.URL
	a := &auditor{t: t, w: w, proxy: proxy, hold: harness.Hold{Dir: dir, At: dir}, runs: filepath.Join(dir, "runs")}
	stub := stubPulumi(t, `if [ "$1" = policy ]; then echo run >> `+a.runs+"; fi\n"+a.hold.Wait("$1")+
		`if [ "$1" = policy ]; then printf '%s\n' '{"policyEvent":{"resourceUrn":"urn:a","message":"bad","policyName":"p","enforcementLevel":"advisory"}}' '{"summaryEvent":{}}'; fi`)
	a.path = "PATH=" + stub + string(os.PathListSeparator) + os.Getenv("PATH")
	archive := a.archive()
	var made struct{ UploadURI string }
	org := "/api/orgs/" + a.w.Server.Organization
	a.call(http.MethodPost, org+"/policypacks", map[string]any{
		"name": "lab", "displayName": "lab", "versionTag": "1.0.0", "runtime": "executable",
		"policies": []any{map[string]any{"name": "p", "displayName": "p", "description": "", "message": "", "enforcementLevel": "advisory"}},
	}, &made)
	req := must.Get(http.NewRequestWithContext(ctx, http.MethodPut, made.UploadURI, bytes.NewReader(archive)))(t)
	resp := must.Get(http.DefaultClient.Do(req))(t)
	must.OK(t, resp.Body.Close())
	a.call(http.MethodPost, org+"/policypacks/lab/versions/1.0.0/complete", nil, nil)
	a.call(http.MethodPost, org+"/policygroups", map[string]any{"name": "audits", "entityType": "stacks", "mode": "audit"}, nil)
	a.call(http.MethodPatch, org+"/policygroups/audits", map[string]any{"addPolicyPack": map[string]any{"name": "lab"}}, nil)
	return a
}

func (a *auditor) archive() []byte {
	a.t.Helper()
	var buffer bytes.Buffer
	z := gzip.NewWriter(&buffer)
	w := tar.NewWriter(z)
	const text = "runtime: executable\n"
	must.OK(a.t, w.WriteHeader(&tar.Header{Name: "package/PulumiPolicy.yaml", Mode: 0o644, Size: int64(len(text))}))
	_ = must.Get(w.Write([]byte(text)))(a.t)
	must.OK(a.t, w.Close())
	must.OK(a.t, z.Close())
	return buffer.Bytes()
}

func (a *auditor) call(method, path string, in, out any) {
	a.t.Helper()
	must.OK(a.t, a.w.Server.Call(a.t.Context(), method, path, in, out))
}

// stack adds a stack with a state to the group, and returns the path of its evaluations.
func (a *auditor) stack(name string) string {
	a.t.Helper()
	base := "/api/stacks/" + a.w.Server.Organization + "/audited"
	a.call(http.MethodPost, base, map[string]any{"stackName": name}, nil)
	a.call(http.MethodPost, base+"/"+name+"/import", map[string]any{"version": 3, "deployment": map[string]any{
		"manifest": map[string]any{"time": "2026-01-02T03:04:05Z", "magic": "", "version": ""}, "resources": []any{},
	}}, nil)
	a.member("addStack", name)
	return base + "/" + name + "/policyevaluations"
}

// member adds a stack to the group or removes it.
func (a *auditor) member(change, name string) {
	a.t.Helper()
	a.call(http.MethodPatch, "/api/orgs/"+a.w.Server.Organization+"/policygroups/audits", map[string]any{change: map[string]any{"name": name, "routingProject": "audited"}}, nil)
}

// finish waits for the end of the stack's only evaluation, which must have the number of the claim, and checks that its
// one violation was stored once.
func (a *auditor) finish(stack, path string, epoch int64) {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), harness.Patience)
	defer cancel()
	type evaluation struct {
		ID, Status, Message string
		Epoch               int64
		Violations          *int64
	}
	var list struct{ Evaluations []evaluation }
	err := harness.Until(ctx, func() (bool, error) {
		if err := a.w.Server.Call(ctx, http.MethodGet, path, nil, &list); err != nil || len(list.Evaluations) == 0 {
			return false, nil //nolint:nilerr // the server can be starting
		}
		status := list.Evaluations[0].Status
		return status == "succeeded" || status == "failed" || status == "skipped", nil
	})
	if e := list.Evaluations; err != nil || len(e) != 1 || e[0].Status != "succeeded" || e[0].Epoch != epoch || e[0].Violations == nil || *e[0].Violations != 1 {
		a.t.Errorf("evaluations %+v, want one with claim %d: %v", e, epoch, err)
	}
	var issues struct{ PolicyIssues []struct{ EntityID string } }
	a.call(http.MethodPost, "/api/orgs/"+a.w.Server.Organization+"/policyresults/issues", map[string]int{"startRow": 0, "endRow": 100}, &issues)
	stored := 0
	for _, issue := range issues.PolicyIssues {
		if issue.EntityID == stack {
			stored++
		}
	}
	if stored != 1 {
		a.t.Errorf("%d violations are stored, want one: %+v", stored, issues.PolicyIssues)
	}
}

// moment is a moment of an evaluation: arm makes the job wait when it comes, reached waits until it does, and release
// lets it continue.
type moment struct{ arm, reached, release func() }

// running is when the job runs a command of pulumi.
func (a *auditor) running(command string) moment {
	return moment{
		func() { must.OK(a.t, a.hold.Set(command)) },
		func() { must.Get(a.hold.Reached(a.t.Context()))(a.t) },
		func() { must.OK(a.t, a.hold.Release()) },
	}
}

// asking is when a call is on its way to the server, or, if it is answered, its response from there.
func (a *auditor) asking(c call, answered bool) moment {
	var r *rule
	return moment{
		func() {
			if r = nil; answered {
				r = a.proxy.afterAnswer(is(c), 1)
			} else {
				r = a.proxy.on(is(c), 1, holdAndLose)
			}
		},
		func() { r.await(a.t) },
		func() { r.lift() },
	}
}

// below returns the descendants of a process.
func below(pid int) (pids []int) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, task := range tasks {
		data, _ := os.ReadFile(task) // the task can have ended
		for field := range strings.FieldsSeq(string(data)) {
			if child, err := strconv.Atoi(field); err == nil {
				pids = append(append(pids, child), below(child)...)
			}
		}
	}
	return pids
}

// TestFaultEvaluations kills what takes part in policy evaluations. Whatever runs again, the results are reported once.
func TestFaultEvaluations(t *testing.T) {
	a := newAuditor(t)
	agent := must.Get(a.w.StartAgent(t.Context(), "process", nil, a.path))(t)
	killRunner := func() {
		for _, pid := range children(t, agent.Process.Pid()) {
			must.OK(t, syscall.Kill(pid, syscall.SIGKILL))
		}
	}
	killJob := func() {
		for _, pid := range below(agent.Process.Pid()) {
			must.OK(t, syscall.Kill(pid, syscall.SIGKILL))
		}
	}
	killAgent := func() { must.OK(t, agent.Process.Stop(syscall.SIGKILL, time.Minute)) }
	restartAgent := func() {
		killAgent()
		must.OK(t, a.w.RestartAgent(t.Context()))
		agent = a.w.Agents[len(a.w.Agents)-1]
	}
	restartServer := func() {
		must.OK(t, a.w.Server.Process.Stop(syscall.SIGKILL, time.Minute))
		must.OK(t, a.w.RestartServer(t.Context()))
	}
	for i, row := range []struct {
		at     moment
		strike func()
		epoch  int64
	}{
		{a.asking(callDefinition, false), restartAgent, 2},
		{a.asking(callState, false), killRunner, 2},
		{a.asking(callPack, false), killRunner, 2},
		{a.running("install"), killRunner, 2},
		{a.running("policy"), killRunner, 2},
		{a.asking(callFindings, false), killJob, 2},
		{a.asking(callFindings, true), killRunner, 1},
		{a.asking(callFindings, true), restartServer, 1},
		{a.running("policy"), restartAgent, 1},
		{a.running("policy"), restartServer, 1},
		{a.running("policy"), func() {
			runners := children(t, agent.Process.Pid())
			killAgent()
			for _, pid := range runners {
				must.OK(t, syscall.Kill(pid, syscall.SIGKILL))
			}
			must.Get(a.w.LaunchAgent(t.Context(), "process", nil, a.path))(t) // another one, with its own state directory
		}, 2},
	} {
		harness.Write(t, a.runs, nil, 0o600)
		row.at.arm()
		name := fmt.Sprintf("s%d", i)
		path := a.stack(name)
		row.at.reached()
		row.strike()
		row.at.release()
		a.finish(name, path, row.epoch)
		if n := bytes.Count(harness.Read(t, a.runs), []byte("\n")); row.epoch == 1 && n != 1 {
			t.Errorf("%s: the pack ran %d times", name, n)
		}
		a.member("removeStack", name) // each change of the group evaluates all its stacks
	}
	if agents := must.Get(filepath.Glob(filepath.Join(a.w.Last.Dir, "state", "*", "jobs", "*")))(t); len(agents) > 0 {
		t.Errorf("the agent keeps %q", agents)
	}
}
