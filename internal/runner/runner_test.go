package runner_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"

	"workflowagent/internal/dev/fakes"
	"workflowagent/internal/protocol"
	"workflowagent/internal/runner"
	"workflowagent/internal/workflow"
)

type harness struct {
	t       *testing.T
	server  *fakes.Server
	job     *fakes.ServerJob
	dir     string
	launch  *protocol.Launch
	environ []string
	timing  runner.Timing
	fixed   string // replaces /PULUMI_ENV; "" is /PULUMI_ENV
	signals chan os.Signal
	echo    lockedBuffer
	log     lockedBuffer
}

type lockedBuffer struct {
	mu   sync.Mutex
	buf  bytes.Buffer
	hook func(written string) // can be nil
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.hook != nil {
		b.hook(string(p))
	}
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func shellSteps(commands ...string) *workflow.JobDefinition {
	d := &workflow.JobDefinition{
		OS: "linux", Image: &workflow.Image{}, Shell: "sh", Env: map[string]string{},
		Steps: []workflow.Step{{Name: "Setup"}},
	}
	for _, command := range commands {
		d.Steps = append(d.Steps, workflow.Step{Name: "Step", Run: command})
	}
	return d
}

func newHarness(t *testing.T, definition *workflow.JobDefinition) *harness {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	h := &harness{
		t:      t,
		launch: &protocol.Launch{JobID: jobID, JobToken: jobToken, Epoch: 3, Definition: definition},
		environ: []string{
			"PATH=" + os.Getenv("PATH"), "HOME=" + home, "PULUMI_HOME=" + filepath.Join(home, ".pulumi"), asCommand + "=1", "TEST_BINARY=" + self,
			"GORACE=atexit_sleep_ms=0", // otherwise each command takes a second to exit under the race detector
		},
		timing: runner.Timing{
			Heartbeat: 20 * time.Millisecond,
			Linger:    2 * time.Second,
			Retry:     5 * time.Millisecond,
			Delivery:  30 * time.Second,
		},
		signals: make(chan os.Signal, 4),
	}
	h.renew()
	return h
}

const (
	jobID    = "job-1"
	jobToken = "job-token-0123456789abcdef"
)

func (h *harness) renew() {
	h.server, h.dir = fakes.NewServer(h.t), h.t.TempDir()
	h.server.Unsigned = true
	h.launch.ServiceURL = h.server.URL
	h.job = h.server.Add(func(j *fakes.ServerJob) { j.ID, j.Token = jobID, jobToken })
}

func (h *harness) text(step int) (text string) {
	h.server.View(func() {
		if lines := h.job.Log(step); len(lines) > 0 {
			text = strings.Join(lines, "\n") + "\n"
		}
	})
	return text
}

// oneResult returns the only result, after it has compared the result's hashes with the log that
// arrived.
func (h *harness) oneResult() protocol.ResultRequest {
	h.t.Helper()
	if len(h.job.Results) != 1 {
		h.t.Fatalf("got %d results, want 1", len(h.job.Results))
	}
	for _, step := range h.job.Results[0].Steps {
		log := h.job.Logs[step.Step]
		if sum := fmt.Sprintf("%x", sha256.Sum256(log)); step.SHA256 != sum || step.Bytes != int64(len(log)) {
			h.t.Errorf("the result describes step %d as %d bytes with hash %s, the server has %d bytes with %s", step.Step, step.Bytes, step.SHA256, len(log), sum)
		}
	}
	return h.job.Results[0]
}

func (h *harness) run() (int, protocol.Result) {
	h.t.Helper()
	logger := logrus.New()
	logger.SetOutput(&h.log)
	client, err := protocol.NewClient(protocol.Options{BaseURL: h.launch.ServiceURL, Signed: h.launch.Signed})
	if err != nil {
		h.t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		h.t.Fatal(err)
	}
	code, err := runner.Run(h.t.Context(), h.launch, client.Job(h.launch.JobID, h.launch.JobToken), runner.Options{
		JobDir: h.dir, PulumiEnv: h.fixed, Self: self, Environ: h.environ, Echo: &h.echo,
		Signals: h.signals, Log: logger.WithField("job_id", jobID), Timing: h.timing,
	})
	h.server.Close() // an abandoned call can still change what tests read from here on
	if err != nil {
		h.t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(h.dir, protocol.FileResult))
	if err != nil {
		h.t.Fatal(err)
	}
	var left protocol.Result
	if err := json.Unmarshal(data, &left); err != nil {
		h.t.Fatal(err)
	}
	return code, left
}

func (h *harness) wantLog(step int, parts ...string) {
	h.t.Helper()
	text := h.text(step)
	for _, part := range parts {
		if !strings.Contains(text, part) {
			h.t.Errorf("the log of step %d lacks %q:\n%s", step, part, text)
		}
	}
}

func TestRunSteps(t *testing.T) {
	h := newHarness(t, shellSteps("echo one; pwd", "echo two >&2; printf unfinished"))
	h.server.OnFault(func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/result") { // the job can end before its first heartbeat
			h.server.WaitFor("a heartbeat", func() bool { return slices.Contains(h.job.Phases, protocol.PhaseRunning) })
		}
		return false
	})
	h.launch.EchoLog = true
	code, left := h.run()
	if code != 0 || left.Status != workflow.StatusSucceeded || !left.Reported {
		t.Errorf("exit code %d, left %+v", code, left)
	}
	h.wantLog(1, "one\n", filepath.Join(h.dir, "work")+"\n")
	h.wantLog(2, "two\nunfinished\n")
	want := []string{"1 running", "1 succeeded", "2 running", "2 succeeded"}
	if diff := cmp.Diff(want, h.job.Statuses); diff != "" {
		t.Error(diff)
	}
	result := h.oneResult()
	if result.Status != workflow.StatusSucceeded || len(result.Steps) != 2 || result.Truncated {
		t.Errorf("got %+v", result)
	}
	if !strings.Contains(h.echo.String(), "one\n") {
		t.Errorf("the echo is %q", h.echo.String())
	}
	if !slices.Contains(h.job.Phases, protocol.PhaseRunning) {
		t.Errorf("the phases were %v", h.job.Phases)
	}
}

func TestRunStopsAtFirstFailure(t *testing.T) {
	h := newHarness(t, shellSteps("exit 7", "echo not reached"))
	code, left := h.run()
	if code != 7 || left.ExitCode != 7 || left.Reason != workflow.ReasonExitCode {
		t.Errorf("exit code %d, left %+v", code, left)
	}
	h.wantLog(1, "error: Step exited with code 7\n")
	if diff := cmp.Diff([]string{"1 running", "1 failed"}, h.job.Statuses); diff != "" {
		t.Error(diff)
	}
	result := h.oneResult()
	if result.Status != workflow.StatusFailed || *result.ExitCode != 7 || !strings.Contains(result.Message, "exited with code 7") {
		t.Errorf("got %+v", result)
	}
}

func TestRunMasks(t *testing.T) {
	d := shellSteps(`echo $SECRET $FORWARDED; echo "TOKEN=late-secret-1" >> $PULUMI_ENV; echo REGION=eu >> $PULUMI_ENV; echo broken >> $PULUMI_ENV`,
		`echo "$TOKEN in $REGION"; echo `+jobToken)
	d.Env["SECRET"] = "settings-secret"
	d.SecretEnv = []string{"SECRET"}
	h := newHarness(t, d)
	h.launch.ForwardedEnv = map[string]string{"FORWARDED": "forwarded-secret", "PIN": "123"}
	h.launch.EchoLog = true
	if code, _ := h.run(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	h.wantLog(1, "[secret] [secret]\n", "warning: cannot mask the value of PIN, which is shorter")
	h.wantLog(2, "Loading PULUMI_ENV from "+h.dir, "warning: ignoring line 3 of PULUMI_ENV", "[secret] in eu\n[secret]\n")
	for _, secret := range []string{"settings-secret", "forwarded-secret", "late-secret-1", jobToken} {
		if strings.Contains(h.text(1)+h.text(2)+h.echo.String()+h.log.String(), secret) {
			t.Errorf("%q shows in a log", secret)
		}
	}
}

func TestRunEnvironment(t *testing.T) {
	d := shellSteps("env", "cat; echo end")
	d.Env = map[string]string{
		"LD_PRELOAD": "/evil.so", "BASH_ENV": "/evil", "GIT_SSH_COMMAND": "evil", "ENV": "production",
		"WORKFLOW_RUNNER_ASKPASS": "/x", "WHO": "definition", "PULUMI_ENV": "/elsewhere",
	}
	h := newHarness(t, d)
	h.environ = append(h.environ, "PULUMI_AGENT_TOKEN=agent-token", "FROM_IMAGE=yes", "WHO=image")
	h.launch.ForwardedEnv = map[string]string{"WHO": "forwarded-host"}
	if code, _ := h.run(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	h.wantLog(1, "ENV=production\n", "FROM_IMAGE=yes\n", "WHO=[secret]\n", "PULUMI_ENV="+h.dir,
		"variable LD_PRELOAD, which is reserved", "variable BASH_ENV, which is reserved", "variable GIT_SSH_COMMAND, which is reserved")
	for _, name := range []string{"\nLD_PRELOAD=", "\nBASH_ENV=", "PULUMI_AGENT_TOKEN=", "\nWORKFLOW_RUNNER", "/elsewhere", "=evil"} {
		if strings.Contains(h.text(1), name) {
			t.Errorf("%q is in the environment", name)
		}
	}
	h.wantLog(2, "end\n")
}

// TestRunWithoutServer checks that a job runs while the server is unavailable, and delivers its log
// and result once the server responds again.
func TestRunWithoutServer(t *testing.T) {
	h := newHarness(t, shellSteps("echo working", "echo done"))
	var refused atomic.Int32
	h.server.OnFault(func(w http.ResponseWriter, _ *http.Request) bool {
		if refused.Add(1) > 25 {
			return false
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	code, left := h.run()
	if code != 0 || !left.Reported {
		t.Errorf("exit code %d, left %+v\n%s", code, left, h.log.String())
	}
	h.wantLog(1, "working\n")
	h.wantLog(2, "done\n")
	h.oneResult()
	if diff := cmp.Diff([]string{"1 running", "1 succeeded", "2 running", "2 succeeded"}, h.job.Statuses); diff != "" {
		t.Error(diff)
	}
}

// TestRunBehindALoadBalancer checks that only refusals from the server itself stop the job or its
// calls.
func TestRunBehindALoadBalancer(t *testing.T) {
	for _, code := range []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusBadGateway} {
		t.Run(http.StatusText(code), func(t *testing.T) {
			h := newHarness(t, shellSteps("echo working", "echo done"))
			var refused atomic.Int32
			h.server.OnFault(func(w http.ResponseWriter, _ *http.Request) bool {
				if refused.Add(1) > 25 {
					return false
				}
				w.Header().Set("Content-Type", "text/html")
				w.WriteHeader(code)
				fmt.Fprint(w, "<html><body>no healthy upstream</body></html>")
				return true
			})
			if code, left := h.run(); code != 0 || !left.Reported {
				t.Errorf("exit code %d, left %+v\n%s", code, left, h.log.String())
			}
			h.wantLog(1, "working\n")
			h.wantLog(2, "done\n")
			h.oneResult()
			if diff := cmp.Diff([]string{"1 running", "1 succeeded", "2 running", "2 succeeded"}, h.job.Statuses); diff != "" {
				t.Error(diff)
			}
			if strings.Contains(h.log.String(), "<html>") {
				t.Errorf("the log shows the page:\n%s", h.log.String())
			}
		})
	}
}

// TestRunRefused has the server itself reject the job's calls. The job must finish its steps and
// send its result only once.
func TestRunRefused(t *testing.T) {
	h := newHarness(t, shellSteps("echo working; touch proof"))
	h.server.OnFault(func(w http.ResponseWriter, r *http.Request) bool {
		fakes.Answer(protocol.SignAnswers(w, r), http.StatusBadRequest, map[string]any{"code": 400, "message": "not this"})
		return true
	})
	code, left := h.run()
	if code != 0 || left.Reported || left.Status != workflow.StatusSucceeded {
		t.Errorf("exit code %d, left %+v", code, left)
	}
	if _, err := os.Stat(filepath.Join(h.dir, "work", "proof")); err != nil {
		t.Error(err)
	}
}

// TestRunGone checks that the running step continues after its epoch is superseded.
func TestRunGone(t *testing.T) {
	h := newHarness(t, shellSteps("touch begun; echo working; touch proof"))
	h.server.OnFault(func(w http.ResponseWriter, r *http.Request) bool {
		if !exists(h, "begun") {
			return false
		}
		protocol.SignAnswers(w, r).WriteHeader(http.StatusGone)
		return true
	})
	code, left := h.run()
	if code != 0 || left.Reported || left.Status != workflow.StatusSucceeded {
		t.Errorf("exit code %d, left %+v", code, left)
	}
	if _, err := os.Stat(filepath.Join(h.dir, "work", "proof")); err != nil {
		t.Error(err)
	}
}

// TestRunResultConflict has the server lose acknowledged bytes and request them in vain.
func TestRunResultConflict(t *testing.T) {
	h := newHarness(t, shellSteps("echo kept"))
	var asked atomic.Int32
	h.server.OnFault(func(w http.ResponseWriter, r *http.Request) bool {
		body, _ := io.ReadAll(r.Body)
		if !strings.HasSuffix(r.URL.Path, "/result") {
			return false
		}
		var request protocol.ResultRequest
		if err := json.Unmarshal(body, &request); err != nil {
			t.Error(err)
		}
		if asked.Add(1); request.Steps[0].Gone {
			return false
		}
		fakes.Answer(w, http.StatusConflict, protocol.ResultConflict{Missing: []protocol.MissingLog{{Step: 1, Received: 0}}})
		return true
	})
	_, left := h.run()
	if !left.Reported || asked.Load() != 2 {
		t.Errorf("left %+v after %d results", left, asked.Load())
	}
}

func TestRunStock(t *testing.T) {
	h := newHarness(t, shellSteps("echo one; echo two", "echo three; exit 2"))
	h.launch.Epoch = 0
	code, left := h.run()
	if code != 2 || !left.Reported {
		t.Errorf("exit code %d, left %+v", code, left)
	}
	if diff := cmp.Diff([]string{"one", "two"}, h.job.Lines[1]); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"three", "error: Step exited with code 2"}, h.job.Lines[2]); diff != "" {
		t.Error(diff)
	}
	if len(h.job.Results) != 0 || len(h.job.Logs) != 0 {
		t.Error("calls were made that a stock server does not support")
	}
}

func TestRunRefusesBadDefinitions(t *testing.T) {
	for _, tt := range []struct {
		name       string
		definition *workflow.JobDefinition
		want       string
	}{
		{"no steps", &workflow.JobDefinition{}, "at least one more"},
		{"unknown command", shellSteps("workflow-runner frobnicate"), "update the agent"},
		{"command without deployment", shellSteps("workflow-runner source git"), "no deployment"},
		{"no shell", &workflow.JobDefinition{Shell: "nosuchshell", Steps: []workflow.Step{{}, {Name: "x", Run: "true"}}}, `the shell "nosuchshell" is not installed`},
		{"no directory", &workflow.JobDefinition{Steps: []workflow.Step{{}, {Name: "x", Run: "true", WorkingDir: "/nonexistent"}}}, "does not exist"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHarness(t, tt.definition)
			code, left := h.run()
			if code != runner.ExitFailed || left.Reason != workflow.ReasonInvalidJob {
				t.Errorf("exit code %d, left %+v", code, left)
			}
			h.wantLog(1, "error: ", tt.want)
			if result := h.oneResult(); !strings.Contains(result.Message, tt.want) {
				t.Errorf("the message is %q", result.Message)
			}
		})
	}
}

// TestRunOrphans leaves processes that outlive their step and hold its output open. A process that
// has left the session is out of the runner's reach and ends with its container.
func TestRunOrphans(t *testing.T) {
	h := newHarness(t, shellSteps("sleep 300 & echo started", "setsid sleep 60 & echo again", "sleep 300 >/dev/null 2>&1 & echo $! > quiet.pid; echo quiet", "kill -0 $(cat quiet.pid) && echo still running"))
	begin := time.Now()
	code, _ := h.run()
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	if took := time.Since(begin); took > 50*time.Second {
		t.Errorf("took %v", took)
	}
	h.wantLog(1, "started\n", "killed processes that the step left running", "redirect the output", "command >out.log 2>&1 &")
	h.wantLog(2, "again\n")
	if strings.Contains(h.text(3), "warning") {
		t.Error("a process that holds nothing open was mistaken for one that does")
	}
	h.wantLog(4, "still running\n") // as the warning says
}

func TestReadLaunch(t *testing.T) {
	good := `{"serviceURL":"http://x","jobID":"1","jobToken":"t","definition":null,"unknown":1}`
	if _, err := runner.ReadLaunch(t.Context(), strings.NewReader(good), nil); err != nil {
		t.Error(err)
	}
	for _, tt := range []struct{ input, want string }{
		{"", "no input"},
		{`{"jobToken":"sensitive"`, "not valid JSON"},
		{`{"jobToken":5,"jobID":"sensitive"}`, "not valid JSON"},
		{`{"serviceURL":"ftp://x","jobID":"1","jobToken":"sensitive"}`, "service URL"},
		{`{"serviceURL":"http://x","jobToken":"sensitive"}`, "no id"},
		{`{"serviceURL":"http://x","jobID":"1","jobToken":"sensitive","epoch":-1}`, "epoch"},
		{strings.Repeat(" ", 25<<20), "longer than"},
	} {
		_, err := runner.ReadLaunch(t.Context(), strings.NewReader(tt.input), nil)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "sensitive") {
			t.Errorf("got %v, want %q", err, tt.want)
		}
	}
}

func TestReadLaunchTimesOut(t *testing.T) {
	r, w := io.Pipe()
	defer w.Close()
	ctx, cancel := contextWithTimeout(t, 50*time.Millisecond)
	defer cancel()
	if _, err := runner.ReadLaunch(ctx, r, nil); err == nil || !strings.Contains(err.Error(), "nothing was started") {
		t.Errorf("got %v", err)
	}
}
