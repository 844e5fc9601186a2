package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"

	"workflowagent/internal/agent"
	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/pooltoken"
	"workflowagent/internal/agent/status"
	"workflowagent/internal/dev/fakes"
	"workflowagent/internal/workflow"
)

func (r *running) await(what string, ok func(status.Report) bool) status.Report {
	r.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		report := r.Status()
		report.Healthy = true // the health tracker normally sets this
		report.Judge()
		if ok(report) {
			return report
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("timed out waiting for %s: %+v", what, report)
		}
		<-time.After(time.Millisecond)
	}
}

func inState(want status.State) func(status.Report) bool {
	return func(r status.Report) bool { return r.State == want }
}

func onlyJob(phase status.Phase) func(status.Report) bool {
	return func(r status.Report) bool { return len(r.Jobs) == 1 && r.Jobs[0].Phase == phase }
}

func TestStatusOfAJobsLife(t *testing.T) {
	w := newHarness(t)
	var release [2]chan struct{}
	for i := range release {
		release[i] = make(chan struct{})
	}
	w.server.OnFault(func(_ http.ResponseWriter, r *http.Request) bool {
		if fakes.IsCall(r, http.MethodGet, "") && strings.Contains(r.URL.Path, "/api/workflow/jobs/") {
			<-release[0]
		}
		return false
	})
	w.executor.OnRun(func(ctx context.Context, j *fakes.Job) executor.Exit {
		<-release[1]
		return w.runner(workflow.StatusFailed)(ctx, j)
	})
	r := w.start()
	idle := r.await("a ready agent", inState(status.Ready))
	if idle.Agent.ID != r.identity.ID || idle.Agent.Instance != "0" || idle.Agent.Version != "v1.2.3" || idle.Agent.SessionID == "" || idle.Agent.PID == 0 {
		t.Errorf("the agent is %+v", idle.Agent)
	}
	if idle.Slots != (status.Slots{Total: 1, Free: 1}) || !idle.Server.Connected || idle.Server.LastPoll == nil || idle.Server.URL != w.server.URL || !idle.Engine.Up {
		t.Errorf("got %+v", idle)
	}

	job := w.server.Add()
	report := r.await("the preparation", onlyJob(status.Preparing))
	if j := report.Jobs[0]; j.JobID != job.ID || j.DeploymentID != "deployment-"+job.ID || j.Stack != "" || j.StartedAt != nil || j.ClaimedAt.IsZero() {
		t.Errorf("prepared: %+v", j)
	}
	if report.Slots.Busy != 1 || report.Slots.Free != 0 || report.State != status.Ready {
		t.Errorf("a busy agent is %+v", report)
	}
	close(release[0])
	report = r.await("the run", onlyJob(status.Running))
	if j := report.Jobs[0]; j.Stack != "org/project/stack" || j.Operation != "update" || j.StartedAt == nil || j.Reattached || j.Log.Written == 0 {
		t.Errorf("running: %+v", j)
	}
	close(release[1])
	report = r.await("the end", func(r status.Report) bool { return len(r.Ended) == 1 })
	if o := report.Ended[0]; len(report.Jobs) != 0 || o.JobID != job.ID || o.Stack != "org/project/stack" || o.Status != "failed" || o.EndedAt.Before(o.ClaimedAt) {
		t.Errorf("ended: %+v", report)
	}
}

func TestStatusRemembersTheLastOutcomes(t *testing.T) {
	w := newHarness(t)
	w.executor.OnRun(w.runner(workflow.StatusSucceeded))
	w.options = func(o *agent.Options) { o.MaxConcurrentJobs = 4 }
	r := w.start()
	var last *fakes.ServerJob
	for range 25 {
		last = w.server.Add()
	}
	w.server.WaitFor("the last result", func() bool { return len(last.Results) > 0 })
	report := r.await("an empty board", func(r status.Report) bool { return len(r.Jobs) == 0 })
	if len(report.Ended) != 20 || !slices.IsSortedFunc(report.Ended, func(a, b status.Outcome) int { return b.EndedAt.Compare(a.EndedAt) }) {
		t.Errorf("%d outcomes: %+v", len(report.Ended), report.Ended)
	}
}

func TestStatusSaysWhatStandsInTheWay(t *testing.T) {
	w := newHarness(t)
	r := w.start()
	r.await("a ready agent", inState(status.Ready))
	w.server.OnFault(func(rw http.ResponseWriter, r *http.Request) bool {
		if fakes.IsCall(r, http.MethodGet, "/poll") {
			http.Error(rw, `{"code":401,"message":"the token was revoked"}`, http.StatusUnauthorized)
			return true
		}
		return false
	})
	report := r.await("the refusal", inState(status.NotReady))
	if !strings.Contains(strings.Join(report.Reasons, "\n"), "the token was revoked") || report.Server.Connected || report.Server.Since == nil {
		t.Errorf("got %+v", report)
	}
	if text, _ := json.Marshal(report); strings.Contains(string(text), fakes.PoolToken) {
		t.Error("the report contains the token")
	}
}

func TestStatusOfAnEngineThatIsDown(t *testing.T) {
	w := newHarness(t)
	w.executor.SetCheck(errors.New("the engine sleeps"))
	r := w.start()
	report := r.await("the engine's state", inState(status.NotReady))
	if report.Engine.Up || report.Engine.Error != "the engine sleeps" || report.Engine.Since == nil {
		t.Errorf("got %+v", report.Engine)
	}
}

func TestStatusWhileDraining(t *testing.T) {
	w := newHarness(t)
	release := make(chan struct{})
	w.executor.OnRun(func(ctx context.Context, j *fakes.Job) executor.Exit {
		<-release
		return w.runner(workflow.StatusSucceeded)(ctx, j)
	})
	job := w.server.Add()
	r := w.start()
	r.await("the run", onlyJob(status.Running))
	r.Drain()
	r.await("the drain", inState(status.Draining))
	close(release)
	r.wait()
	if len(job.Results) != 1 {
		t.Error("the agent exited before its jobs finished")
	}
}

func TestStatusOfAJobFoundAgain(t *testing.T) {
	w := newHarness(t)
	release := make(chan struct{})
	w.executor.OnRun(func(ctx context.Context, j *fakes.Job) executor.Exit {
		<-release
		return w.runner(workflow.StatusSucceeded)(ctx, j)
	})
	w.server.Add()
	first := w.start()
	claimed := first.await("the run", onlyJob(status.Running)).Jobs[0].ClaimedAt
	first.Stop()
	first.wait()
	if ended := first.Status().Ended; len(ended) != 1 || ended[0].Status != status.Detached {
		t.Errorf("the detached job's outcome is %+v", ended)
	}
	second := w.start()
	job := second.await("the job", onlyJob(status.Running)).Jobs[0]
	if !job.Reattached || !job.ClaimedAt.Equal(claimed) || job.Stack != "org/project/stack" {
		t.Errorf("the resumed job is %+v", job)
	}
	close(release)
	second.await("the end", func(r status.Report) bool { return len(r.Ended) == 1 })
}

func TestJobLinesNameTheirJob(t *testing.T) {
	w := newHarness(t)
	w.executor.OnRun(w.runner(workflow.StatusSucceeded))
	w.options = func(o *agent.Options) {
		o.Log.Logger.SetFormatter(&logrus.JSONFormatter{})
		o.JobOutput = nil
	}
	job := w.server.Add(func(j *fakes.ServerJob) { j.Pool = "pool-7" })
	r := w.start()
	r.await("the end", func(r status.Report) bool { return len(r.Ended) == 1 })
	r.Stop()
	r.wait()
	lines, output := 0, false
	for line := range strings.Lines(w.log.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if !strings.Contains(line, job.ID) {
			continue
		}
		lines++
		output = output || fields["msg"] == "the job's own line"
		if fields["job_id"] != job.ID || fields["deployment_id"] != "deployment-"+job.ID || fields["pool"] != "pool-7" {
			t.Errorf("a field is missing: %s", line)
		}
		// The stack is in the definition, not in the claim.
		if fields["msg"] != "running deployment workflow" && fields["stack"] != "org/project/stack" {
			t.Errorf("the stack is missing: %s", line)
		}
	}
	if lines < 3 || !output {
		t.Errorf("%d lines, output %v:\n%s", lines, output, w.log)
	}
}

type exchanged struct {
	agent.TokenSource
	at   time.Time
	good bool
}

func (e exchanged) Expiry() (time.Time, bool) { return e.at, e.good }

func TestStatusOfTokens(t *testing.T) {
	future, past := time.Now().Add(time.Hour), time.Now().Add(-time.Hour)
	for _, tt := range []struct {
		name   string
		source agent.TokenSource
		want   status.Token
	}{
		{"static", pooltoken.Static(fakes.PoolToken), status.Token{Kind: "static"}},
		{"good", exchanged{pooltoken.Static(fakes.PoolToken), future, true}, status.Token{Kind: "oidc", ExpiresAt: &future}},
		{"none yet", exchanged{pooltoken.Static(fakes.PoolToken), time.Time{}, false}, status.Token{Kind: "oidc", Error: "no token has been exchanged yet"}},
		{"refused", exchanged{pooltoken.Static(fakes.PoolToken), future, false}, status.Token{Kind: "oidc", ExpiresAt: &future, Error: "the server rejected the last token before it expired"}},
		{"expired", exchanged{pooltoken.Static(fakes.PoolToken), past, false}, status.Token{Kind: "oidc", ExpiresAt: &past, Error: "the last token has expired"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newHarness(t)
			w.options = func(o *agent.Options) { o.Tokens = tt.source }
			if diff := cmp.Diff(tt.want, w.start().Status().Token); diff != "" {
				t.Error(diff)
			}
		})
	}
}
