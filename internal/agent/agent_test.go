package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"workflowagent/internal/agent"
	"workflowagent/internal/executor"
	"workflowagent/internal/executor/fake"
	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

func TestJobFromClaimToEnd(t *testing.T) {
	w := newWorld(t)
	w.executor.OnPrepare(func(_ context.Context, _ executor.Spec, progress func(string)) error {
		progress("Pulling image\npulumi/pulumi:latest with forwarded-secret")
		return nil
	})
	w.executor.OnRun(w.runner(workflow.StatusSucceeded))
	job := w.server.add()
	a := w.start()
	w.server.waitFor("the result", func() bool { return len(job.results) == 1 })
	a.Drain()
	a.wait()

	if job.claimed != 1 || !job.leave || job.status != workflow.StatusSucceeded || job.heartbeats[protocol.PhasePreparing] == 0 {
		t.Errorf("job: %+v", job)
	}
	setup := job.text(0)
	if len(setup) < 2 || !strings.Contains(setup[0], a.identity.ID) || !strings.Contains(setup[0], "v1.2.3") || !strings.Contains(setup[0], a.identity.Hostname) {
		t.Errorf("set-up log: %q", setup)
	}
	if !job.has(0, "Pulling image pulumi/pulumi:latest with [secret]") {
		t.Errorf("the progress is not one masked line: %q", setup)
	}
	if job.steps[0] != workflow.StepSucceeded {
		t.Errorf("step 0: %q", job.steps[0])
	}
	record := w.executor.Record(job.id)
	if len(record.Launches) != 1 || record.SpoolCopies != 0 || record.Interrupts+record.Kills != 0 {
		t.Errorf("executor: %+v", record)
	}
	spec := record.Spec
	if spec.Owner != a.identity.ID || spec.Epoch != 1 || spec.Labels["stack"] != "org/project/stack" || !spec.LoopbackOK {
		t.Errorf("spec: %+v", spec)
	}
	var launch protocol.Launch
	if err := json.Unmarshal(record.Launches[0], &launch); err != nil {
		t.Fatal(err)
	}
	if launch.JobToken != job.token || launch.Epoch != 1 || launch.ForwardedEnv["CLOUD_SECRET"] != "forwarded-secret" || !launch.EchoLog || launch.ServiceURL != w.server.http.URL {
		t.Errorf("launch: %+v", launch)
	}
	if got := w.output.String(); got != "[deployment-"+job.id+"] the job's own line\n" {
		t.Errorf("output: %q", got)
	}
	w.cleanState(a)
	for _, secret := range []string{poolToken, job.token, "forwarded-secret"} {
		if strings.Contains(w.log.String(), secret) {
			t.Errorf("the agent's log shows the secret %q", secret)
		}
	}
}

func TestLostPollAnswerLosesNoJob(t *testing.T) {
	w := newWorld(t)
	w.executor.OnRun(w.runner(workflow.StatusSucceeded))
	var dropped atomic.Int32
	w.server.onFault(func(rw http.ResponseWriter, r *http.Request) bool {
		if !isCall(r, "GET", "/poll") || dropped.Add(1) > 3 {
			return false
		}
		// The server does its work and the answer gets lost on the way.
		w.server.poll(&discard{header: http.Header{}}, r)
		drop(rw)
		return true
	})
	job := w.server.add()
	a := w.start()
	w.server.waitFor("the result", func() bool { return len(job.results) == 1 })
	a.Drain()
	a.wait()
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	for _, p := range w.server.polls[1:4] {
		if p.id != w.server.polls[0].id {
			t.Error("another poll id was sent before the first was answered")
		}
	}
	if job.claimed != 1 || len(w.executor.Record(job.id).Launches) != 1 {
		t.Errorf("claimed %d times, launched %d times", job.claimed, len(w.executor.Record(job.id).Launches))
	}
	if len(w.server.polls) > 4 && w.server.polls[4].id == w.server.polls[0].id {
		t.Error("the poll id of an answered poll was used again")
	}
}

// discard is an answer that nobody gets.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(int)             {}

func TestPollsSurviveEveryFault(t *testing.T) {
	w := newWorld(t)
	w.executor.OnRun(w.runner(workflow.StatusSucceeded))
	var n atomic.Int32
	faults := []func(http.ResponseWriter){
		func(rw http.ResponseWriter) { rw.WriteHeader(http.StatusBadGateway) },
		func(rw http.ResponseWriter) { rw.WriteHeader(http.StatusTooManyRequests) },
		func(rw http.ResponseWriter) { rw.Write([]byte(`{"jobID":"x`)) },
		func(rw http.ResponseWriter) { rw.WriteHeader(http.StatusUnauthorized) },
		drop,
	}
	w.server.onFault(func(rw http.ResponseWriter, r *http.Request) bool {
		if !isCall(r, "GET", "/poll") {
			return false
		}
		i := int(n.Add(1)) - 1
		if i >= len(faults) {
			return false
		}
		faults[i](rw)
		return true
	})
	job := w.server.add()
	a := w.start()
	w.server.waitFor("the result", func() bool { return len(job.results) == 1 })
	a.Drain()
	a.wait()
	if !strings.Contains(w.log.String(), "check token and service_url") {
		t.Error("the refused token was not told")
	}
}

func TestFailuresBeforeTheStart(t *testing.T) {
	for _, tc := range []struct {
		name    string
		world   func(*world)
		job     func(*serverJob)
		options func(*agent.Options)
		reason  workflow.Reason
		line    []string
	}{{
		name: "image missing",
		world: func(w *world) {
			w.executor.OnPrepare(func(context.Context, executor.Spec, func(string)) error {
				return &executor.Error{Reason: workflow.ReasonImage, Message: "The image x/y:z does not exist."}
			})
		},
		reason: workflow.ReasonImage, line: []string{"The image x/y:z does not exist."},
	}, {
		name: "engine broken",
		world: func(w *world) {
			w.executor.OnPrepare(func(context.Context, executor.Spec, func(string)) error {
				return errors.New("the engine does not answer")
			})
		},
		reason: workflow.ReasonLaunch, line: []string{"the engine does not answer"},
	}, {
		name: "start fails",
		world: func(w *world) {
			w.executor.OnStart(func(context.Context, executor.Handle) error { return errors.New("no space left") })
		},
		reason: workflow.ReasonLaunch, line: []string{"no space left"},
	}, {
		name:    "image not allowed",
		options: func(o *agent.Options) { o.Rules = rules{images: "other"} },
		reason:  workflow.ReasonRefused, line: []string{"pulumi/pulumi:latest", "allowed_images"},
	}, {
		name:    "repository not allowed",
		options: func(o *agent.Options) { o.Rules = rules{repositories: "other"} },
		job: func(j *serverJob) {
			j.definition.Deployment.Source.Git.RepoURL = "https://user:hunter22@example.com/repo.git"
		},
		reason: workflow.ReasonRefused, line: []string{"https://example.com/repo.git", "allowed_repositories"},
	}, {
		name:    "repository unknown where only some are allowed",
		options: func(o *agent.Options) { o.Rules = rules{repositories: "other"} },
		job:     func(j *serverJob) { j.definition.Deployment = nil },
		reason:  workflow.ReasonRefused, line: []string{"allowed_repositories"},
	}, {
		name:    "type not enabled",
		options: func(o *agent.Options) { o.Types = []workflow.Type{workflow.TypeInsightsScan} },
		reason:  workflow.ReasonRefused, line: []string{"enabled_workflow_types"},
	}, {
		name:   "other operating system",
		job:    func(j *serverJob) { j.definition.OS = "darwin" },
		reason: workflow.ReasonRefused, line: []string{"darwin"},
	}, {
		name:   "definition without steps",
		job:    func(j *serverJob) { j.definition.Steps = nil },
		reason: workflow.ReasonInvalidJob, line: []string{"steps"},
	}, {
		name:   "cancelled",
		job:    func(j *serverJob) { j.cancel = true },
		reason: workflow.ReasonCancelled, line: []string{"cancelled before it started"},
	}} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.options = tc.options
			if tc.world != nil {
				tc.world(w)
			}
			job := w.server.add()
			if tc.job != nil {
				w.server.update(func() { tc.job(job) })
			}
			a := w.start()
			w.server.waitFor("the result", func() bool { return len(job.results) == 1 })
			a.Drain()
			a.wait()
			result := job.results[0]
			if result.Status != workflow.StatusFailed || result.Reason != tc.reason || result.Message == "" {
				t.Errorf("result: %+v", result)
			}
			if !job.has(0, tc.line...) {
				t.Errorf("set-up log: %q, want a line with %q", job.text(0), tc.line)
			}
			if strings.Contains(strings.Join(job.text(0), "\n")+result.Message+w.log.String(), "hunter22") {
				t.Error("a password shows")
			}
			if job.steps[0] != workflow.StepFailed {
				t.Errorf("step 0: %q", job.steps[0])
			}
			if n := len(w.executor.Record(job.id).Launches); n != 0 {
				t.Errorf("it ran %d times", n)
			}
			w.cleanState(a)
		})
	}
}

// rules allow one image and one repository; "" allows all.
type rules struct{ images, repositories string }

func (r rules) AllowsImage(s string) bool      { return r.images == "" || r.images == s }
func (r rules) AllowsRepository(s string) bool { return r.repositories == "" || r.repositories == s }

func TestAbnormalEndsOfTheRunner(t *testing.T) {
	for _, tc := range []struct {
		name   string
		exit   executor.Exit
		reason workflow.Reason
		line   string
	}{
		{"out of memory", executor.Exit{Code: 137, OOMKilled: true}, workflow.ReasonOOM, "out of memory"},
		{"signal", executor.Exit{Code: -1, Signal: "SIGKILL"}, workflow.ReasonSignal, "SIGKILL"},
		{"lost", executor.Exit{Code: -1, Lost: true, Detail: "the engine was restarted"}, workflow.ReasonLost, "the engine was restarted"},
		{"exit code", executor.Exit{Code: 3}, workflow.ReasonExitCode, "exit code 3"},
		{"no result", executor.Exit{}, workflow.ReasonInternalError, "defect"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.executor.OnRun(func(ctx context.Context, j *fake.Job) executor.Exit {
				spoolStep(t, j, 1, "line of the dead runner\n")
				return tc.exit
			})
			job := w.server.add()
			a := w.start()
			w.server.waitFor("the result", func() bool { return len(job.results) == 1 })
			a.Drain()
			a.wait()
			result := job.results[0]
			if result.Status != workflow.StatusFailed || result.Reason != tc.reason || !strings.Contains(result.Message, tc.line) {
				t.Errorf("result: %+v", result)
			}
			if !job.has(1, "line of the dead runner") {
				t.Errorf("step 1: %q", job.text(1))
			}
			if words := job.text(3); len(words) != 1 || !strings.Contains(words[0], tc.line) {
				t.Errorf("closing words: %q", words)
			}
			var steps []int
			for _, s := range result.Steps {
				steps = append(steps, s.Step)
				if s.Bytes != int64(len(job.logs[s.Step])) || len(s.SHA256) != 64 {
					t.Errorf("step %d: %+v, the server has %d bytes", s.Step, s, len(job.logs[s.Step]))
				}
			}
			slices.Sort(steps)
			if !slices.Equal(steps, []int{0, 1, 3}) {
				t.Errorf("the result names the streams %v", steps)
			}
			if job.steps[1] != workflow.StepFailed {
				t.Errorf("step 1: %q", job.steps[1])
			}
			w.cleanState(a)
		})
	}
}

func TestRunnerThatCouldNotReport(t *testing.T) {
	w := newWorld(t)
	w.executor.OnRun(func(_ context.Context, j *fake.Job) executor.Exit {
		spoolStep(t, j, 2, "all done\n")
		return executor.Exit{Result: &executor.Result{Status: workflow.StatusSucceeded}}
	})
	job := w.server.add()
	a := w.start()
	w.server.waitFor("the result", func() bool { return len(job.results) == 1 })
	a.Drain()
	a.wait()
	if job.results[0].Status != workflow.StatusSucceeded || !job.has(2, "all done") || len(job.logs[3]) > 0 {
		t.Errorf("result %+v, step 2 %q, closing words %q", job.results[0], job.text(2), job.text(3))
	}
}

func TestSupersededJobIsDropped(t *testing.T) {
	w := newWorld(t)
	prepared := make(chan struct{})
	w.executor.OnPrepare(func(ctx context.Context, _ executor.Spec, _ func(string)) error {
		close(prepared)
		<-ctx.Done()
		return ctx.Err()
	})
	job := w.server.add()
	w.server.update(func() { job.gone = false })
	w.server.onFault(func(rw http.ResponseWriter, r *http.Request) bool {
		if !isCall(r, "POST", "/heartbeat") {
			return false
		}
		<-prepared
		rw.WriteHeader(http.StatusGone)
		return true
	})
	a := w.start()
	<-prepared
	w.server.waitFor("the agent to ask for more", func() bool {
		return len(w.server.polls) > 1 && w.server.polls[len(w.server.polls)-1].slots == 1
	})
	a.Drain()
	a.wait()
	if len(job.results) != 0 || len(w.executor.Record(job.id).Launches) != 0 {
		t.Errorf("%d results, %d launches", len(job.results), len(w.executor.Record(job.id).Launches))
	}
	w.cleanState(a)
}

func TestLeaveIsAskedUntilItIsAnswered(t *testing.T) {
	w := newWorld(t)
	w.executor.OnRun(w.runner(workflow.StatusSucceeded))
	var asked atomic.Int32
	w.server.onFault(func(rw http.ResponseWriter, r *http.Request) bool {
		if !isCall(r, "POST", "/heartbeat") || asked.Add(1) != 2 {
			return false
		}
		drop(rw)
		return true
	})
	job := w.server.add()
	a := w.start()
	w.server.waitFor("the result", func() bool { return len(job.results) == 1 })
	a.Drain()
	a.wait()
	if n := len(w.executor.Record(job.id).Launches); n != 1 {
		t.Errorf("it ran %d times", n)
	}
}

func TestEngineDown(t *testing.T) {
	w := newWorld(t)
	w.executor.OnRun(w.runner(workflow.StatusSucceeded))
	first := w.server.add()
	a := w.start()
	w.server.waitFor("the first result", func() bool { return len(first.results) == 1 })
	w.executor.SetCheck(errors.New("the engine is down"))
	a.Drain()
	a.wait()

	// Another process meets the engine down from the start.
	job := w.server.add()
	a = w.start()
	waitLog(t, w, "No jobs can run here at the moment")
	if job.claimed != 0 {
		t.Error("a job was claimed that cannot run")
	}
	w.executor.SetCheck(nil)
	w.server.waitFor("the second result", func() bool { return len(job.results) == 1 })
	a.Drain()
	a.wait()
	if strings.Count(w.log.String(), "No jobs can run here at the moment") != 1 || !strings.Contains(w.log.String(), "Jobs can run again") {
		t.Error("the engine's state was not told exactly once per change")
	}
}

func waitLog(t *testing.T, w *world, text string) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !strings.Contains(w.log.String(), text) {
		if time.Now().After(deadline) {
			t.Fatalf("the log never says %q", text)
		}
		<-ticker.C
	}
}

func TestSlotsAndPresence(t *testing.T) {
	w := newWorld(t)
	release := make(chan struct{})
	var running, most atomic.Int32
	w.executor.OnRun(func(ctx context.Context, j *fake.Job) executor.Exit {
		most.Store(max(most.Load(), running.Add(1)))
		defer running.Add(-1)
		<-release
		return w.runner(workflow.StatusSucceeded)(ctx, j)
	})
	w.options = func(o *agent.Options) { o.Slots = 2 }
	var jobs []*serverJob
	for range 5 {
		jobs = append(jobs, w.server.add())
	}
	a := w.start()
	w.server.waitFor("presence", func() bool {
		return len(w.server.polls) > 0 && w.server.polls[len(w.server.polls)-1].slots == 0
	})
	if n := running.Load(); n > 2 {
		t.Errorf("%d jobs run in 2 slots", n)
	}
	close(release)
	for _, j := range jobs {
		w.server.waitFor("all results", func() bool { return len(j.results) == 1 })
	}
	a.Drain()
	a.wait()
	if most.Load() > 2 {
		t.Errorf("%d jobs at a time in 2 slots", most.Load())
	}
	w.cleanState(a)
}

func TestSingleRun(t *testing.T) {
	w := newWorld(t)
	w.executor.OnRun(w.runner(workflow.StatusFailed))
	w.options = func(o *agent.Options) { o.SingleRun = true }
	first, second := w.server.add(), w.server.add()
	a := w.start()
	a.wait()
	if len(first.results) != 1 || second.claimed != 0 {
		t.Errorf("%d results, the second was claimed %d times", len(first.results), second.claimed)
	}
}

func TestStockServer(t *testing.T) {
	w := newWorld(t)
	w.server.update(func() { w.server.stock = true })
	w.executor.OnRun(func(ctx context.Context, j *fake.Job) executor.Exit {
		<-ctx.Done()
		return executor.Exit{}
	})
	w.executor.OnRun(fake.UntilInterrupt(executor.Exit{Result: &executor.Result{Status: workflow.StatusFailed, Reported: true}}))
	job := w.server.add()
	a := w.start()
	w.server.waitFor("the start", func() bool { return job.steps[0] == workflow.StepSucceeded })
	// A busy agent does not ask a server that may not know what 0 free slots are.
	w.server.mu.Lock()
	polls := len(w.server.polls)
	w.server.mu.Unlock()
	w.server.update(func() { job.status = workflow.StatusFailed })
	w.server.waitFor("the next poll", func() bool { return len(w.server.polls) > polls })
	a.Drain()
	a.wait()
	if r := w.executor.Record(job.id); r.Interrupts != 1 || r.Kills != 0 {
		t.Errorf("executor: %+v", r)
	}
	if !job.has(0, "runs this job") {
		t.Errorf("set-up log: %q", job.text(0))
	}
	for _, p := range w.server.polls {
		if p.slots == 0 {
			t.Error("a poll without free slots went to a server that does not know them")
		}
	}
	w.cleanState(a)
}

func TestTwoAgentsRunFiveHundredJobsOnceEach(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	w := newWorld(t)
	w.executor.OnRun(w.runner(workflow.StatusSucceeded))
	w.options = func(o *agent.Options) { o.Slots = 10; o.LogJobOutput = false }
	const n = 500
	var jobs []*serverJob
	for range n {
		jobs = append(jobs, w.server.add())
	}
	var polls atomic.Int64
	w.server.onFault(func(rw http.ResponseWriter, r *http.Request) bool {
		if isCall(r, "GET", "/poll") && polls.Add(1)%7 == 0 {
			w.server.poll(&discard{header: http.Header{}}, r)
			drop(rw)
			return true
		}
		return false
	})
	agents := []*running{w.start(), w.start()}
	if agents[0].identity.ID == agents[1].identity.ID {
		t.Fatal("two agents have one identity")
	}
	w.server.waitFor("all results", func() bool {
		for _, j := range jobs {
			if len(j.results) == 0 {
				return false
			}
		}
		return true
	})
	share := map[string]int{}
	for _, a := range agents {
		a.Drain()
		a.wait()
		w.cleanState(a)
	}
	for _, j := range jobs {
		r := w.executor.Record(j.id)
		if j.claimed != 1 || len(r.Launches) != 1 || len(j.results) != 1 {
			t.Errorf("claimed %d times, ran %d times, %d results", j.claimed, len(r.Launches), len(j.results))
		}
		share[r.Spec.Owner]++
	}
	if len(share) != 2 {
		t.Errorf("the jobs went to %v", share)
	}
}

func TestSecondSessionIsToldAndTried(t *testing.T) {
	w := newWorld(t)
	w.executor.OnRun(w.runner(workflow.StatusSucceeded))
	var n atomic.Int32
	w.server.onFault(func(rw http.ResponseWriter, r *http.Request) bool {
		if !isCall(r, "GET", "/poll") || n.Add(1) > 1 {
			return false
		}
		http.Error(rw, `{"code":409,"message":"another session"}`, http.StatusConflict)
		return true
	})
	job := w.server.add()
	a := w.start()
	w.server.waitFor("the result", func() bool { return len(job.results) == 1 })
	a.Drain()
	a.wait()
	if !strings.Contains(w.log.String(), "Another agent with this identity") {
		t.Error("the conflict was not told")
	}
}

func TestImageOverride(t *testing.T) {
	w := newWorld(t)
	w.executor.OnRun(w.runner(workflow.StatusSucceeded))
	w.options = func(o *agent.Options) { o.ImageOverride = "internal/image:1" }
	job := w.server.add(func(j *serverJob) {
		j.definition.Image.Credentials = &workflow.ImageCredentials{Username: "u", Password: "registry-password"}
	})
	a := w.start()
	w.server.waitFor("the result", func() bool { return len(job.results) == 1 })
	a.Drain()
	a.wait()
	if image := w.executor.Record(job.id).Spec.Image; image.Reference != "internal/image:1" || image.Credentials != nil {
		t.Errorf("image: %+v", image)
	}
}

func TestOutputIsHarmlessToTerminals(t *testing.T) {
	w := newWorld(t)
	w.executor.OnRun(func(ctx context.Context, j *fake.Job) executor.Exit {
		j.Write([]byte("\x1b[31mred\x1b[0m\x07 \tgr\u00fcn \x1b]0;title\r\n"))
		return w.runner(workflow.StatusSucceeded)(ctx, j)
	})
	job := w.server.add()
	a := w.start()
	w.server.waitFor("the result", func() bool { return len(job.results) == 1 })
	a.Drain()
	a.wait()
	tag := "[deployment-" + job.id + "] "
	if got, want := w.output.String(), tag+"red \tgr\u00fcn 0;title\n"+tag+"the job's own line\n"; got != want {
		t.Errorf("output %q, want %q", got, want)
	}
}

func TestIdentityWithJobsThatNobodyLooksAfterComesFirst(t *testing.T) {
	state := t.TempDir()
	first, err := agent.OpenIdentity(state)
	if err != nil {
		t.Fatal(err)
	}
	second, err := agent.OpenIdentity(state)
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
	only, err := agent.OpenIdentity(state)
	if err != nil {
		t.Fatal(err)
	}
	defer only.Close()
	if only.ID != second.ID {
		t.Error("the jobs of the second agent are left without one")
	}
}

func TestIdentityIsStableAndExclusive(t *testing.T) {
	state := t.TempDir()
	first, err := agent.OpenIdentity(state)
	if err != nil {
		t.Fatal(err)
	}
	second, err := agent.OpenIdentity(state)
	if err != nil {
		t.Fatal(err)
	}
	if first.ID == second.ID || first.Dir == second.Dir {
		t.Error("two live agents share an identity")
	}
	first.Close()
	again, err := agent.OpenIdentity(state)
	if err != nil {
		t.Fatal(err)
	}
	if again.ID != first.ID {
		t.Error("the identity did not survive the restart")
	}
	again.Close()
	second.Close()
	if info, err := os.Stat(first.Dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", info.Mode(), err)
	}
}
