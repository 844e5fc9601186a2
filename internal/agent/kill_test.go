package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/agent"
	"workflowagent/internal/agent/config"
	"workflowagent/internal/agent/executor/process"
	"workflowagent/internal/agent/instance"
	"workflowagent/internal/agent/pooltoken"
	"workflowagent/internal/delivery"
	"workflowagent/internal/dev/fakes"
	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

// childVariable is the environment variable that makes the test binary run as an agent process. It
// contains the process's settings.
const childVariable = "WORKFLOW_AGENT_TEST_CHILD"

type child struct {
	URL     string
	State   string
	Jobs    string
	Effects string // path of a file with one line per run of a job
	Go      string // path of a file; the runner exits when the file exists
	Die     bool   // whether the runner then kills itself instead of reporting a result
}

func agentMain() int {
	var c child
	if err := json.Unmarshal([]byte(os.Getenv(childVariable)), &c); err != nil {
		return failed(err)
	}
	if err := c.run(); err != nil {
		return failed(err)
	}
	return 0
}

func failed(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

func (c child) run() error {
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	log := logrus.NewEntry(logrus.New())
	jobs, err := process.New(process.Options{RunnerPath: binary, BaseDir: c.Jobs, Log: log})
	if err != nil {
		return err
	}
	defer jobs.Close()
	identity, err := instance.OpenIdentity(c.State)
	if err != nil {
		return err
	}
	client, err := protocol.NewClient(protocol.Options{BaseURL: c.URL})
	if err != nil {
		return err
	}
	mode := "report"
	if c.Die {
		mode = "die"
	}
	a, err := agent.New(agent.Options{
		Client: client, Tokens: pooltoken.Static(fakes.PoolToken), Executor: jobs, Identity: identity, Log: log, ServiceURL: c.URL,
		Rules: rules{}, Monitor: noMonitor{},
		Types:        workflow.Types(),
		ForwardedEnv: map[string]string{"EFFECTS": c.Effects, "GO": c.Go, "MODE": mode},
		Agent: config.Agent{
			MaxConcurrentJobs: 1, LogJobOutput: true,
			PollingInterval: 50 * time.Millisecond, RequestTimeout: 10 * time.Second, JobStatusLoopInterval: time.Second,
		},
		Retry: protocol.Retry{Wait: 5 * time.Millisecond, MaxWait: 50 * time.Millisecond},
	})
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	go func() {
		<-signals
		a.Stop()
	}()
	return a.Run(context.Background())
}

// runnerMain runs a runner that records its run, waits for a file and reports a result.
func runnerMain(args []string) int {
	if err := runRunner(args); err != nil {
		return failed(err)
	}
	return 0
}

func runRunner(args []string) error {
	if len(args) != 2 || args[0] != "--job-dir" {
		return fmt.Errorf("arguments %q", args)
	}
	var launch protocol.Launch
	if err := json.NewDecoder(os.Stdin).Decode(&launch); err != nil {
		return err
	}
	effects, err := os.OpenFile(launch.ForwardedEnv["EFFECTS"], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	fmt.Fprintln(effects, launch.JobID)
	effects.Close()
	client, err := protocol.NewClient(protocol.Options{BaseURL: launch.ServiceURL})
	if err != nil {
		return err
	}
	job := client.Job(launch.JobID, launch.JobToken)
	if _, err := job.Heartbeat(context.Background(), protocol.PhaseRunning); err != nil {
		return err
	}
	spool, err := delivery.Open(filepath.Join(args[1], protocol.DirSpool), delivery.Options{})
	if err != nil {
		return err
	}
	stream, err := spool.Step(1)
	if err != nil {
		return err
	}
	fmt.Fprintln(stream, "a line in the spool only")
	waitForFile(launch.ForwardedEnv["GO"])
	if launch.ForwardedEnv["MODE"] == "die" {
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	if err := job.Result(context.Background(), protocol.ResultRequest{Status: workflow.StatusSucceeded, Steps: []protocol.StepResult{}}); err != nil {
		return err
	}
	data, err := json.Marshal(protocol.Result{Status: workflow.StatusSucceeded, Reported: true, FinishedAt: time.Now()}.Sealed(launch.JobToken))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(args[1], protocol.FileResult), data, 0o600)
}

func waitForFile(path string) {
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); <-ticker.C {
		if _, err := os.Stat(path); err == nil {
			return
		}
	}
}

func (c child) spawn(t *testing.T) *exec.Cmd {
	t.Helper()
	settings, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	log := &buffer{}
	cmd := exec.Command(binary)
	cmd.Env = append(os.Environ(), childVariable+"="+string(settings))
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("agent process %d:\n%s", cmd.Process.Pid, log)
		}
	})
	return cmd
}

func TestAgentProcessIsKilled(t *testing.T) {
	for _, tc := range []struct {
		name   string
		signal syscall.Signal
		die    bool // whether the runner exits while no agent is running
		status workflow.Status
	}{
		{"killed", syscall.SIGKILL, false, workflow.StatusSucceeded},
		{"stopped", syscall.SIGTERM, false, workflow.StatusSucceeded},
		{"killed, then the runner exits", syscall.SIGKILL, true, workflow.StatusFailed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := fakes.NewServer(t)
			dir := t.TempDir()
			c := child{
				URL: s.URL, State: filepath.Join(dir, "state"), Jobs: filepath.Join(dir, "jobs"),
				Effects: filepath.Join(dir, "effects"), Go: filepath.Join(dir, "go"), Die: tc.die,
			}
			job := s.Add()
			first := c.spawn(t)
			s.WaitFor("the runner", func() bool { return slices.Contains(job.Phases, protocol.PhaseRunning) })
			if err := first.Process.Signal(tc.signal); err != nil {
				t.Fatal(err)
			}
			if err := first.Wait(); (err == nil) != (tc.signal == syscall.SIGTERM) {
				t.Errorf("the agent exited with %v", err)
			}
			if tc.die {
				if err := os.WriteFile(c.Go, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			polls := 0
			s.Update(func() { polls = len(s.Polls) }) // number of the first agent's polls
			second := c.spawn(t)
			if !tc.die {
				s.WaitFor("the second agent", func() bool { return len(s.Polls) > polls })
				if err := os.WriteFile(c.Go, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			s.WaitFor("the result", func() bool { return len(job.Results) == 1 })
			s.WaitFor("a free slot", func() bool { return len(s.Polls) > polls && s.Polls[len(s.Polls)-1].Slots == 1 })
			if err := second.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if err := second.Wait(); err != nil {
				t.Errorf("the second agent exited with %v", err)
			}
			effects, err := os.ReadFile(c.Effects)
			if err != nil || strings.TrimSpace(string(effects)) != job.ID {
				t.Errorf("runs of the job: %q (error: %v)", effects, err)
			}
			if job.Status != tc.status {
				t.Errorf("the job's status is %s: %+v", job.Status, job.Results)
			}
			if tc.die && (!job.Has(1, "a line in the spool only") || len(job.Log(3)) != 1) {
				t.Errorf("step 1 %q, closing line %q", job.Log(1), job.Log(3))
			}
			for _, pattern := range []string{c.Jobs + "/*", c.State + "/instances/0/jobs/*"} {
				if left, _ := filepath.Glob(pattern); len(left) > 0 {
					t.Errorf("leftovers: %v", left)
				}
			}
		})
	}
}
