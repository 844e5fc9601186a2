package faults

import (
	"strings"
	"testing"
	"unicode/utf8"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/must"
)

// TestFaultJobCannotLieAboutItsEnd has a job write a successful runner's output and kill the runner
// before it can report.
func TestFaultJobCannotLieAboutItsEnd(t *testing.T) {
	ctx := t.Context()
	w := harness.StartSite(t, "")
	must.Get(w.StartAgent(ctx, "process", nil))(t)
	repo := w.Repo(ctx, t)
	s := w.NewStack(ctx, t, "box", "dev", "", nil)
	d := s.Finish(ctx, t, s.Deploy(ctx, t, "update", repo.URL,
		`printf '{"exitCode":0,"status":"succeeded","reported":true,"finishedAt":"2026-01-01T00:00:00Z"}' > ../result.json && echo forged && kill -9 $PPID; sleep 60`))
	log := s.Log(ctx, t, d)
	if d.Status != "failed" || d.Reason != "signal" {
		t.Errorf("the deployment is %+v\n%s", d, log)
	}
	if !strings.Contains(log, "SIGKILL") {
		t.Errorf("the log does not report how the runner ended:\n%s", log)
	}
}

// TestFaultJobOutputStaysInItsLines reads the log as clients do, and the agent's output, while a
// job prints control sequences that would rewrite both on a terminal.
func TestFaultJobOutputStaysInItsLines(t *testing.T) {
	ctx := t.Context()
	w := harness.StartSite(t, "")
	agent := must.Get(w.StartAgent(ctx, "process", nil))(t)
	repo, _, err := w.Git.NewRepo(ctx, "box", map[string]string{"Pulumi.yaml": harness.YamlProgram, "names\x1b[2J\nerror: forged": "x"})
	if err != nil {
		t.Fatal(err)
	}
	s := w.NewStack(ctx, t, "box", "dev", "", nil)
	d := s.Finish(ctx, t, s.Deploy(ctx, t, "preview", repo.URL,
		`printf '\033[3A\033[2K\033]0;title\007\033]52;c;eA==\033\\forged above\n\302\2332Jeight bits\n\2332Jone byte\n\033[31mred\033[0m\n'; printf 'x%.0s' $(seq 200000); printf '\033[1A\n'; ls`))
	log := s.Log(ctx, t, d)
	if d.Status != "succeeded" {
		t.Fatalf("%+v\n%s", d, log)
	}
	for where, text := range map[string]string{"the deployment's log": log, "the agent's output": string(harness.Read(t, agent.LogFile))} {
		plain := strings.NewReplacer("\x1b[31m", "", "\x1b[0m", "").Replace(text)
		if strings.ContainsAny(plain, "\x1b\x07\u009b") || !utf8.ValidString(plain) {
			t.Errorf("%s contains terminal control sequences", where)
		}
		if !strings.Contains(text, "forged above") || !strings.Contains(text, "eight bits") {
			t.Errorf("%s lacks the job's output", where)
		}
	}
	if !strings.Contains(log, "\x1b[31mred\x1b[0m") {
		t.Error("the log has lost its colours")
	}
}

// TestEngineForkBomb has a job start as many processes as it can.
func TestEngineForkBomb(t *testing.T) {
	ctx := t.Context()
	w, engine, image := harness.StartEngineSite(t, harness.OnLoopback)
	settings := map[string]string{"pull_image": "false", "docker_pids_limit": "64"}
	must.Get(w.StartAgent(ctx, "docker", settings, "DOCKER_HOST="+engine.Host))(t)
	repo := w.Repo(ctx, t)
	s := w.NewStack(ctx, t, "box", "dev", image, nil)
	bomb := s.Finish(ctx, t, s.Deploy(ctx, t, "update", repo.URL, `bomb() { bomb | bomb & }; bomb; sleep 1; exit 3`))
	log := s.Log(ctx, t, bomb)
	if bomb.Status != "failed" || bomb.Reason == "lost" || bomb.Message == "" {
		t.Errorf("the bomb ended as %+v\n%s", bomb, log)
	}
	t.Logf("%+v\n%s", bomb, tail(log, 10))
	next := s.Finish(ctx, t, s.Deploy(ctx, t, "preview", repo.URL, "true"))
	if next.Status != "succeeded" {
		t.Errorf("the next deployment ended as %+v\n%s", next, s.Log(ctx, t, next))
	}
}
