package fleet

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"workflowagent/internal/dev/lab"
	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

const project = "fleet"

// product is a workflow-server with an agent pool and stacks.
type product struct {
	server    *lab.Server
	http      *http.Client
	client    *protocol.Client
	pool      string
	poolToken string
	stacks    int
}

func (b *Bench) startProduct(ctx context.Context, database string, stacks int, args ...string) (_ *product, err error) {
	dir, err := b.newDir()
	if err != nil {
		return nil, err
	}
	server, err := lab.StartServer(ctx, lab.ServerOptions{
		Binary: b.Server, Dir: dir, Database: database, Env: os.Environ(), Args: append([]string{"--max-deployments", "10000"}, args...),
	})
	if err != nil {
		return nil, err
	}
	p := &product{server: server, http: newHTTP(), stacks: stacks}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	if p.client, err = protocol.NewClient(protocol.Options{BaseURL: server.URL, HTTPClient: p.http}); err != nil {
		return nil, err
	}
	pool, token, err := server.Pool(ctx, "fleet")
	if err != nil {
		return nil, err
	}
	p.pool, p.poolToken = pool, token
	if err = server.Call(ctx, http.MethodPatch, "/api/orgs/"+server.Organization, map[string]string{"setDefaultAgentPoolID": pool}, nil); err != nil {
		return nil, err
	}
	err = each(stacks, 8, func(i int) error {
		return p.call(ctx, http.MethodPost, "/api/stacks/"+server.Organization+"/"+project, map[string]string{"stackName": p.stack(i)}, nil)
	})
	return p, err
}

func (p *product) stack(i int) string { return fmt.Sprintf("s%05d", i%max(p.stacks, 1)) }

// call makes one API call with the administrator's token.
func (p *product) call(ctx context.Context, method, path string, body, into any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, p.server.URL+path, bytes.NewReader(data))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "token "+p.server.Token)
	resp, err := p.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // read to the end
	text, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return fmt.Errorf("%s %s: %w", method, path, err)
	case resp.StatusCode >= 300:
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, strings.TrimSpace(string(text)))
	case into == nil:
		return nil
	}
	return json.Unmarshal(text, into)
}

func (p *product) deployments(stack string) string {
	return "/api/stacks/" + p.server.Organization + "/" + project + "/" + stack + "/deployments"
}

func (p *product) enqueue(ctx context.Context, stack int) error {
	return p.call(ctx, http.MethodPost, p.deployments(p.stack(stack)), map[string]any{
		"operation": "update",
		"operationContext": map[string]any{
			"preRunCommands": []string{"print"},
			"options":        map[string]any{"skipInstallDependencies": true},
		},
	}, nil)
}

func (p *product) poll(ctx context.Context, agent int) (job, error) {
	name := fmt.Sprintf("agent-%05d", agent)
	result, err := p.client.Poll(ctx, p.poolToken, protocol.PollRequest{
		AgentID: name, SessionID: name, PollID: rand.Text(), Hostname: name, PID: agent + 1, Version: "v1.0.0", Platform: "linux/amd64",
		FreeSlots: 1, Interval: time.Minute, Wait: hold,
	})
	if err != nil || result.Job == nil {
		return nil, err
	}
	claim := result.Job
	return &productJob{p: p, client: p.client.Job(claim.JobID, claim.JobToken), deployment: claim.TypeSpecificID, sum: sha256.New()}, nil
}

// settle does nothing, because the product notices that a poll has ended.
func (p *product) settle(context.Context) error { return nil }

func (p *product) pid() int { return p.server.Process.Pid() }

func (p *product) close() {
	_ = p.server.Process.Stop(syscall.SIGTERM, stopPatience)
	p.http.CloseIdleConnections()
}

// productJob makes the calls of an agent and a runner for a job.
type productJob struct {
	p          *product
	client     *protocol.JobClient
	deployment string
	stack      string
	offset     int64
	sum        hash.Hash
	framed     []byte // reused
}

// logStep is the step that prints: the pre-run command.
const logStep = 1

func (j *productJob) start(ctx context.Context) error {
	definition, err := j.client.Definition(ctx)
	if err != nil {
		return err
	}
	j.stack = definition.Deployment.Stack
	_, err = j.client.Heartbeat(ctx, protocol.PhaseStarting)
	return err
}

func (j *productJob) write(ctx context.Context, text []byte) error {
	return j.send(ctx, protocol.AppendFrame(j.framed[:0], time.Now(), false, bytes.TrimSuffix(text, []byte("\n"))))
}

// send appends frames to the log.
func (j *productJob) send(ctx context.Context, framed []byte) error {
	j.framed = framed
	j.sum.Write(framed)
	ack, err := j.client.PutLog(ctx, logStep, j.offset, framed, false)
	if err != nil {
		return err
	}
	j.offset += int64(len(framed))
	if ack.Received != j.offset {
		return fmt.Errorf("the server has %d bytes of the log, and not %d", ack.Received, j.offset)
	}
	return nil
}

func (j *productJob) finish(ctx context.Context) error {
	request := protocol.ResultRequest{Status: workflow.StatusSucceeded, FinishedAt: time.Now()}
	if j.offset > 0 {
		request.Steps = []protocol.StepResult{{Step: logStep, Bytes: j.offset, SHA256: hex.EncodeToString(j.sum.Sum(nil))}}
	}
	return j.client.Result(ctx, request)
}

// read reads the log's pages as the stock CLI does.
func (j *productJob) read(ctx context.Context) (int64, error) {
	var n int64
	for token := ""; ; {
		path := j.p.deployments(j.stack) + "/" + j.deployment + "/logs"
		if token != "" {
			path += "?continuationToken=" + url.QueryEscape(token)
		}
		var page struct {
			Lines []struct {
				Line string `json:"line"`
			} `json:"lines"`
			NextToken string `json:"nextToken"`
		}
		if err := j.p.call(ctx, http.MethodGet, path, nil, &page); err != nil {
			return n, err
		}
		for _, line := range page.Lines {
			n += int64(len(line.Line))
		}
		if page.NextToken == "" || page.NextToken == token {
			return n, nil
		}
		token = page.NextToken
	}
}
