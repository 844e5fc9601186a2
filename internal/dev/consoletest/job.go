package consoletest

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"net/http"
	"time"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

// Job is a claimed job, whose calls of an agent and a runner a test makes.
type Job struct {
	*protocol.JobClient
	s *Server
	// Path is the path of the deployment's page.
	Path string
	// AgentID is the id of the agent, whose host is build-1.
	AgentID string
	// Token is the access token of the job's commands.
	Token   string
	offsets map[int]int64
	sums    map[int]hash.Hash
	framed  []byte // reused
}

// Stack creates a stack of [Org], named project/stack.
func (s *Server) Stack(project, name string) {
	s.t.Helper()
	s.API(http.MethodPost, "/api/stacks/"+Org+"/"+project, map[string]any{"stackName": name}, nil)
}

// Pool creates the default pool of [Org] and returns its token.
func (s *Server) Pool() string {
	s.t.Helper()
	var pool struct{ ID, TokenValue string }
	s.API(http.MethodPost, "/api/orgs/"+Org+"/agent-pools", map[string]any{"name": "pool"}, &pool)
	s.API(http.MethodPatch, "/api/orgs/"+Org, map[string]string{"setDefaultAgentPoolID": pool.ID}, nil)
	return pool.TokenValue
}

// StartJob creates an update of a stack, whose only pre-run command is step 1, and claims and starts
// it with the token of the pool. The queue must be empty.
func (s *Server) StartJob(poolToken, project, stack string) *Job {
	s.t.Helper()
	return s.StartOperation(poolToken, project, stack, workflow.OperationUpdate)
}

// StartOperation is like [Server.StartJob] for any operation.
func (s *Server) StartOperation(poolToken, project, stack string, operation workflow.Operation) *Job {
	s.t.Helper()
	return s.StartRequest(poolToken, project, stack, map[string]any{
		"operation":        operation,
		"operationContext": map[string]any{"preRunCommands": []string{"print"}, "options": map[string]any{"skipInstallDependencies": true}},
	})
}

// StartRequest is like [Server.StartJob] for any request of a deployment.
func (s *Server) StartRequest(poolToken, project, stack string, request map[string]any) *Job {
	s.t.Helper()
	var made struct{ Version int }
	s.API(http.MethodPost, "/api/stacks/"+Org+"/"+project+"/"+stack+"/deployments", request, &made)
	return s.Claim(poolToken, fmt.Sprintf("/%s/%s/%s/deployments/%d", Org, project, stack, made.Version))
}

// Claim claims and starts the only queued job with the token of the pool. path is that of the page of its deployment.
func (s *Server) Claim(poolToken, path string) *Job {
	s.t.Helper()
	ctx := s.t.Context()
	client := must.Get(protocol.NewClient(protocol.Options{BaseURL: s.URL, HTTPClient: &http.Client{Timeout: time.Minute}}))(s.t)
	name := rand.Text()
	result, err := client.Poll(ctx, poolToken, protocol.PollRequest{
		AgentID: name, SessionID: name, PollID: name, Hostname: "build-1", PID: 1, Version: "v1.0.0", Platform: "linux/amd64",
		FreeSlots: 1, Capacity: 1, Interval: time.Minute, Wait: 20 * time.Second,
	})
	if err != nil || result.Job == nil {
		s.t.Fatalf("claiming the job: %+v, %v", result, err)
	}
	j := &Job{
		JobClient: client.Job(result.Job.JobID, result.Job.JobToken), s: s,
		Path:    path,
		AgentID: name,
		offsets: map[int]int64{}, sums: map[int]hash.Hash{},
	}
	definition := must.Get(j.Definition(ctx))(s.t)
	j.Token = definition.Env["PULUMI_ACCESS_TOKEN"]
	must.Get(j.Heartbeat(ctx, protocol.PhaseStarting))(s.t)
	return j
}

// Step reports the status of a step.
func (j *Job) Step(step int, status workflow.StepStatus, exitCode *int) {
	j.s.t.Helper()
	now := time.Now()
	request := protocol.StepStatusRequest{Status: status, StartedAt: &now, ExitCode: exitCode}
	if status != workflow.StepRunning {
		request.FinishedAt = &now
	}
	must.OK(j.s.t, j.StepStatus(j.s.t.Context(), step, request))
}

// chunk is the size at which a runner sends its log, in bytes.
const chunk = 256 << 10

// Print appends lines to the log of a step. next returns false after the last one.
func (j *Job) Print(step int, next func() (line string, ok bool)) {
	j.s.t.Helper()
	for more := true; more; {
		j.framed = j.framed[:0]
		for len(j.framed) < chunk {
			var line string
			if line, more = next(); !more {
				break
			}
			j.framed = protocol.AppendFrame(j.framed, time.Now(), false, []byte(line))
		}
		j.put(step, j.framed)
	}
}

// PrintPart appends a part of a line, which the next line continues.
func (j *Job) PrintPart(step int, text string) {
	j.s.t.Helper()
	j.put(step, protocol.AppendFrame(nil, time.Now(), true, []byte(text)))
}

func (j *Job) put(step int, framed []byte) {
	j.s.t.Helper()
	if len(framed) == 0 {
		return
	}
	if j.sums[step] == nil {
		j.sums[step] = sha256.New()
	}
	j.sums[step].Write(framed)
	must.Get(j.PutLog(j.s.t.Context(), step, j.offsets[step], framed, false))(j.s.t)
	j.offsets[step] += int64(len(framed))
}

// PrintLines appends lines to the log of a step.
func (j *Job) PrintLines(step int, lines ...string) {
	j.s.t.Helper()
	j.Print(step, func() (string, bool) {
		if len(lines) == 0 {
			return "", false
		}
		line := lines[0]
		lines = lines[1:]
		return line, true
	})
}

// Finish reports the result of the job.
func (j *Job) Finish(request protocol.ResultRequest) {
	j.s.t.Helper()
	request.FinishedAt = time.Now()
	for step, sum := range j.sums {
		request.Steps = append(request.Steps, protocol.StepResult{Step: step, Bytes: j.offsets[step], SHA256: hex.EncodeToString(sum.Sum(nil))})
	}
	must.OK(j.s.t, j.Result(j.s.t.Context(), request))
}
