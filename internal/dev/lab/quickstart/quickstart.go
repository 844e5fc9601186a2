package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"workflowagent/internal/dev/lab"
)

const (
	stopPatience  = 20 * time.Second
	agentPatience = 30 * time.Second
)

// quickstart holds the programs and files that the command must clean up.
type quickstart struct {
	ui            *ui
	target        string
	keep          bool
	privateEngine bool

	dir    string // directory for everything except programs
	bin    string
	tools  lab.Tools
	place  place
	server *lab.Server
	poolID string
	agent  *lab.Agent
	git    *lab.GitServer

	deployed bool
	secrets  []string       // tokens, masked in logs
	undo     []func() error // in start order
}

func (q *quickstart) run(ctx context.Context) error {
	var err error
	if q.dir, err = os.MkdirTemp("", "workflow-quickstart-"); err != nil {
		return fmt.Errorf("creating a directory for the quickstart: %w", err)
	}
	q.undo = append(q.undo, func() error { return os.RemoveAll(q.dir) })

	// ^C terminates a program during its start. The cleanup stops running programs in order.
	programs, stopPrograms := context.WithCancel(context.WithoutCancel(ctx))
	defer func() { q.undo = append([]func() error{func() error { stopPrograms(); return nil }}, q.undo...) }()
	starting := func(start func() error) error {
		unlink := context.AfterFunc(ctx, stopPrograms)
		defer unlink()
		return start()
	}

	q.ui.heading("Build")
	if err := q.build(ctx); err != nil {
		return err
	}
	q.ui.heading("Start")
	if err := starting(func() error { return q.startServer(programs) }); err != nil {
		return err
	}
	if q.place, err = q.choosePlace(ctx); err != nil {
		return err
	}
	if err := starting(func() error { return q.startAgent(programs) }); err != nil {
		return err
	}
	if err := q.waitForAgent(ctx); err != nil {
		return err
	}
	demo, err := q.newDemo(ctx)
	if err != nil {
		return err
	}
	q.ui.heading("Deploy")
	if err := demo.deploy(ctx); err != nil {
		return err
	}
	q.deployed = true
	q.ui.heading("Result")
	if err := demo.show(ctx); err != nil {
		return err
	}
	return q.finish(ctx, demo)
}

// build builds the product, and concurrently finds or builds a pulumi CLI. Building the CLI mostly
// waits for downloads.
func (q *quickstart) build(ctx context.Context) error {
	root, err := lab.Root()
	if err != nil {
		return err
	}
	q.bin = filepath.Join(root, "bin")
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	product := make(chan error, 1)
	go func() {
		err := lab.BuildProduct(ctx, q.bin, q.ui.steps())
		if err == nil {
			q.ui.say("built server, agent and runner into %s", q.bin)
		} else {
			cancel()
		}
		product <- err
	}()
	err = q.findPulumi(ctx)
	if err != nil {
		cancel()
	}
	return errors.Join(<-product, err)
}

func (q *quickstart) findPulumi(ctx context.Context) error {
	tools, version, err := lab.InstalledPulumi(ctx)
	switch {
	case err == nil:
		q.tools = tools
		q.ui.say("using the installed pulumi %s, %s", version, tools.Pulumi())
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case !errors.Is(err, lab.ErrNoPulumi):
		q.ui.say("the installed pulumi cannot be used: %v", err)
	}
	if q.tools, err = lab.PulumiCLI(ctx, q.ui.steps()); err != nil {
		return err
	}
	q.ui.say("pulumi %s is ready, built from its pinned Go modules: %s", lab.PulumiVersion, q.tools.Pulumi())
	return nil
}

func (q *quickstart) startServer(ctx context.Context) error {
	server, err := lab.StartServer(ctx, lab.ServerOptions{
		Binary: filepath.Join(q.bin, "workflow-server"), Dir: q.dir,
		Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + q.dir, "TMPDIR=" + os.TempDir()},
	})
	if err != nil {
		return err
	}
	q.server = server
	q.secrets = append(q.secrets, server.Token)
	q.undo = append(q.undo, func() error { return server.Process.Stop(syscall.SIGTERM, stopPatience) })
	q.ui.say("server on %s, organization %q, data in %s", server.URL, server.Organization, server.DataDir)
	return nil
}

func (q *quickstart) startAgent(ctx context.Context) error {
	poolID, token, err := q.server.Pool(ctx, "quickstart")
	if err != nil {
		return err
	}
	q.poolID = poolID
	q.secrets = append(q.secrets, token)
	agent, err := lab.StartAgent(ctx, lab.AgentOptions{
		Binary: filepath.Join(q.bin, "customer-managed-workflow-agent"), Dir: q.dir,
		ServiceURL: q.server.URL, Token: token, Target: q.place.target, Settings: q.place.settings,
		Env: append([]string{
			"PATH=" + q.tools.Dir + string(os.PathListSeparator) + os.Getenv("PATH"),
			"HOME=" + q.dir, "TMPDIR=" + os.TempDir(),
		}, q.place.env...),
	})
	if err != nil {
		return err
	}
	q.agent = agent
	q.undo = append(q.undo, func() error { return agent.Process.Stop(syscall.SIGTERM, stopPatience) })
	// A stopping agent leaves its jobs running, so the jobs must finish first.
	q.undo = append(q.undo, q.cancelDeployments)
	return nil
}

func (q *quickstart) waitForAgent(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, agentPatience,
		fmt.Errorf("the agent did not connect to the server within %s", agentPatience))
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		var pool struct {
			Agents []struct {
				Status string `json:"status"`
			} `json:"agents"`
		}
		err := q.server.Call(ctx, "GET", "/api/orgs/"+q.server.Organization+"/agent-pools/"+q.poolID, nil, &pool)
		if err == nil && len(pool.Agents) > 0 && pool.Agents[0].Status == "online" {
			q.ui.say("agent online in the pool \"quickstart\"")
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-q.agent.Process.Done():
			return fmt.Errorf("the agent exited: %w", q.agent.Process.Err())
		case <-ticker.C:
		}
	}
}

// signInLink returns a link that signs a browser in to the console.
func (q *quickstart) signInLink(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, filepath.Join(q.bin, "workflow-server"), "admin", "sign-in", "admin",
		"--data-dir", q.server.DataDir, "--external-url", q.server.URL).Output()
	if err != nil {
		return "", fmt.Errorf("making a sign-in link: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// finish prints the next steps, and with keep waits for ^C.
func (q *quickstart) finish(ctx context.Context, demo *demo) error {
	if !q.keep {
		q.ui.heading("Done")
		q.ui.note("`make quickstart KEEP=1` leaves it all running, and shows how to deploy a change.")
		if q.place.image != "" && !q.privateEngine {
			q.ui.note("The image %s stays in your Docker Engine for the next time; `docker rmi` removes it.", q.place.image)
		}
		q.ui.note("README.md has the next steps; docs/ARCHITECTURE.md explains how it works.")
		return nil
	}
	environment, err := demo.writeEnvironment()
	if err != nil {
		return err
	}
	q.ui.heading("Your turn (^C stops and removes everything)")
	q.ui.note("server   %s   log %s", q.server.URL, q.server.LogFile)
	link, err := q.signInLink(ctx)
	if err != nil {
		return err
	}
	q.ui.note("console  %s   (signs you in once, within 10 minutes)", link)
	q.ui.note("agent    target %s   log %s", q.place.target, q.agent.LogFile)
	q.ui.note("program  %s, a clone of %s", demo.work, demo.repo.URL)
	q.ui.note("")
	q.ui.note("In another terminal:")
	q.ui.note("  . %s     # pulumi, logged in", environment)
	q.ui.note("  cd %s", demo.work)
	q.ui.note("  pulumi config set name you && git commit -qam 'Greet you' && git push -q")
	q.ui.note("  pulumi deployment run update --suppress-stream-logs=false")
	q.ui.note("  pulumi stack history; pulumi stack output --show-secrets")
	select {
	case <-ctx.Done():
	case <-q.server.Process.Done():
		return fmt.Errorf("the server exited: %w", q.server.Process.Err())
	case <-q.agent.Process.Done():
		return fmt.Errorf("the agent exited: %w", q.agent.Process.Err())
	}
	return nil
}
