package runner

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"workflowagent/internal/delivery"
	"workflowagent/internal/protocol"
	"workflowagent/internal/runner/languagehost"
	"workflowagent/internal/runner/policy"
	"workflowagent/internal/runner/process"
	"workflowagent/internal/runner/steps"
	"workflowagent/internal/workflow"
)

// step runs one step and reports its result. number is the index of its command among those that run before
// the operation, or among those that run after it.
func (j *job) step(ctx context.Context, index int, step workflow.Step, number int) delivery.Verdict {
	log := j.log.WithField("step", index).WithField("name", step.Name)
	stream, err := j.spool.Step(index)
	if err != nil {
		return delivery.Failed(workflow.ReasonInvalidJob, "%v", err)
	}
	out := newStepLog(j.masks, stream, j.echo(), log)
	if d := j.definition.Deployment; d != nil && d.OpensEnvironments {
		out.output = func() bool { return j.openings.await(ctx) }
	}
	started := time.Now()
	j.courier.ReportStep(index, protocol.StepStatusRequest{Status: workflow.StepRunning, StartedAt: &started, PulumiVersion: j.pulumiVersion})
	log.Info("step started")

	j.notices.follow(out)
	v := j.command(ctx, step, number, out)
	j.keeper.StepEnded()
	j.notices.follow(nil)
	if advice := out.missingHost(); advice != "" && v.Reason == workflow.ReasonExitCode {
		out.line("error: " + advice)
	}
	if v.Status != workflow.StatusSucceeded && !strings.HasPrefix(out.lastLine(), "error: ") {
		out.line("error: " + v.Message)
	}
	if last := out.lastLine(); v.Reason == workflow.ReasonExitCode && strings.HasPrefix(last, "error: ") {
		v.Message = fmt.Sprintf("the step %q failed: %s", step.Name, strings.TrimPrefix(last, "error: "))
	}
	out.close()
	v.FinishedAt = time.Now()
	state := workflow.StepSucceeded
	if v.Status != workflow.StatusSucceeded {
		state = workflow.StepFailed
	}
	size := stream.Size()
	report := protocol.StepStatusRequest{
		Status: state, ExitCode: v.ExitCode, StartedAt: &started, FinishedAt: &v.FinishedAt, LogBytes: &size,
	}
	if step.Run == workflow.RunSourceGit && state == workflow.StepSucceeded {
		report.Commit, report.Workspace = steps.Commit(j.opts.JobDir), j.workspaceUse()
	}
	j.courier.ReportStep(index, report)
	log.WithField("status", state).Info("step finished")
	return v
}

// workspaceUse returns the use of the workspace after the source step.
func (j *job) workspaceUse() protocol.WorkspaceUse {
	switch d := j.definition.Deployment; {
	case d == nil || d.Workspace == nil:
		return ""
	case j.keep.ws == nil:
		return protocol.WorkspaceUnused
	case j.keep.reusedFetch:
		return protocol.WorkspaceReused
	}
	return protocol.WorkspaceFresh
}

// dirHost is the directory, in the job's, of the language host if pulumi's own cannot be written.
const dirHost = "language-host"

// leftRunning is the warning about processes that keep a step from ending.
const leftRunning = "warning: killed processes that the step left running, because they held its output open: " +
	"redirect the output of background processes, as in \"command >out.log 2>&1 &\"; then they keep running until the job ends"

func (j *job) command(ctx context.Context, step workflow.Step, number int, out *stepLog) delivery.Verdict {
	failed := func(err error) delivery.Verdict {
		return delivery.Failed(workflow.ReasonInvalidJob, "%v", err)
	}
	switch step.Run {
	case workflow.RunCredentials:
		return j.fetchCredentials(ctx, step, out)
	case workflow.RunEnvironments:
		return j.openEnvironments(ctx, step, out)
	}
	began := time.Now()
	env, notices, secrets := j.env.ForStep(j.cloudVariables(ctx, step))
	post := step.Run == workflow.RunPostRun
	var maskErr error
	if post { // also if the job must stop
		maskErr = j.masks.Add(ctx, secrets...)
	} else {
		maskErr = j.mask(ctx, secrets)
	}
	if reason, stopped := j.stop.reason(); stopped && !post {
		return delivery.Failed(reason, "%s before %s was started", describeStop(reason), step.Name)
	}
	if maskErr != nil {
		return failed(fmt.Errorf("masking the secrets in PULUMI_ENV: %w", maskErr))
	}
	for _, notice := range notices {
		out.line(notice)
	}
	if strings.HasPrefix(step.Run, workflow.RunPulumi) {
		j.keep.onlyPulumi = true
		env = j.reuseCompiled(ctx, env)
	}
	env, err := languagehost.Install(env, j.opts.Self, filepath.Join(j.opts.JobDir, dirHost))
	if err != nil {
		j.log.WithError(err).Warn("policy packs that are programs will not run")
	}
	cmd, report, err := j.prepareCommand(step, number, env)
	if err != nil {
		return failed(err)
	}
	defer func() { _ = report.Close() }() // only read, and can be nil
	if err := j.env.CheckCommand(j.shellText(step, number)); err != nil {
		closeExtra(cmd)
		return failed(err)
	}
	if step.Run != workflow.RunSourceGit && step.Run != workflow.RunDependencies {
		if line := j.keep.describeReuse(); line != "" {
			out.line(line)
		}
	}
	oomBefore, started := process.OOMKills(), time.Now()
	running, err := process.Start(cmd, out)
	closeExtra(cmd)
	if err != nil {
		return failed(fmt.Errorf("starting the step %q: %w", step.Name, process.ExplainStart(err, cmd.Args, cmd.Env)))
	}
	j.sessions = append(j.sessions, running.PID)
	limits := limits{timeout: time.Duration(step.Timeout), grace: j.patience()}
	interrupt := running.Interrupt
	if post || step.Run == workflow.RunPreRun {
		interrupt = running.InterruptGroup
	}
	if post {
		limits.timeout = max(time.Nanosecond, limits.timeout-time.Since(began))
		limits.grace, limits.own = j.opts.Timing.Linger, true
	}
	sent := j.await(running, interrupt, limits, out)
	if running.Drain(j.opts.Timing.Linger) {
		out.line(leftRunning)
	}
	process.ReapOrphans()
	if warning := j.env.StepEnded(); warning != "" {
		out.line(warning)
	}
	v := j.judge(step, running.State, sent, process.OOMKills() > oomBefore)
	if _, stopped := j.stop.reason(); post && sent != sentNothing && !stopped {
		v = delivery.Failed(workflow.ReasonTimeout, "%s was interrupted, because the post-run commands took longer than %s in total", step.Name, j.opts.Timing.PostRun)
	}
	j.stepReported(ctx, step, j.reportOf(report), time.Since(started), v)
	return v
}

// prepareCommand returns the step's command, and the file for its report or nil. The caller must close the
// command's ExtraFiles.
func (j *job) prepareCommand(step workflow.Step, number int, env []string) (cmd *exec.Cmd, report *os.File, err error) {
	work := j.workDir()
	if args := policy.Command(step.Run); args != nil {
		cmd, err = j.policyCommand(step, args)
		return cmd, nil, err
	}
	args, internal, err := steps.Command(step.Run)
	if err != nil {
		return nil, nil, err
	}
	if internal {
		params, err := steps.ParamsFor(j.opts.JobDir, work, j.launch.AllowedRepositories, j.definition.Deployment, step, number)
		if err != nil {
			return nil, nil, err
		}
		params.Workspace = j.workspaceFor(step, env)
		cmd = exec.Command(j.opts.Self, args...) //nolint:noctx // only the stopper stops it
		cmd.Dir, cmd.Env = work, env
		report, err = params.HandOver(cmd)
		return cmd, report, err
	}
	shell, err := steps.FindShell(j.definition.Shell)
	if err != nil {
		return nil, nil, err
	}
	cmd = exec.Command(shell[0], append(shell[1:], "-c", steps.ShellText(step.Run))...) //nolint:noctx // only the stopper stops it
	cmd.Env = env
	if dir := step.WorkingDir; filepath.IsAbs(dir) {
		cmd.Dir = dir
	} else {
		cmd.Dir = filepath.Join(work, dir)
	}
	if info, err := os.Stat(cmd.Dir); err != nil || !info.IsDir() {
		return nil, nil, fmt.Errorf("the step's working directory %s does not exist", cmd.Dir)
	}
	return cmd, nil, nil
}

// policyCommand returns the command of a step of a policy evaluation.
func (j *job) policyCommand(step workflow.Step, args []string) (*exec.Cmd, error) {
	e := j.definition.PolicyEvaluation
	if e == nil {
		return nil, fmt.Errorf("the job definition has the step %q but no policy evaluation", step.Name)
	}
	params := policy.Params{
		JobDir: j.opts.JobDir, Self: j.opts.Self, ServiceURL: j.launch.ServiceURL, UserAgent: cmp.Or(j.launch.UserAgent, "workflow-runner/"+j.opts.Version),
		CACertPEM: j.launch.CACertPEM, Evaluation: e,
	}
	if timeout := time.Duration(j.definition.Timeout); timeout > 0 {
		const forReport = 6 // part of the job's time that remains for the report
		params.Remaining = workflow.Duration(max(time.Until(j.deadline)-timeout/forReport, time.Nanosecond))
	}
	cmd := exec.Command(j.opts.Self, args...) //nolint:noctx // only the stopper stops it
	cmd.Dir = j.workDir()
	// Unlike other steps, it ignores what earlier ones have written to PULUMI_ENV, and a token in the image.
	for name, value := range j.env.Base().Vars {
		if !strings.HasPrefix(name, "PULUMI_") {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	return cmd, params.HandOver(cmd, j.policy)
}

// shellText returns the text that a shell runs in a step, or "".
func (j *job) shellText(step workflow.Step, number int) string {
	if d := j.definition.Deployment; step.Run == workflow.RunPostRun && d != nil && number < len(d.PostRunCommands) {
		return d.PostRunCommands[number].Command
	}
	if d := j.definition.Deployment; step.Run == workflow.RunPreRun && d != nil && number < len(d.PreRunCommands) {
		return d.PreRunCommands[number]
	}
	if _, internal, _ := steps.Command(step.Run); internal || policy.Command(step.Run) != nil {
		return ""
	}
	return step.Run
}

// sent is the strongest signal that a step received.
type sent int

const (
	sentNothing sent = iota
	sentInterrupt
	sentKill
)

// limits bound a step.
type limits struct {
	timeout time.Duration // 0: none
	grace   time.Duration // from the interrupt to SIGKILL
	// own is set if the timeout does not stop the job, and the step runs although the job must stop.
	own bool
}

// await waits until the leader of the step has exited. When the job must stop, await calls interrupt
// once, waits for the grace period, and sends SIGKILL. Its lines in the log can wait for space, for the
// output that waits for space, or for the reader of the runner's output. No signal waits for them.
func (j *job) await(p *process.Process, interrupt func() error, limits limits, out *stepLog) sent {
	lines := make(chan string, 3) // at most one for each signal
	var writing sync.WaitGroup
	writing.Go(func() {
		for text := range lines {
			out.line(text)
		}
	})
	defer writing.Wait()
	defer close(lines)
	var timedOut, outOfPatience <-chan time.Time
	if limits.timeout > 0 {
		timer := time.NewTimer(limits.timeout)
		defer timer.Stop()
		timedOut = timer.C
	}
	interrupted, killed := j.stop.interrupted, j.stop.killed
	if _, stopped := j.stop.reason(); stopped && limits.own {
		interrupted = nil
	}
	what := sentNothing
	stop := func(why string) {
		if what != sentNothing {
			return
		}
		what, outOfPatience = sentInterrupt, time.After(limits.grace)
		lines <- fmt.Sprintf("%s: interrupting the running command and waiting up to %s for it to exit", capital(why), limits.grace)
		if err := interrupt(); err != nil {
			j.log.WithError(err).Warn("interrupting the running step")
		}
	}
	for {
		select {
		case <-p.Exited:
			return what
		case <-timedOut:
			timedOut = nil
			if limits.own {
				stop("the timeout of the post-run commands expired")
			} else {
				j.stop.interrupt(workflow.ReasonTimeout)
			}
		case <-interrupted:
			interrupted = nil
			reason, _ := j.stop.reason()
			stop(describeStop(reason))
		case <-outOfPatience:
			outOfPatience = nil
			lines <- "warning: killing the command, which did not exit in time; resources that it was changing may be in an unknown state"
			p.Kill()
			what = sentKill
		case <-killed:
			killed = nil
			lines <- "warning: killing the command at once, as requested; resources that it was changing may be in an unknown state"
			p.Kill()
			what = sentKill
		}
	}
}

// patience returns the grace period after an interrupt. An operation whose effect is unknown gets
// the longer period.
func (j *job) patience() time.Duration {
	if d := j.definition.Deployment; d != nil && !d.Operation.Changes() || j.definition.PolicyEvaluation != nil {
		return j.opts.Timing.PatienceOther
	}
	return j.opts.Timing.PatienceChange
}

// judge returns the verdict on a finished step. A command that exits with 0 after an interrupt has
// succeeded, because the infrastructure is in that state.
func (j *job) judge(step workflow.Step, state *os.ProcessState, what sent, oom bool) delivery.Verdict {
	code := state.ExitCode()
	v := delivery.Verdict{Status: workflow.StatusFailed, Reason: workflow.ReasonExitCode}
	status, _ := state.Sys().(syscall.WaitStatus)
	switch {
	case state.Success():
		return delivery.Verdict{Status: workflow.StatusSucceeded, ExitCode: &code}
	case status.Signaled():
		code = 128 + int(status.Signal()) // as shells report a signal
		v.Reason, v.Signal = workflow.ReasonSignal, process.SignalName(status.Signal())
		v.Message = fmt.Sprintf("%s was killed by the signal %s", step.Name, v.Signal)
	default:
		v.Message = fmt.Sprintf("%s exited with code %d", step.Name, code)
	}
	v.ExitCode = &code
	if reason, stopped := j.stop.reason(); stopped && what != sentNothing {
		v.Reason = reason
		v.Message = fmt.Sprintf("%s while %s was running", describeStop(reason), step.Name)
	} else if oom {
		v.Reason = workflow.ReasonOOM
		v.Message = fmt.Sprintf("%s ran out of memory: the kernel killed one of its processes; give the job more memory", step.Name)
	}
	return v
}

func capital(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
