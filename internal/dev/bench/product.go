package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"workflowagent/internal/dev/bench/figures"
	"workflowagent/internal/dev/lab"
)

// product is a workflow-server and, if started, an agent.
type product struct {
	b                 *bench
	dir               string
	server            *lab.Server
	agent             *lab.Agent
	http              *http.Client
	poolID, poolToken string
	stack             string // organization/project/stack
	variables         map[string]any
	agents            int
	// target is where agents run jobs: "process", or "kubernetes" with an image.
	target, image string
	env           []string // of agents
}

// startProduct starts a server that listens on host, or on 127.0.0.1 for "", with further arguments.
func (b *bench) startProduct(ctx context.Context, host string, args ...string) (_ *product, err error) {
	dir, err := b.newDir()
	if err != nil {
		return nil, err
	}
	p := &product{b: b, dir: dir, http: newClient(), variables: map[string]any{}, target: "process"}
	p.server, err = lab.StartServer(ctx, lab.ServerOptions{
		Binary: filepath.Join(b.bin, "workflow-server"), Dir: dir, Host: host, Env: os.Environ(), Args: args,
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	if p.poolID, p.poolToken, err = p.server.Pool(ctx, "bench"); err != nil {
		return nil, err
	}
	if err = p.server.Call(ctx, http.MethodPatch, "/api/orgs/"+p.server.Organization, map[string]string{"setDefaultAgentPoolID": p.poolID}, nil); err != nil {
		return nil, err
	}
	p.stack, err = p.newStack(ctx, "job")
	return p, err
}

func (p *product) newStack(ctx context.Context, name string) (string, error) {
	project := "/api/stacks/" + p.server.Organization + "/bench"
	if err := p.server.Call(ctx, http.MethodPost, project, map[string]string{"stackName": name}, nil); err != nil {
		return "", err
	}
	return p.server.Organization + "/bench/" + name, nil
}

// startAgent starts an agent that connects to the server at url, and waits until the agent is
// online.
func (p *product) startAgent(ctx context.Context, url string, settings map[string]string) error {
	if err := p.launchAgent(ctx, url, settings); err != nil {
		return err
	}
	return until(ctx, 20*time.Millisecond, 30*time.Second, "the agent's first poll", func() (bool, error) {
		var pool struct {
			Agents []struct {
				Status string `json:"status"`
			} `json:"agents"`
		}
		err := p.server.Call(ctx, http.MethodGet, "/api/orgs/"+p.server.Organization+"/agent-pools/"+p.poolID, nil, &pool)
		return len(pool.Agents) > 0 && pool.Agents[0].Status == "online", err
	})
}

// launchAgent starts an agent without waiting for it.
func (p *product) launchAgent(ctx context.Context, url string, settings map[string]string) error {
	p.agents++
	dir := filepath.Join(p.dir, fmt.Sprintf("agent%d", p.agents))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("creating a directory for the agent: %w", err)
	}
	// The jobs have no source: pulumi searches the job's directory and its parents for a project,
	// and finds this one.
	if err := os.WriteFile(filepath.Join(dir, "Pulumi.yaml"), []byte("name: bench\nruntime: yaml\n"), 0o600); err != nil {
		return fmt.Errorf("writing the project file: %w", err)
	}
	var err error
	p.agent, err = lab.StartAgent(ctx, lab.AgentOptions{
		Binary: filepath.Join(p.b.bin, "customer-managed-workflow-agent"), Dir: dir,
		ServiceURL: url, Token: p.poolToken, Target: p.target, Settings: settings,
		Env: append([]string{"PATH=" + p.b.stubs + string(os.PathListSeparator) + os.Getenv("PATH"), "HOME=" + dir}, p.env...),
	})
	return err
}

func (p *product) enqueue(ctx context.Context, command, file string) (string, error) {
	return p.enqueueAt(ctx, p.stack, command, file)
}

// enqueueAt creates a deployment of a stack whose pre-run command is the job; pulumi is a stub.
func (p *product) enqueueAt(ctx context.Context, stack, command, file string) (string, error) {
	variables := map[string]any{"BENCH_STAMP": file}
	maps.Copy(variables, p.variables)
	request := map[string]any{
		"operation": "update",
		"operationContext": map[string]any{
			"preRunCommands":       []string{command},
			"environmentVariables": variables,
			"options":              map[string]any{"skipInstallDependencies": true},
		},
	}
	if p.image != "" {
		request["executorContext"] = map[string]any{"executorImage": p.image}
	}
	var d struct {
		ID string `json:"id"`
	}
	err := p.server.Call(ctx, http.MethodPost, "/api/stacks/"+stack+"/deployments", request, &d)
	return d.ID, err
}

func (p *product) finished(ctx context.Context, job string) (bool, error) {
	switch status, err := p.status(ctx, job); status {
	case "failed", "skipped":
		return false, fmt.Errorf("deployment %s has status %s; its log:\n%s\nthe agent's log:\n%s", job, status, p.log(ctx, job), lab.Tail(p.agent.LogFile, 20))
	default:
		return status == "succeeded", err
	}
}

func (p *product) status(ctx context.Context, job string) (string, error) {
	header := http.Header{"Authorization": {"token " + p.poolToken}}
	body, err := call(ctx, p.http, http.MethodGet, p.server.URL+"/api/deployments/"+job+"/status", header, nil)
	return strings.Trim(strings.TrimSpace(string(body)), `"`), err
}

func (p *product) log(ctx context.Context, job string) string {
	var out strings.Builder
	if err := lines(ctx, p, job, func(line string) { out.WriteString(line + "\n") }); err != nil {
		fmt.Fprintln(&out, err)
	}
	return out.String()
}

// page reads the log as the stock CLI does. A line that the job printed in parts can arrive in
// parts, of which only the last has a newline.
func (p *product) page(ctx context.Context, job, token string) (text, next string, err error) {
	header := http.Header{"Authorization": {"token " + p.server.Token}}
	url := p.server.URL + "/api/stacks/" + p.stack + "/deployments/" + job + "/logs"
	if token != "" {
		url += "?continuationToken=" + token
	}
	body, err := call(ctx, p.http, http.MethodGet, url, header, nil)
	if err != nil {
		return "", "", err
	}
	var answer struct {
		Lines []struct {
			Line string `json:"line"`
		} `json:"lines"`
		NextToken string `json:"nextToken"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return "", "", fmt.Errorf("reading a log: %w", err)
	}
	var all strings.Builder
	for _, line := range answer.Lines {
		all.WriteString(line.Line)
	}
	return all.String(), answer.NextToken, nil
}

func (p *product) agentPID() int           { return p.agent.Process.Pid() }
func (p *product) serverPID() int          { return p.server.Process.Pid() }
func (p *product) last(file string) string { return file + ".pulumi" }

func (p *product) stopAgent() {
	if p.agent == nil {
		return
	}
	jobs := figures.Tree(p.agentPID())[1:]
	_ = p.agent.Process.Stop(syscall.SIGTERM, stopPatience)
	p.agent = nil
	// An agent that stops leaves its jobs running. The jobs of an interrupted run would keep
	// running without a server.
	for _, pid := range jobs {
		if program, err := os.Readlink(figures.ProcFile(pid, "exe")); err == nil && strings.HasPrefix(program, p.b.dir) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

func (p *product) close() {
	p.stopAgent()
	_ = p.server.Process.Stop(syscall.SIGTERM, stopPatience)
	p.http.CloseIdleConnections()
}

var _ site = (*product)(nil)
