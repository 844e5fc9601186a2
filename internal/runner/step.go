package runner

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"workflowagent/internal/delivery"
	"workflowagent/internal/protocol"
	"workflowagent/internal/runner/process"
	"workflowagent/internal/runner/steps"
	"workflowagent/internal/workflow"
)

// step runs one step to its end and reports it. preRun is the index of a pre-run command.
func (j *job) step(index int, step workflow.Step, preRun int) delivery.Verdict {
	log := j.log.WithField("step", index).WithField("name", step.Name)
	stream, err := j.spool.Step(index)
	if err != nil {
		return delivery.Failed(workflow.ReasonInvalidJob, "%v", err)
	}
	out := newStepLog(j.masks, stream, j.echo(), log)
	started := time.Now()
	j.courier.ReportStep(index, protocol.StepStatusRequest{Status: workflow.StepRunning, StartedAt: &started})
	log.Info("step started")

	v := j.command(step, preRun, out)
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
	j.courier.ReportStep(index, protocol.StepStatusRequest{
		Status: state, ExitCode: v.ExitCode, StartedAt: &started, FinishedAt: &v.FinishedAt,
	})
	log.WithField("status", state).Info("step ended")
	return v
}

func (j *job) command(step workflow.Step, preRun int, out *stepLog) delivery.Verdict {
	failed := func(err error) delivery.Verdict {
		return delivery.Failed(workflow.ReasonInvalidJob, "%v", err)
	}
	for _, notice := range j.notices {
		out.line(notice)
	}
	j.notices = nil
	env, notices, secrets := j.env.ForStep()
	j.masks.Add(secrets...)
	for _, notice := range notices {
		out.line(notice)
	}
	cmd, passParams, err := j.prepareCommand(step, preRun, env)
	if err != nil {
		return failed(err)
	}
	oomBefore := process.OOMKills()
	running, err := process.Start(cmd, out)
	for _, file := range cmd.ExtraFiles {
		_ = file.Close() // the child has its own
	}
	if err != nil {
		passParams(false)
		return failed(fmt.Errorf("starting the step %q: %w", step.Name, err))
	}
	passParams(true)
	j.sessions = append(j.sessions, running.PID)
	sent := j.await(running, time.Duration(step.Timeout), out)
	if running.Drain(j.opts.Timing.Linger) {
		out.line("warning: processes that the step left running were ended, because they held its output open")
	}
	process.ReapOrphans()
	return j.judge(step, running.State, sent, process.OOMKills() > oomBefore)
}

// prepareCommand makes the command of a step. The caller must call passParams once, with
// whether the command has started: it hands over the parameters of an internal command, or
// drops them.
func (j *job) prepareCommand(step workflow.Step, preRun int, env []string) (cmd *exec.Cmd, passParams func(started bool), err error) {
	nothing := func(bool) {}
	work := filepath.Join(j.opts.JobDir, protocol.DirWork)
	args, internal, err := steps.Command(step.Run)
	if err != nil {
		return nil, nothing, err
	}
	if internal {
		params, err := steps.ParamsFor(j.opts.JobDir, j.definition.Deployment, step, preRun)
		if err != nil {
			return nil, nothing, err
		}
		cmd = exec.Command(j.opts.Self, args...) //nolint:noctx // only the stopper ends it
		cmd.Dir, cmd.Env = work, env
		pass, err := params.HandOver(cmd)
		if err != nil {
			return nil, nothing, err
		}
		return cmd, pass, nil
	}
	shell, err := steps.FindShell(j.definition.Shell)
	if err != nil {
		return nil, nothing, err
	}
	cmd = exec.Command(shell[0], append(shell[1:], "-c", step.Run)...) //nolint:noctx // only the stopper ends it
	cmd.Env = env
	cmd.Dir = work
	switch dir := step.WorkingDir; {
	case filepath.IsAbs(dir):
		cmd.Dir = dir
	case dir != "":
		cmd.Dir = filepath.Join(work, dir)
	}
	if info, err := os.Stat(cmd.Dir); err != nil || !info.IsDir() {
		return nil, nothing, fmt.Errorf("the working directory %s of the step does not exist", cmd.Dir)
	}
	return cmd, nothing, nil
}

// sent is the strongest signal that a step received.
type sent int

const (
	sentNothing sent = iota
	sentInterrupt
	sentKill
)

// await waits for the leader of the step to end. When the job must end, it sends one SIGINT,
// waits for the grace period, and sends SIGKILL.
func (j *job) await(p *process.Process, timeout time.Duration, out *stepLog) sent {
	var timedOut, outOfPatience <-chan time.Time
	if timeout > 0 {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		timedOut = timer.C
	}
	interrupted, killed := j.stop.interrupted, j.stop.killed
	what := sentNothing
	for {
		select {
		case <-p.Exited:
			return what
		case <-timedOut:
			timedOut = nil
			j.stop.interrupt(workflow.ReasonTimeout)
		case <-interrupted:
			interrupted = nil
			if what != sentNothing {
				continue
			}
			patience := j.patience()
			reason, _ := j.stop.reason()
			out.line(fmt.Sprintf("%s: asking the running command to end, and waiting up to %s for it", capital(describeStop(reason)), patience))
			if err := p.Interrupt(); err != nil {
				j.log.WithError(err).Warn("interrupting the running step failed")
			}
			what = sentInterrupt
			timer := time.NewTimer(patience)
			defer timer.Stop()
			outOfPatience = timer.C
		case <-outOfPatience:
			outOfPatience = nil
			out.line("warning: the command did not end in time and is killed; resources it was working on may be in an unknown state")
			p.Kill()
			what = sentKill
		case <-killed:
			killed = nil
			out.line("warning: the command is killed at once, as requested; resources it was working on may be in an unknown state")
			p.Kill()
			what = sentKill
		}
	}
}

// patience is the grace period after an interrupt, the longer one for a job of unknown effect.
func (j *job) patience() time.Duration {
	if d := j.definition.Deployment; d != nil && !d.Operation.Changes() {
		return j.opts.Timing.PatienceOther
	}
	return j.opts.Timing.PatienceChange
}

// judge returns how a step ended. A command that succeeds after an interrupt has succeeded,
// because that is the state of the infrastructure.
func (j *job) judge(step workflow.Step, state *os.ProcessState, what sent, oom bool) delivery.Verdict {
	code := state.ExitCode()
	v := delivery.Verdict{Status: workflow.StatusFailed, Reason: workflow.ReasonExitCode}
	status, _ := state.Sys().(syscall.WaitStatus)
	switch {
	case state.Success():
		return delivery.Verdict{Status: workflow.StatusSucceeded, ExitCode: &code}
	case status.Signaled():
		code = 128 + int(status.Signal()) // as shells report it
		v.Reason, v.Signal = workflow.ReasonSignal, process.SignalName(status.Signal())
		v.Message = fmt.Sprintf("%s was ended by the signal %s", step.Name, v.Signal)
	default:
		v.Message = fmt.Sprintf("%s ended with exit code %d", step.Name, code)
	}
	v.ExitCode = &code
	if reason, stopped := j.stop.reason(); stopped && what != sentNothing {
		v.Reason = reason
		v.Message = fmt.Sprintf("%s while %s was running", describeStop(reason), step.Name)
	} else if oom {
		v.Reason = workflow.ReasonOOM
		v.Message = fmt.Sprintf("%s ran out of memory: a process of it was killed by the kernel; give the job more memory", step.Name)
	}
	return v
}

func capital(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
