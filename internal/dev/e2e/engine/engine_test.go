package engine

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/lab/child"
	"workflowagent/internal/dev/must"
)

// TestEngineRunsDeployments runs all operations with an agent with default settings. On the bridge, it also runs a
// policy pack in the updates, and evaluates the state with it.
func TestEngineRunsDeployments(t *testing.T) {
	for _, tc := range []struct {
		name   string
		listen func(*lab.Engine) string
		audit  bool
	}{
		{"host network", harness.OnLoopback, false},
		{"bridge", harness.OnBridge, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx := t.Context()
			w, engine, image := harness.StartEngineSite(t, tc.listen)
			must.Get(w.StartAgent(ctx, "docker", map[string]string{"pull_image": "false"}, "DOCKER_HOST="+engine.Host))(t)
			repo := w.Repo(ctx, t)
			s := w.NewStack(ctx, t, "box", "dev", image, nil)
			if tc.audit {
				s.Audit(ctx, t)
			}
			for _, operation := range []string{"update", "preview", "refresh", "destroy"} {
				opens := "true"
				if tc.audit && operation == "update" {
					opens = harness.OpenEnvironment
				}
				d := s.Finish(ctx, t, s.Deploy(ctx, t, operation, repo.URL, "echo from a container: $(id -u)", opens,
					`test "$(cat "$PULUMI_OIDC_TOKEN_FILE")" = "$PULUMI_OIDC_TOKEN" && test "$(cat /mnt/pulumi/pulumi.oidc)" = "$PULUMI_OIDC_TOKEN" && echo the token has ${#PULUMI_OIDC_TOKEN} characters`))
				log := s.Log(ctx, t, d)
				if d.Status != "succeeded" {
					t.Fatalf("%s ended as %+v; its log:\n%s", operation, d, log)
				}
				for _, want := range []string{"== Setup", "from a container: ", "the token has ", "== pulumi " + operation} {
					if !strings.Contains(log, want) {
						t.Errorf("the log of %s lacks %q:\n%s", operation, want, log)
					}
				}
				if tc.audit && operation == "update" {
					if !strings.Contains(log, "[advisory]  no-random") || !strings.Contains(log, "the environment has opened-in-the-job") {
						t.Errorf("the log of the update lacks a violation or the environment:\n%s", log)
					}
					s.Evaluated(ctx, t)
				}
			}
		})
	}
}

func TestEngineReportsWhyAJobEnded(t *testing.T) {
	ctx := t.Context()
	w, engine, image := harness.StartEngineSite(t, harness.OnLoopback)
	settings := map[string]string{"pull_image": "false", "docker_memory": "256m"}
	must.Get(w.StartAgent(ctx, "docker", settings, "DOCKER_HOST="+engine.Host))(t)
	repo := w.Repo(ctx, t)
	for _, tc := range []struct {
		name, image, preRun, reason, log string
	}{
		{"missing image", "nobody/has-this:ever", "true", "image", "nobody/has-this:ever"},
		{"exit code", image, "echo working; exit 42", "exit-code", "42"},
		{"out of memory", image, "x=0123456789abcdef; while :; do x=$x$x; done", "out-of-memory", "memory"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := w.NewStack(ctx, t, "box", strings.ReplaceAll(tc.name, " ", "-"), tc.image, nil)
			d := s.Finish(ctx, t, s.Deploy(ctx, t, "update", repo.URL, tc.preRun))
			// An engine can lose the OOM event
			// (https://github.com/containerd/containerd/issues/8893).
			for tries := 1; tc.reason == "out-of-memory" && d.Reason == "signal" && tries < 3; tries++ {
				d = s.Finish(ctx, t, s.Deploy(ctx, t, "update", repo.URL, tc.preRun))
			}
			log := s.Log(ctx, t, d)
			if d.Status != "failed" || d.Reason != tc.reason {
				t.Errorf("got %+v, want it failed with reason %q", d, tc.reason)
			}
			if !strings.Contains(log, tc.log) {
				t.Errorf("the log lacks %q:\n%s", tc.log, log)
			}
		})
	}
}

func TestEngineDownClaimsNothing(t *testing.T) {
	ctx := t.Context()
	w, engine, image := harness.StartEngineSite(t, harness.OnLoopback)
	socket := strings.TrimPrefix(engine.Host, "unix://")
	moved := socket + ".away"
	if err := os.Rename(socket, moved); err != nil {
		t.Skipf("the engine is not reached by a socket that can be moved: %v", err)
	}
	t.Cleanup(func() { _ = os.Rename(moved, socket) })
	agent, err := w.LaunchAgent(ctx, "docker", map[string]string{"pull_image": "false"}, "DOCKER_HOST="+engine.Host)
	if err != nil {
		t.Fatal(err)
	}
	repo := w.Repo(ctx, t)
	s := w.NewStack(ctx, t, "box", "dev", image, nil)
	d := s.Deploy(ctx, t, "update", repo.URL)
	waiting, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	err = harness.Until(waiting, func() (bool, error) {
		return strings.Contains(child.Tail(agent.LogFile, 1000), "no Docker Engine responds"), nil
	})
	if err != nil {
		t.Fatalf("the agent does not report that the engine is down: %s", child.Tail(agent.LogFile, 20))
	}
	if now, err := s.Get(ctx, d); err != nil || now.Status != "not-started" {
		t.Errorf("with the engine down the deployment is %+v, %v", now, err)
	}
	must.OK(t, os.Rename(moved, socket))
	if d := s.Wait(ctx, t, d, 2*time.Minute, "succeeded", "failed"); d.Status != "succeeded" {
		t.Errorf("after the engine came back: %+v\n%s", d, s.Log(ctx, t, d))
	}
}

const slowProgram = `name: box
runtime: yaml
resources:
  before:
    type: lab:Random
  slow:
    type: lab:Sleep
    properties: {seconds: 5}
  after:
    type: lab:Random
    options: {dependsOn: ["${slow}"]}
`

// TestEngineAgentKilledInAnUpdate kills the agent while the real CLI deploys in a container. It
// restarts the agent once during the update and once after it.
func TestEngineAgentKilledInAnUpdate(t *testing.T) {
	ctx := t.Context()
	w, engine, image := harness.StartEngineSite(t, harness.OnLoopback)
	agent := must.Get(w.StartAgent(ctx, "docker", map[string]string{"pull_image": "false"}, "DOCKER_HOST="+engine.Host))(t)
	repo, _, err := w.Git.NewRepo(ctx, "box", map[string]string{"Pulumi.yaml": slowProgram})
	if err != nil {
		t.Fatal(err)
	}
	for _, back := range []string{"during", "after"} {
		t.Run(back, func(t *testing.T) {
			s := w.NewStack(ctx, t, "box", back, image, nil)
			d := s.Deploy(ctx, t, "update", repo.URL)
			waiting, cancel := context.WithTimeout(ctx, 10*time.Minute)
			defer cancel()
			if err := harness.Until(waiting, func() (bool, error) {
				return strings.Contains(s.Log(ctx, t, d), "lab:index:Sleep slow creating"), nil
			}); err != nil {
				t.Fatalf("the update did not begin: %v\n%s", err, s.Log(ctx, t, d))
			}
			must.OK(t, agent.Process.Stop(syscall.SIGKILL, 10*time.Second))
			if back == "after" {
				d = s.Finish(ctx, t, d)
			}
			must.OK(t, w.RestartAgent(ctx))
			agent = w.Agents[len(w.Agents)-1]
			d = s.Finish(ctx, t, d)
			// The agent can complete the log after the runner has reported the result.
			if err := harness.Until(waiting, func() (bool, error) {
				return finished(agent, d), nil
			}); err != nil {
				t.Errorf("the restarted agent did not finish the job: %v", err)
			}
			log := s.Log(ctx, t, d)
			if d.Status != "succeeded" {
				t.Errorf("it ended as %+v", d)
			}
			for _, line := range []string{"== Setup", "The job was started.", "== pulumi update", "lab:index:Random before created", "lab:index:Sleep slow created", "lab:index:Random after created", "+ 4 created"} {
				if n := strings.Count(log, line); n != 1 {
					t.Errorf("the log has %q %d times", line, n)
				}
			}
			var history struct {
				Updates []json.RawMessage `json:"updates"`
			}
			must.OK(t, w.Server.Call(ctx, http.MethodGet, "/api/stacks/"+s.Name+"/updates", nil, &history))
			if len(history.Updates) != 1 {
				t.Errorf("the stack has %d updates, want one", len(history.Updates))
			}
			if t.Failed() {
				t.Log(log)
			}
		})
	}
}

// finished reports whether the agent says that a deployment's job has finished.
func finished(agent *lab.Agent, d harness.Deployment) bool {
	for line := range strings.Lines(child.Tail(agent.LogFile, 1000)) {
		if strings.Contains(line, `"the job has finished"`) && strings.Contains(line, "deployment_id="+d.ID) {
			return true
		}
	}
	return false
}
