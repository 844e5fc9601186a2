package fleet

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"time"

	"workflowagent/internal/dev/bench/figures"
	"workflowagent/internal/dev/bench/site"
	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

// hold is the time for which agents ask a server to hold a poll.
const hold = 25 * time.Second

// product is a site with a pool of agents and stacks.
type product struct {
	*site.Site
	clients   []*protocol.Client // one per server
	pool      string
	poolToken string
	stacks    int
}

// start starts a site with the given number of stacks. The caller must close it.
func start(ctx context.Context, run *figures.Run, o site.Options, stacks int) (_ *product, err error) {
	o.Args = append(o.Args, "--max-deployments", "10000")
	s, err := site.Start(ctx, run, o)
	if err != nil {
		return nil, err
	}
	p := &product{Site: s, stacks: stacks}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	for _, server := range s.Servers {
		client, err := protocol.NewClient(protocol.Options{BaseURL: server.URL, HTTPClient: s.HTTP})
		if err != nil {
			return nil, err
		}
		p.clients = append(p.clients, client)
	}
	if p.pool, p.poolToken, err = s.Pool(ctx); err != nil {
		return nil, err
	}
	return p, each(stacks, 8, func(i int) error { return s.NewStack(ctx, p.stack(i)) })
}

func (p *product) stack(i int) string { return fmt.Sprintf("s%05d", i%max(p.stacks, 1)) }

// enqueue starts a job of a stack. The number selects the stack; a stack runs one job at a time.
func (p *product) enqueue(ctx context.Context, stack int) (deployment string, err error) {
	return p.Enqueue(ctx, p.stack(stack), "print", map[string]string{})
}

// poll makes one poll of an agent and returns its job, or nil.
func (p *product) poll(ctx context.Context, agent int) (*job, error) {
	name := fmt.Sprintf("agent-%05d", agent)
	result, err := p.clients[agent%len(p.clients)].Poll(ctx, p.poolToken, protocol.PollRequest{
		AgentID: name, SessionID: name, PollID: rand.Text(), Hostname: name, PID: agent + 1, Version: "v1.0.0", Platform: "linux/amd64",
		FreeSlots: 1, Interval: time.Minute, Wait: hold,
	})
	if err != nil || result.Job == nil {
		return nil, err
	}
	claim := result.Job
	j := &job{deployment: claim.TypeSpecificID, turn: agent, sum: sha256.New()}
	for _, c := range p.clients {
		j.clients = append(j.clients, c.Job(claim.JobID, claim.JobToken))
	}
	return j, nil
}

// job makes the calls of an agent and a runner for a job. Consecutive calls reach different servers.
type job struct {
	clients    []*protocol.JobClient
	turn       int
	deployment string
	offset     int64
	sum        hash.Hash
}

func (j *job) next() *protocol.JobClient {
	j.turn++
	return j.clients[j.turn%len(j.clients)]
}

// start makes the calls before the first step.
func (j *job) start(ctx context.Context) error {
	if _, err := j.next().Definition(ctx); err != nil {
		return err
	}
	_, err := j.next().Heartbeat(ctx, protocol.PhaseStarting)
	return err
}

// logStep is the step that prints: the pre-run command.
const logStep = 1

// write appends text to the log.
func (j *job) write(ctx context.Context, text []byte) error {
	framed := protocol.AppendFrame(nil, time.Now(), false, bytes.TrimSuffix(text, []byte("\n")))
	j.sum.Write(framed)
	ack, err := j.next().PutLog(ctx, logStep, j.offset, framed, false)
	if err != nil {
		return err
	}
	j.offset += int64(len(framed))
	if ack.Received != j.offset {
		return fmt.Errorf("the server has %d bytes of the log, and not %d", ack.Received, j.offset)
	}
	return nil
}

func (j *job) finish(ctx context.Context) error {
	request := protocol.ResultRequest{Status: workflow.StatusSucceeded, FinishedAt: time.Now()}
	if j.offset > 0 {
		request.Steps = []protocol.StepResult{{Step: logStep, Bytes: j.offset, SHA256: hex.EncodeToString(j.sum.Sum(nil))}}
	}
	return j.next().Result(ctx, request)
}

// printed returns n bytes of lines.
func printed(n int) []byte {
	const length = 100 // newline included
	line := append(bytes.Repeat([]byte("x"), length-1), '\n')
	return bytes.Repeat(line, n/length)
}
