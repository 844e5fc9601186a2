package agent_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"workflowagent/internal/agent"
	"workflowagent/internal/agent/executor"
	"workflowagent/internal/dev/fakes"
	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

func TestFailuresBeforeTheStart(t *testing.T) {
	for _, tc := range []struct {
		name    string
		world   func(*harness)
		job     func(*fakes.ServerJob)
		options func(*agent.Options)
		reason  workflow.Reason
		line    []string
	}{{
		name: "image missing",
		world: func(w *harness) {
			w.executor.OnPrepare(func(context.Context, executor.Spec, func(string)) error {
				return &executor.Error{Reason: workflow.ReasonImage, Message: "The image x/y:z does not exist."}
			})
		},
		reason: workflow.ReasonImage, line: []string{"The image x/y:z does not exist."},
	}, {
		name: "engine broken",
		world: func(w *harness) {
			w.executor.OnPrepare(func(context.Context, executor.Spec, func(string)) error {
				return errors.New("the engine does not respond")
			})
		},
		reason: workflow.ReasonLaunch, line: []string{"the engine does not respond"},
	}, {
		name: "start fails",
		world: func(w *harness) {
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
		job: func(j *fakes.ServerJob) {
			j.Definition.Deployment.Source.Git.RepoURL = "https://user:hunter22@example.com/repo.git"
		},
		reason: workflow.ReasonRefused, line: []string{"https://example.com/repo.git", "allowed_repositories"},
	}, {
		name:    "no repository where only some are allowed",
		options: func(o *agent.Options) { o.Rules = rules{repositories: "other"} },
		job:     func(j *fakes.ServerJob) { j.Definition.Deployment = nil },
		reason:  workflow.ReasonRefused, line: []string{"allowed_repositories"},
	}, {
		name:    "shell script where only some repositories are allowed",
		options: func(o *agent.Options) { o.Rules = rules{repositories: "example.com"} },
		job: func(j *fakes.ServerJob) {
			j.Definition.Steps = append(j.Definition.Steps, workflow.Step{Name: "Extra", Run: "git clone https://evil.example/repo.git"})
		},
		reason: workflow.ReasonRefused, line: []string{"Step 3", "allowed_repositories"},
	}, {
		name:    "type not enabled",
		options: func(o *agent.Options) { o.Types = []workflow.Type{workflow.TypeInsightsScan} },
		reason:  workflow.ReasonRefused, line: []string{"enabled_workflow_types"},
	}, {
		name:   "other operating system",
		job:    func(j *fakes.ServerJob) { j.Definition.OS = "darwin" },
		reason: workflow.ReasonRefused, line: []string{"darwin"},
	}, {
		name:   "definition without steps",
		job:    func(j *fakes.ServerJob) { j.Definition.Steps = nil },
		reason: workflow.ReasonInvalidJob, line: []string{"steps"},
	}, {
		name:   "cancelled",
		job:    func(j *fakes.ServerJob) { j.Cancel = true },
		reason: workflow.ReasonCancelled, line: []string{"cancelled before it started"},
	}} {
		t.Run(tc.name, func(t *testing.T) {
			w := newHarness(t)
			w.options = tc.options
			if tc.world != nil {
				tc.world(w)
			}
			job := w.server.Add()
			if tc.job != nil {
				w.server.Update(func() { tc.job(job) })
			}
			a := w.finish(job)
			result := job.Results[0]
			if result.Status != workflow.StatusFailed || result.Reason != tc.reason || result.Message == "" {
				t.Errorf("result: %+v", result)
			}
			if !job.Has(0, tc.line...) {
				t.Errorf("set-up log: %q, want a line with %q", job.Log(0), tc.line)
			}
			if strings.Contains(strings.Join(job.Log(0), "\n")+result.Message+w.log.String(), "hunter22") {
				t.Error("the set-up log contains a password")
			}
			if job.Steps[0] != workflow.StepFailed {
				t.Errorf("step 0: %q", job.Steps[0])
			}
			if n := len(w.executor.Record(job.ID).Launches); n != 0 {
				t.Errorf("the job ran %d times", n)
			}
			w.cleanState(a)
		})
	}
}

type rules struct{ images, repositories string }

func (r rules) AllowsImage(s string) bool { return r.images == "" || r.images == s }

func (r rules) RepositoryPatterns() []string {
	if r.repositories == "" {
		return nil
	}
	return []string{r.repositories}
}

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
		{"lost, and what to do", executor.Exit{Code: -1, Lost: true}, workflow.ReasonLost, workflow.UnknownEnd},
		{"exit code", executor.Exit{Code: 3}, workflow.ReasonExitCode, "exit code 3"},
		{"no launch document", executor.Exit{Code: protocol.ExitNoLaunch}, workflow.ReasonLaunch, "The job did not run"},
		{"no result", executor.Exit{}, workflow.ReasonInternalError, "This is a bug"},
		// The job can write the runner's result file and kill the runner.
		{"forged success", executor.Exit{Code: -1, Signal: "SIGKILL", Result: forged(workflow.StatusSucceeded)}, workflow.ReasonSignal, "SIGKILL"},
		{"forged success of a failure", executor.Exit{Code: 3, Result: forged(workflow.StatusSucceeded)}, workflow.ReasonExitCode, "exit code 3"},
		{"forged report of a failure", executor.Exit{Code: 3, Result: forged(workflow.StatusFailed)}, workflow.ReasonExitCode, "exit code 3"},
		{"forged report of a success", executor.Exit{Result: forged(workflow.StatusSucceeded)}, workflow.ReasonInternalError, "without a result"},
		{"forged failure", executor.Exit{Code: 137, OOMKilled: true, Result: forged(workflow.StatusFailed)}, workflow.ReasonOOM, "out of memory"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newHarness(t)
			w.executor.OnRun(func(ctx context.Context, j *fakes.Job) executor.Exit {
				spoolStep(t, j, 1, "line of the dead runner\n")
				return tc.exit
			})
			job := w.server.Add()
			a := w.finish(job)
			result := job.Results[0]
			if result.Status != workflow.StatusFailed || result.Reason != tc.reason || !strings.Contains(result.Message, tc.line) {
				t.Errorf("result: %+v", result)
			}
			if !job.Has(1, "line of the dead runner") {
				t.Errorf("step 1: %q", job.Log(1))
			}
			if words := job.Log(3); len(words) != 1 || !strings.Contains(words[0], tc.line) {
				t.Errorf("closing line: %q", words)
			}
			var steps []int
			for _, s := range result.Steps {
				steps = append(steps, s.Step)
				if s.Bytes != int64(len(job.Logs[s.Step])) || len(s.SHA256) != 64 {
					t.Errorf("step %d: %+v, the server has received %d bytes", s.Step, s, len(job.Logs[s.Step]))
				}
			}
			slices.Sort(steps)
			if !slices.Equal(steps, []int{0, 1, 3}) {
				t.Errorf("the result contains the streams %v", steps)
			}
			if job.Steps[1] != workflow.StepFailed {
				t.Errorf("step 1: %q", job.Steps[1])
			}
			if w.executor.Record(job.ID).Kills == 0 {
				t.Error("the agent reported the result although processes of the job may still be running")
			}
			w.cleanState(a)
		})
	}
}

// TestRunnerDiesInAPostRunCommand checks that the agent delivers the log of a post-run command, and writes its
// own line after the logs of all of them.
func TestRunnerDiesInAPostRunCommand(t *testing.T) {
	w := newHarness(t)
	w.executor.OnRun(func(ctx context.Context, j *fakes.Job) executor.Exit {
		spoolStep(t, j, 3, "line of a post-run command\n")
		return executor.Exit{Code: 137, OOMKilled: true}
	})
	job := w.server.Add(func(j *fakes.ServerJob) {
		j.Definition.Deployment.PostRunCommands = []workflow.PostRunCommand{{Command: "a"}, {Command: "b"}}
	})
	a := w.finish(job)
	if !job.Has(3, "line of a post-run command") {
		t.Errorf("the log of the command: %q", job.Log(3))
	}
	if words := job.Log(5); len(words) != 1 || !strings.Contains(words[0], "out of memory") {
		t.Errorf("closing line: %q", words)
	}
	w.cleanState(a)
}

func forged(status workflow.Status) *protocol.Result {
	return &protocol.Result{Status: status, Reported: true}
}

func TestRunnerThatCouldNotReport(t *testing.T) {
	w := newHarness(t)
	w.executor.OnRun(func(_ context.Context, j *fakes.Job) executor.Exit {
		spoolStep(t, j, 2, "all done\n")
		return sealed(j, executor.Exit{Result: &protocol.Result{Status: workflow.StatusSucceeded}})
	})
	job := w.server.Add()
	w.finish(job)
	if job.Results[0].Status != workflow.StatusSucceeded || !job.Has(2, "all done") || len(job.Logs[3]) > 0 {
		t.Errorf("result %+v, step 2 %q, closing line %q", job.Results[0], job.Log(2), job.Log(3))
	}
}
