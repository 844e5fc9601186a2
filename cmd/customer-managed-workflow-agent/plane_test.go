package main

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	stdlog "log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

// plane is a control plane for an agent process: it assigns jobs and records requests.
type plane struct {
	http *httptest.Server

	mu       sync.Mutex
	jobs     []plannedJob
	given    map[string]*workflow.JobDefinition
	polls    []seenPoll
	statuses []time.Time
	results  []protocol.ResultRequest
	logs     bytes.Buffer

	pollCode, statusCode int // status to send instead of the normal response; 0 sends the normal response

	hold bool // the runners wait until the end of the test
}

type plannedJob struct {
	kind       workflow.Type
	definition workflow.JobDefinition
}

type seenPoll struct {
	at     time.Time
	path   string
	types  []string
	header http.Header
}

func newPlane(t *testing.T, secure bool) *plane {
	t.Helper()
	p := &plane{given: map[string]*workflow.JobDefinition{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /base/api/deployments/poll", p.poll)
	mux.HandleFunc("GET /base/api/deployments/{id}/status", p.status)
	mux.HandleFunc("GET /base/api/workflow/jobs/{id}", func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		_ = json.NewEncoder(w).Encode(p.given[r.PathValue("id")])
	})
	mux.HandleFunc("PUT /base/api/workflow/jobs/{id}/{step}/log", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var offset int64
		fmt.Sscan(r.URL.Query().Get("offset"), &offset)
		p.mu.Lock()
		p.logs.Write(body)
		p.mu.Unlock()
		end := offset + int64(len(body))
		_ = json.NewEncoder(w).Encode(protocol.LogAck{Received: end, Durable: end})
	})
	mux.HandleFunc("POST /base/api/workflow/jobs/{id}/result", func(w http.ResponseWriter, r *http.Request) {
		var result protocol.ResultRequest
		if err := json.NewDecoder(r.Body).Decode(&result); err != nil {
			t.Error(err)
		}
		p.mu.Lock()
		p.results = append(p.results, result)
		p.mu.Unlock()
		io.WriteString(w, "{}")
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "{}") }) // heartbeats, steps
	p.http = httptest.NewUnstartedServer(mux)
	p.http.Config.ErrorLog = stdlog.New(io.Discard, "", 0)
	if secure {
		p.http.StartTLS()
	} else {
		p.http.Start()
	}
	t.Cleanup(p.http.Close)
	return p
}

func (p *plane) poll(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.polls = append(p.polls, seenPoll{time.Now(), r.URL.Path, r.URL.Query()["type"], r.Header.Clone()})
	if p.pollCode != 0 {
		w.WriteHeader(p.pollCode)
		return
	}
	if len(p.jobs) == 0 || r.Header.Get(protocol.HeaderAgentSlots) == "0" {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	id := fmt.Sprintf("job-%d", len(p.given))
	job := p.jobs[0]
	p.jobs = p.jobs[1:]
	p.given[id] = &job.definition
	_ = json.NewEncoder(w).Encode(protocol.PollResponse{JobID: id, JobToken: "job-token-" + id, TypeSpecificID: "d-" + id, WorkflowType: job.kind, Epoch: 1})
}

func (p *plane) status(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.statuses = append(p.statuses, time.Now())
	if p.statusCode != 0 {
		w.WriteHeader(p.statusCode)
		return
	}
	_ = json.NewEncoder(w).Encode(workflow.StatusRunning)
}

func (p *plane) plan(kind workflow.Type) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.jobs = append(p.jobs, plannedJob{kind, workflow.JobDefinition{
		OS: "linux", Image: &workflow.Image{Reference: "pulumi/pulumi:latest"}, Env: map[string]string{},
		Steps: []workflow.Step{{Name: "Setup"}, {Name: "pulumi update", Run: workflow.RunPulumi + " update"}},
		Deployment: &workflow.Deployment{
			ID: "d", Organization: "o", Project: "p", Stack: "s", Operation: workflow.OperationUpdate, BackendURL: p.http.URL,
			Source: &workflow.Source{Git: &workflow.GitSource{RepoURL: "https://github.com/evil/repo"}},
		},
	}})
}

func (p *plane) look() (polls []seenPoll, statuses []time.Time, results []protocol.ResultRequest, logs string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]seenPoll{}, p.polls...), append([]time.Time{}, p.statuses...), append([]protocol.ResultRequest{}, p.results...), p.logs.String()
}

// scriptRunner replaces the runner. It stores its launch document and prints a line. If a file
// named "hold" exists, it waits for a file named "go".
const scriptRunner = `#!/bin/sh
here=$(dirname "$0")
cat > "$here/launch.$$"
echo "$3" > "$here/jobdir-$$.txt"
mv "$here/launch.$$" "$here/launch-$$.json"
echo "said by the job"
while [ -e "$here/hold" ] && [ ! -e "$here/go" ]; do read -t 1 none 2>/dev/null || sleep 0.05; done
`

type agentProcess struct {
	t      *testing.T
	dir    string // the directory with the runner and its files
	cmd    *exec.Cmd
	stdout lockedBuffer
	stderr lockedBuffer
	done   chan struct{}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// runAgent starts an agent. Each setting has the form key=value; $NAME=value sets an environment
// variable instead.
func (p *plane) runAgent(t *testing.T, settings ...string) *agentProcess {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	a := &agentProcess{t: t, dir: t.TempDir(), done: make(chan struct{})}
	if err := os.WriteFile(filepath.Join(a.dir, "workflow-runner"), []byte(scriptRunner), 0o755); err != nil {
		t.Fatal(err)
	}
	if p.hold { // before the first job can start
		if err := os.WriteFile(filepath.Join(a.dir, "hold"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// The Docker target requires an embeddable runner. This ELF header of a static Linux program
	// suffices, because no test starts it.
	var program bytes.Buffer
	header := elf.Header64{
		Ident: [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT), Ehsize: 64, Phentsize: 56, Shentsize: 64,
	}
	if err := binary.Write(&program, binary.LittleEndian, header); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(a.dir, "workflow-runner-embeddable"), program.Bytes(), 0o755); err != nil {
		t.Fatal(err)
	}
	a.cmd = exec.Command(self, "run")
	a.cmd.Dir = t.TempDir()
	a.cmd.Env = []string{asMain + "=1", "PATH=" + os.Getenv("PATH"), "HOME=" + a.cmd.Dir, "NO_PROXY=*"}
	defaults := []string{
		"token=" + goodToken, "service_url=" + p.http.URL + "/base", "deploy_target=process", "working_directory=" + a.dir,
		"state_directory=" + filepath.Join(a.dir, "state"), "http_server_port=0", "polling_interval=100ms",
	}
	for _, setting := range append(defaults, settings...) {
		key, value, _ := strings.Cut(setting, "=")
		name, isVariable := strings.CutPrefix(key, "$")
		if !isVariable {
			name = "PULUMI_AGENT_" + strings.ToUpper(key)
		}
		a.cmd.Env = append(a.cmd.Env, name+"="+value)
	}
	a.cmd.Stdout, a.cmd.Stderr = &a.stdout, &a.stderr
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(a.done)
		_ = a.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = os.WriteFile(filepath.Join(a.dir, "go"), nil, 0o600)
		_ = a.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-a.done:
		case <-time.After(time.Minute):
			_ = a.cmd.Process.Kill()
			<-a.done
			t.Error("the agent does not stop")
		}
		if t.Failed() {
			t.Logf("the agent's log:\n%s", a.stderr.String())
		}
	})
	return a
}

// until waits for a condition, for at most 2 minutes.
func (a *agentProcess) until(what string, met func() bool) {
	a.t.Helper()
	deadline := time.NewTimer(2 * time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !met() {
		select {
		case <-tick.C:
		case <-deadline.C:
			a.t.Fatalf("it never comes: %s\n%s", what, a.stderr.String())
		}
	}
}

func (a *agentProcess) launches() []protocol.Launch {
	a.t.Helper()
	files, err := filepath.Glob(filepath.Join(a.dir, "launch-*.json"))
	if err != nil {
		a.t.Fatal(err)
	}
	var all []protocol.Launch
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			a.t.Fatal(err)
		}
		var launch protocol.Launch
		if err := json.Unmarshal(data, &launch); err != nil {
			a.t.Fatal(err)
		}
		all = append(all, launch)
	}
	return all
}
