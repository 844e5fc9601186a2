package runner

import (
	"context"
	"path/filepath"
	"sync"
	"time"

	"workflowagent/internal/delivery"
	"workflowagent/internal/redact"
	"workflowagent/internal/runner/credentials"
	"workflowagent/internal/workflow"
)

// containerDir is the directory in a job's container that contains the runner's directory, and in
// which programs expect the file with the identity token.
const (
	containerDir = "/mnt/pulumi"
	fileIdentity = "pulumi.oidc"
)

// newKeeper returns the keeper of the job's cloud credentials.
func (j *job) newKeeper() (*credentials.Keeper, error) {
	opts := credentials.Options{
		Token: j.launch.OIDCToken, Server: j.server, JobDir: j.opts.JobDir,
		// A token that has arrived must be masked even if the job is ending.
		Mask:   func(secrets ...redact.Secret) error { return j.masks.Renew(context.Background(), secrets...) },
		Notify: j.notices.add, Log: j.log,
	}
	if filepath.Dir(filepath.Dir(j.opts.Self)) == containerDir {
		opts.Link = filepath.Join(containerDir, fileIdentity)
	}
	if d := j.definition.Deployment; d != nil {
		opts.Settings = d.OIDC
	}
	return credentials.New(opts)
}

// fetchCredentials performs the step that obtains cloud credentials. The runner itself performs the
// step, because it also renews them.
func (j *job) fetchCredentials(ctx context.Context, step workflow.Step, out *stepLog) delivery.Verdict {
	d := j.definition.Deployment
	if d == nil || !d.OIDC.Any() {
		return delivery.Failed(workflow.ReasonInvalidJob, "the job definition has the step %q but requests no cloud credentials", step.Name)
	}
	var err error
	j.untilStopped(ctx, func(ctx context.Context) { err = j.keeper.Fetch(ctx, j.env.Base(), out) })
	if reason, stopped := j.stop.reason(); stopped {
		return delivery.Failed(reason, "%s while %s was running", describeStop(reason), step.Name)
	}
	return endOfOwnStep(err, out)
}

// endOfOwnStep returns the verdict on a step that the runner itself performs.
func endOfOwnStep(err error, out *stepLog) delivery.Verdict {
	if err == nil {
		return delivery.Verdict{Status: workflow.StatusSucceeded}
	}
	out.line("error: " + err.Error())
	code := ExitFailed
	v := delivery.Failed(workflow.ReasonExitCode, "%v", err)
	v.ExitCode = &code
	return v
}

// cloudVariables returns the cloud credentials for a step that is about to start. Post-run commands get fresh ones
// after a request to stop, too.
func (j *job) cloudVariables(ctx context.Context, step workflow.Step) (vars map[string]string) {
	end := j.stop.interrupted
	if step.Run == workflow.RunPostRun {
		end = j.stop.killed
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(step.Timeout))
		defer cancel()
	}
	until(ctx, end, func(ctx context.Context) { vars = j.keeper.ForStep(ctx) })
	return vars
}

// untilStopped calls f with a context that ends when the job must stop.
func (j *job) untilStopped(ctx context.Context, f func(context.Context)) {
	until(ctx, j.stop.interrupted, f)
}

// until calls f with a context that also ends when a channel is closed.
func until(ctx context.Context, end <-chan struct{}, f func(context.Context)) {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-end:
			cancel()
		case <-ctx.Done():
		}
	})
	f(ctx)
	cancel()
	watching.Wait()
}

// notices are lines that the runner adds to the log of the running step, or of the next one.
type notices struct {
	mu      sync.Mutex
	out     *stepLog // nil between steps
	waiting []string
}

func (n *notices) add(line string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.out == nil {
		n.waiting = append(n.waiting, line)
		return
	}
	n.out.line(line)
}

// follow makes out the log of the running step.
func (n *notices) follow(out *stepLog) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.out = out
	if out == nil {
		return
	}
	for _, line := range n.waiting {
		out.line(line)
	}
	n.waiting = nil
}
