package agent_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"workflowagent/internal/agent"
	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/instance"
	"workflowagent/internal/dev/fakes"
	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

func TestJobFromClaimToEnd(t *testing.T) {
	w := newHarness(t)
	w.options = func(o *agent.Options) { o.Rules = rules{repositories: "example.com/*"} }
	var job *fakes.ServerJob
	w.executor.OnPrepare(func(_ context.Context, _ executor.Spec, progress func(string)) error {
		// A preparation that finishes instantly could precede its own heartbeat.
		w.server.WaitFor("a heartbeat", func() bool { return slices.Contains(job.Phases, protocol.PhasePreparing) })
		progress("Pulling image\npulumi/pulumi:latest with forwarded-secret")
		return nil
	})
	w.executor.OnRun(w.runner(workflow.StatusSucceeded))
	job = w.server.Add()
	a := w.finish(job)

	if job.Claimed != 1 || !job.Leave || job.Status != workflow.StatusSucceeded || !slices.Contains(job.Phases, protocol.PhasePreparing) {
		t.Errorf("job: %+v", job)
	}
	setup := job.Log(0)
	if len(setup) < 2 || !strings.Contains(setup[0], a.identity.ID) || !strings.Contains(setup[0], "v1.2.3") || !strings.Contains(setup[0], a.identity.Hostname) {
		t.Errorf("set-up log: %q", setup)
	}
	if !job.Has(0, "Pulling image pulumi/pulumi:latest with [secret]") {
		t.Errorf("progress is not one masked line: %q", setup)
	}
	if job.Steps[0] != workflow.StepSucceeded {
		t.Errorf("step 0: %q", job.Steps[0])
	}
	record := w.executor.Record(job.ID)
	if len(record.Launches) != 1 || record.SpoolCopies != 0 || record.Interrupts+record.Kills != 0 {
		t.Errorf("executor: %+v", record)
	}
	spec := record.Spec
	if spec.Owner != a.identity.ID || spec.Epoch != 1 || spec.Labels["stack"] != "org/project/stack" || !spec.Loopback || !spec.LoopbackOK {
		t.Errorf("spec: %+v", spec)
	}
	var launch protocol.Launch
	if err := json.Unmarshal(record.Launches[0], &launch); err != nil {
		t.Fatal(err)
	}
	if launch.JobToken != job.Token || launch.Epoch != 1 || launch.ForwardedEnv["CLOUD_SECRET"] != "forwarded-secret" || !launch.EchoLog || launch.ServiceURL != w.server.URL {
		t.Errorf("launch: %+v", launch)
	}
	if !slices.Equal(launch.AllowedRepositories, []string{"example.com/*"}) { // for submodules
		t.Errorf("allowed_repositories: %q", launch.AllowedRepositories)
	}
	if got := w.output.String(); got != "[deployment-"+job.ID+"] the job's own line\n" {
		t.Errorf("output: %q", got)
	}
	w.cleanState(a)
	for _, secret := range []string{fakes.PoolToken, job.Token, "forwarded-secret"} {
		if strings.Contains(w.log.String(), secret) {
			t.Errorf("the agent's log contains the secret %q", secret)
		}
	}
}

func TestLostPollAnswerLosesNoJob(t *testing.T) {
	w := newHarness(t)
	w.executor.OnRun(w.runner(workflow.StatusSucceeded))
	var dropped atomic.Int32
	w.server.OnFault(func(rw http.ResponseWriter, r *http.Request) bool {
		if !fakes.IsCall(r, "GET", "/poll") || dropped.Add(1) > 3 {
			return false
		}
		// The server handles the request, but its response is lost.
		w.server.Poll(&discard{header: http.Header{}}, r)
		fakes.Drop(rw)
		return true
	})
	job := w.server.Add()
	w.finish(job)
	w.server.Close() // an abandoned poll can still arrive
	for _, p := range w.server.Polls[1:4] {
		if p.ID != w.server.Polls[0].ID {
			t.Error("the agent sent another poll ID before it received a response to the first")
		}
	}
	if job.Claimed != 1 || len(w.executor.Record(job.ID).Launches) != 1 {
		t.Errorf("claimed %d times, launched %d times", job.Claimed, len(w.executor.Record(job.ID).Launches))
	}
	if len(w.server.Polls) > 4 && w.server.Polls[4].ID == w.server.Polls[0].ID {
		t.Error("the agent reused the poll ID of a completed poll")
	}
}

type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(int)             {}

func TestPollsSurviveEveryFault(t *testing.T) {
	w := newHarness(t)
	w.executor.OnRun(w.runner(workflow.StatusSucceeded))
	var n atomic.Int32
	faults := []func(http.ResponseWriter){
		func(rw http.ResponseWriter) { rw.WriteHeader(http.StatusBadGateway) },
		func(rw http.ResponseWriter) { rw.WriteHeader(http.StatusTooManyRequests) },
		func(rw http.ResponseWriter) { rw.Write([]byte(`{"jobID":"x`)) },
		func(rw http.ResponseWriter) { rw.WriteHeader(http.StatusUnauthorized) },
		fakes.Drop,
	}
	w.server.OnFault(func(rw http.ResponseWriter, r *http.Request) bool {
		if !fakes.IsCall(r, "GET", "/poll") {
			return false
		}
		i := int(n.Add(1)) - 1
		if i >= len(faults) {
			return false
		}
		faults[i](rw)
		return true
	})
	job := w.server.Add()
	w.finish(job)
	if !strings.Contains(w.log.String(), "configure the token of one of this server's pools") {
		t.Error("the log does not report the rejected token")
	}
}

func TestSupersededJobIsDropped(t *testing.T) {
	w := newHarness(t)
	prepared := make(chan struct{})
	w.executor.OnPrepare(func(ctx context.Context, _ executor.Spec, _ func(string)) error {
		close(prepared)
		<-ctx.Done()
		return ctx.Err()
	})
	job := w.server.Add()
	w.server.Update(func() { job.Gone = false })
	w.server.OnFault(func(rw http.ResponseWriter, r *http.Request) bool {
		if !fakes.IsCall(r, "POST", "/heartbeat") {
			return false
		}
		<-prepared
		protocol.SignAnswers(rw, r).WriteHeader(http.StatusGone)
		return true
	})
	a := w.start()
	<-prepared
	w.server.WaitForFreeSlot()
	a.drain()
	if len(job.Results) != 0 || len(w.executor.Record(job.ID).Launches) != 0 {
		t.Errorf("%d results, %d launches", len(job.Results), len(w.executor.Record(job.ID).Launches))
	}
	w.cleanState(a)
}

func TestLeaveIsAskedUntilItIsAnswered(t *testing.T) {
	w := newHarness(t)
	w.executor.OnRun(w.runner(workflow.StatusSucceeded))
	var asked atomic.Int32
	w.server.OnFault(func(rw http.ResponseWriter, r *http.Request) bool {
		if !fakes.IsCall(r, "POST", "/heartbeat") || asked.Add(1) != 2 {
			return false
		}
		fakes.Drop(rw)
		return true
	})
	job := w.server.Add()
	w.finish(job)
	if n := len(w.executor.Record(job.ID).Launches); n != 1 {
		t.Errorf("the job ran %d times", n)
	}
}

func TestTwoAgentsRunFiveHundredJobsOnceEach(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	w := newHarness(t)
	w.executor.OnRun(w.runner(workflow.StatusSucceeded))
	w.options = func(o *agent.Options) { o.MaxConcurrentJobs = 10; o.LogJobOutput = false }
	const n = 500
	var jobs []*fakes.ServerJob
	for range n {
		jobs = append(jobs, w.server.Add())
	}
	var polls atomic.Int64
	w.server.OnFault(func(rw http.ResponseWriter, r *http.Request) bool {
		if fakes.IsCall(r, "GET", "/poll") && polls.Add(1)%7 == 0 {
			w.server.Poll(&discard{header: http.Header{}}, r)
			fakes.Drop(rw)
			return true
		}
		return false
	})
	agents := []*running{w.start(), w.start()}
	if agents[0].identity.ID == agents[1].identity.ID {
		t.Fatal("two agents share an identity")
	}
	w.server.WaitFor("all results", func() bool {
		for _, j := range jobs {
			if len(j.Results) == 0 {
				return false
			}
		}
		return true
	})
	share := map[string]int{}
	for _, a := range agents {
		a.drain()
		w.cleanState(a)
	}
	for _, j := range jobs {
		r := w.executor.Record(j.ID)
		if j.Claimed != 1 || len(r.Launches) != 1 || len(j.Results) != 1 {
			t.Errorf("claimed %d times, ran %d times, %d results", j.Claimed, len(r.Launches), len(j.Results))
		}
		share[r.Spec.Owner]++
	}
	if len(share) != 2 {
		t.Errorf("jobs per agent: %v", share)
	}
}

func TestSecondSessionIsToldAndTried(t *testing.T) {
	w := newHarness(t)
	w.executor.OnRun(w.runner(workflow.StatusSucceeded))
	var n atomic.Int32
	w.server.OnFault(func(rw http.ResponseWriter, r *http.Request) bool {
		if !fakes.IsCall(r, "GET", "/poll") || n.Add(1) > 1 {
			return false
		}
		http.Error(rw, `{"code":409,"message":"another session"}`, http.StatusConflict)
		return true
	})
	job := w.server.Add()
	w.finish(job)
	if !strings.Contains(w.log.String(), "another agent with this identity") {
		t.Error("the log does not report the conflict")
	}
}

func TestImageOverride(t *testing.T) {
	w := newHarness(t)
	w.executor.OnRun(w.runner(workflow.StatusSucceeded))
	w.options = func(o *agent.Options) { o.OverrideImageReference = "internal/image:1" }
	job := w.server.Add(func(j *fakes.ServerJob) {
		j.Definition.Image.Credentials = &workflow.ImageCredentials{Username: "u", Password: "registry-password"}
	})
	w.finish(job)
	if image := w.executor.Record(job.ID).Spec.Image; image.Reference != "internal/image:1" || image.Credentials != nil {
		t.Errorf("image: %+v", image)
	}
}

func TestOutputIsHarmlessToTerminals(t *testing.T) {
	w := newHarness(t)
	w.executor.OnRun(func(ctx context.Context, j *fakes.Job) executor.Exit {
		j.Write([]byte("\x1b[31mred\x1b[0m\x07 \tgr\u00fcn \x1b]0;title\r\n"))
		return w.runner(workflow.StatusSucceeded)(ctx, j)
	})
	job := w.server.Add()
	w.finish(job)
	tag := "[deployment-" + job.ID + "] "
	if got, want := w.output.String(), tag+"red \tgr\u00fcn 0;title\n"+tag+"the job's own line\n"; got != want {
		t.Errorf("output %q, want %q", got, want)
	}
}

func TestIdentityWithJobsThatNobodyLooksAfterComesFirst(t *testing.T) {
	state := t.TempDir()
	first, err := instance.OpenIdentity(state)
	if err != nil {
		t.Fatal(err)
	}
	second, err := instance.OpenIdentity(state)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(second.Dir+"/jobs", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(second.Dir+"/jobs/j.1.json", []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	first.Close()
	second.Close()
	only, err := instance.OpenIdentity(state)
	if err != nil {
		t.Fatal(err)
	}
	defer only.Close()
	if only.ID != second.ID {
		t.Error("the second agent's jobs have no agent")
	}
}

func TestIdentityIsStableAndExclusive(t *testing.T) {
	state := t.TempDir()
	first, err := instance.OpenIdentity(state)
	if err != nil {
		t.Fatal(err)
	}
	second, err := instance.OpenIdentity(state)
	if err != nil {
		t.Fatal(err)
	}
	if first.ID == second.ID || first.Dir == second.Dir {
		t.Error("two running agents share an identity")
	}
	first.Close()
	again, err := instance.OpenIdentity(state)
	if err != nil {
		t.Fatal(err)
	}
	if again.ID != first.ID {
		t.Error("the restarted agent has another identity")
	}
	again.Close()
	second.Close()
	if info, err := os.Stat(first.Dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", info.Mode(), err)
	}
}
