package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/dev/executortest/program"
)

const agentEnv = "PROCESS_TEST_AGENT"

func TestMain(m *testing.M) {
	if args := os.Getenv(agentEnv); args != "" {
		if err := startAsAgent(args); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

type agentOrder struct {
	Runner, Base string
	Launch       program.Launch
}

func startAsAgent(args string) error {
	var order agentOrder
	if err := json.Unmarshal([]byte(args), &order); err != nil {
		return err
	}
	e, err := New(Options{RunnerPath: order.Runner, BaseDir: order.Base, Log: logrus.NewEntry(logrus.New())})
	if err != nil {
		return err
	}
	ctx, cancel := testContext()
	defer cancel()
	h, err := e.Prepare(ctx, executor.Spec{JobID: "j", Epoch: 1, Owner: "o"}, func(string) {})
	if err != nil {
		return err
	}
	launch, err := json.Marshal(order.Launch)
	if err != nil {
		return err
	}
	if err := e.Start(ctx, h, launch); err != nil {
		return err
	}
	if err := e.Close(); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(h)
}

// startedElsewhere returns a job that another agent process has started. That process has exited.
func startedElsewhere(t *testing.T, runner string, actions ...program.Action) (*Executor, executor.Handle) {
	t.Helper()
	order := agentOrder{Runner: runner, Base: filepath.Join(t.TempDir(), "jobs"), Launch: program.Launch{Actions: actions}}
	args, err := json.Marshal(order)
	if err != nil {
		t.Fatal(err)
	}
	agent := exec.Command(os.Args[0])
	agent.Env = append(os.Environ(), agentEnv+"="+string(args))
	agent.Stderr = t.Output()
	out, err := agent.Output()
	if err != nil {
		t.Fatal("the first agent failed:", err)
	}
	var h executor.Handle
	if err := json.Unmarshal(out, &h); err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	e := newExecutor(t, runner, order.Base)
	t.Cleanup(func() {
		ctx, cancel := testContext()
		defer cancel()
		if err := errors.Join(e.Remove(ctx, h), e.Close()); err != nil {
			t.Error(err)
		}
	})
	return e, h
}

func await(t *testing.T, e *Executor, h executor.Handle) {
	t.Helper()
	ctx, cancel := testContext()
	defer cancel()
	r, err := e.Output(ctx, h)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
}

func TestJobOutlivesItsAgent(t *testing.T) {
	// The kernel can report the exit status of a process that is not a child. If it does not, the
	// status is lost.
	lost := func(e executor.Exit) bool { return runtime.GOOS != "linux" && e.Code == -1 && e.Lost }
	runner := buildRunner(t)
	ready, count := program.Action{Print: "ready\n"}, program.Action{CountInterrupts: 300 * time.Millisecond}
	result := program.Action{Result: fmt.Sprintf(`{"exitCode":%d,"reported":true}`, program.ExitSignals+1)}
	for _, test := range []struct {
		name    string
		actions []program.Action
		how     executor.Stop
		want    func(executor.Exit) bool
	}{
		{
			"interrupted, with a result",
			[]program.Action{result, ready, count},
			executor.StopInterrupt,
			func(e executor.Exit) bool {
				return (lost(e) || e.Code == program.ExitSignals+1) && e.Result != nil && e.Result.Reported
			},
		},
		{
			"interrupted, without a result",
			[]program.Action{ready, count},
			executor.StopInterrupt,
			func(e executor.Exit) bool { return lost(e) || e.Code == program.ExitSignals+1 },
		},
		{
			"killed",
			[]program.Action{{Child: true}, ready, {Forever: true}},
			executor.StopKill,
			func(e executor.Exit) bool { return lost(e) || (e.Code == -1 && e.Signal == "SIGKILL") },
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			e, h := startedElsewhere(t, runner, test.actions...)
			await(t, e, h)
			ctx, cancel := testContext()
			defer cancel()
			type answer struct {
				exit executor.Exit
				err  error
			}
			answers := make(chan answer, 1)
			go func() {
				exit, err := e.Wait(ctx, h)
				answers <- answer{exit, err}
			}()
			if err := e.Stop(ctx, h, test.how); err != nil {
				t.Fatal(err)
			}
			got := <-answers
			if got.err != nil || !test.want(got.exit) || got.exit.Success() {
				t.Errorf("Wait: %+v, %v", got.exit, got.err)
			}
			t.Logf("%+v", got.exit)
			if err := e.Remove(ctx, h); err != nil {
				t.Fatal(err)
			}
			if left := leftovers(t, handleDir(t, h)); len(left) > 0 {
				t.Errorf("leftovers: %q", left)
			}
		})
	}
}

// TestAgentDiesWhileStarting simulates an agent that exits after Start has marked the job as
// started and before Start has recorded the runner's identity.
func TestAgentDiesWhileStarting(t *testing.T) {
	e := newExecutor(t, buildRunner(t), t.TempDir())
	defer e.Close()
	h, err := e.Prepare(t.Context(), executor.Spec{JobID: "j", Epoch: 1, Owner: "o"}, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(handleDir(t, h).path(fileStarted), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context(), h, nil); !errors.Is(err, executor.ErrStarted) {
		t.Errorf("Start: %v", err)
	}
	if exit, err := e.Wait(t.Context(), h); err != nil || !exit.Lost || exit.Detail == "" {
		t.Errorf("Wait: %+v, %v", exit, err)
	}
	if err := e.Stop(t.Context(), h, executor.StopKill); err != nil {
		t.Errorf("Stop: %v", err)
	}
}

func TestReusedProcessNumber(t *testing.T) {
	e := newExecutor(t, buildRunner(t), t.TempDir())
	defer e.Close()
	innocent := exec.Command("sleep", "600")
	if err := innocent.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = innocent.Process.Kill()
		_ = innocent.Wait()
	}()
	real, err := identify(innocent.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	earlier, reboot := real, real
	earlier.StartTime--
	reboot.BootID = "from before a reboot of the host"
	for i, id := range []identity{earlier, reboot} {
		h, err := e.Prepare(t.Context(), executor.Spec{JobID: "j", Epoch: int64(i), Owner: "o"}, func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		d := handleDir(t, h)
		if err := errors.Join(os.WriteFile(d.path(fileStarted), nil, 0o600), writeJSON(d.path(fileProcess), id)); err != nil {
			t.Fatal(err)
		}
		for _, how := range []executor.Stop{executor.StopInterrupt, executor.StopKill} {
			if err := e.Stop(t.Context(), h, how); err != nil {
				t.Error(err)
			}
		}
		if exit, err := e.Wait(t.Context(), h); err != nil || !exit.Lost {
			t.Errorf("Wait: %+v, %v", exit, err)
		}
		if err := e.Remove(t.Context(), h); err != nil {
			t.Error(err)
		}
	}
	if p, ok := real.find(); !ok || p.Zombie {
		t.Error("a process that does not belong to the job was stopped")
	}
}

func TestRemoveStaysInItsDirectory(t *testing.T) {
	base := t.TempDir()
	e := newExecutor(t, buildRunner(t), filepath.Join(base, "jobs"))
	defer e.Close()
	victim := filepath.Join(base, "workflow-victim")
	if err := os.Mkdir(victim, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		victim, base, filepath.Join(base, "jobs"), filepath.Join(base, "jobs", "other"),
		filepath.Join(base, "jobs", "..", "workflow-victim"), "workflow-victim", "",
	} {
		data, err := json.Marshal(handleData{Dir: path})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Remove(t.Context(), executor.Handle{Executor: Name, JobID: "j", Data: data}); err == nil {
			t.Errorf("Remove accepted the directory %q", path)
		}
	}
	if _, err := os.Stat(victim); err != nil {
		t.Error(err)
	}
}

func TestRemoveOfReadOnlyDirectories(t *testing.T) {
	e := newExecutor(t, buildRunner(t), t.TempDir())
	defer e.Close()
	h, err := e.Prepare(t.Context(), executor.Spec{JobID: "j", Epoch: 1, Owner: "o"}, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	d := handleDir(t, h)
	for _, deep := range []string{d.path(dirHome, "go", "pkg"), d.path(dirHome, "stra\xdfe", "pkg")} {
		if err := errors.Join(os.MkdirAll(deep, 0o700), os.WriteFile(filepath.Join(deep, "file"), nil, 0o400), os.Chmod(deep, 0o500)); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Remove(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	if left := leftovers(t, d); len(left) > 0 {
		t.Errorf("leftovers: %q", left)
	}
}

func TestListFindsHalfMadeAndHalfRemovedJobs(t *testing.T) {
	e := newExecutor(t, buildRunner(t), t.TempDir())
	defer e.Close()
	half := executor.ObjectName("o", "half-made", 7)
	removed := removedPrefix + executor.ObjectName("o", "half-removed", 8)
	foreign := executor.ObjectName("another", "j", 1)
	for _, name := range []string{half, removed, foreign, "unrelated"} {
		if err := os.Mkdir(filepath.Join(e.base, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	all, err := e.List(t.Context(), "o")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, h := range all {
		got = append(got, fmt.Sprint(h.JobID, " ", h.Epoch))
		if err := e.Remove(t.Context(), h); err != nil {
			t.Error(err)
		}
	}
	slices.Sort(got)
	if want := []string{"half-made 7", "half-removed 8"}; !slices.Equal(got, want) {
		t.Errorf("listed %q, want %q", got, want)
	}
	entries, err := os.ReadDir(e.base)
	if err != nil || len(entries) != 2 {
		t.Errorf("%v, %v remain; want everything that is not the owner's", entries, err)
	}
}

func TestEnvironmentIsAnAllowList(t *testing.T) {
	got := environment([]string{"PATH=/p", "LANG=C", "PULUMI_AGENT_TOKEN=x", "HOME=/root", "AWS_SECRET_ACCESS_KEY=x", "SSL_CERT_FILE=/c", "DOCKER_HOST=x"}, "/d")
	want := []string{"HOME=/d/home", "TMPDIR=/d/tmp", "PATH=/p", "LANG=C", "SSL_CERT_FILE=/c"}
	if !slices.Equal(got, want) {
		t.Errorf("environment %q, want %q", got, want)
	}
	if got := environment(nil, "/d"); !strings.HasPrefix(got[len(got)-1], "PATH=") {
		t.Errorf("environment without any of the agent's: %q", got)
	}
}

func TestStartFailure(t *testing.T) {
	runner := filepath.Join(t.TempDir(), executor.RunnerName)
	if err := os.WriteFile(runner, []byte("not a program"), 0o700); err != nil {
		t.Fatal(err)
	}
	e := newExecutor(t, runner, t.TempDir())
	defer e.Close()
	h, err := e.Prepare(t.Context(), executor.Spec{JobID: "j", Epoch: 1, Owner: "o"}, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	var failed *executor.Error
	if err := e.Start(t.Context(), h, nil); !errors.As(err, &failed) {
		t.Errorf("Start of a file that is not a program: %v", err)
	}
	if exit, err := e.Wait(t.Context(), h); err != nil || exit.Success() || exit.Lost {
		t.Errorf("Wait: %+v, %v", exit, err)
	}
}

func TestCheck(t *testing.T) {
	e := newExecutor(t, filepath.Join(t.TempDir(), executor.RunnerName), t.TempDir())
	defer e.Close()
	if err := e.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "working_directory") {
		t.Errorf("Check without a runner: %v", err)
	}
	if _, err := New(Options{RunnerPath: "relative", BaseDir: t.TempDir()}); err == nil {
		t.Error("New accepted a relative path")
	}
}
