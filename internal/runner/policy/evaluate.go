package policy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"workflowagent/internal/policypack"
	"workflowagent/internal/runner/languagehost"
	"workflowagent/internal/runner/process"
	"workflowagent/internal/runner/pulumi"
	"workflowagent/internal/termtext"
	"workflowagent/internal/words"
	"workflowagent/internal/workflow"
)

// Evaluate runs the packs on the state, one after the other. Each has its own directory, which is removed with all of
// the pack's processes before the next one runs.
func Evaluate(ctx context.Context, p *Params, out io.Writer) error {
	results, err := p.readResults()
	if err != nil {
		return err
	}
	program, err := pulumi.Find()
	if err != nil {
		return err
	}
	end := time.Now().Add(time.Duration(p.Remaining))
	all := make([]found, len(p.Evaluation.Packs))
	for i, pack := range p.Evaluation.Packs {
		if results.Packs[i].Error != "" {
			continue // the step before has reported it
		}
		r := &run{params: p, pack: pack, archive: p.packs[i], program: program, out: out, end: end, others: len(all) - i - 1}
		err := r.evaluate(ctx)
		name := termtext.OneLine(pack.Label(), maxShown)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("the evaluation was interrupted: %w", context.Cause(ctx))
		case errors.Is(err, errSurvivors):
			return fmt.Errorf("%s: %w", name, err)
		case err != nil:
			results.Packs[i].Error = termtext.OneLine(err.Error(), maxError)
			fmt.Fprintf(out, "%s: could not be evaluated: %s\n", name, results.Packs[i].Error)
			continue
		}
		fmt.Fprintf(out, "%s: %s\n", name, words.Count(len(r.found.violations), "violation"))
		all[i] = r.found
		fit(all[:i+1])
	}
	for i, f := range all {
		results.Violations = append(results.Violations, f.violations...)
		results.Packs[i].Truncated = f.truncated
		results.Truncated = results.Truncated || f.truncated
	}
	if err := p.writeResults(results); err != nil {
		return err
	}
	return failed(results)
}

// timeout returns the time that a pack may take before others, or 0 for no limit. It is at most half of what remains until
// end, so that packs that hang leave time to the others.
func (p *Params) timeout(end time.Time, others int) (time.Duration, error) {
	limit := time.Duration(p.Evaluation.PackTimeout)
	if p.Remaining <= 0 {
		return limit, nil
	}
	left, least := time.Until(end), time.Duration(p.Remaining)/60
	if left < least {
		return 0, errors.New("the packs before it took the whole time of the evaluation")
	}
	if others > 0 {
		left = max(left/2, least)
	}
	if limit > 0 {
		left = min(limit, left)
	}
	return left, nil
}

// run is the evaluation of one pack.
type run struct {
	params  *Params
	pack    workflow.PolicyPack
	archive *os.File
	program string // path of pulumi
	out     io.Writer
	end     time.Time // of the time for all packs
	others  int       // that follow

	dir    string // of this pack alone
	opened opened
	found  found
}

func (r *run) evaluate(ctx context.Context) (err error) {
	fmt.Fprintf(r.out, "%s:\n", termtext.OneLine(r.pack.Label(), maxShown))
	timeout, err := r.params.timeout(r.end, r.others)
	if err != nil {
		return err
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, fmt.Errorf("it did not end within %s, so it was killed", timeout.Round(time.Millisecond)))
		defer cancel()
	}
	if r.dir, err = os.MkdirTemp(r.params.JobDir, "pack-"); err != nil {
		return fmt.Errorf("creating the pack's directory: %w", err)
	}
	defer func() {
		if removeErr := os.RemoveAll(r.dir); err == nil && removeErr != nil {
			err = fmt.Errorf("removing the pack's directory: %w", removeErr)
		}
	}()
	if err := r.openEnvironments(ctx); err != nil {
		return err
	}
	if err := r.unpack(ctx); err != nil {
		return err
	}
	log := &boundedLog{out: r.out, left: maxPackLog}
	if err := r.command(ctx, nil, log, log, pulumi.Install()...); err != nil {
		return fmt.Errorf("installing its dependencies: %w", explain(err, log))
	}
	return r.analyze(ctx)
}

func (r *run) path(name string) string { return filepath.Join(r.dir, name) }

// The files in a pack's directory.
const (
	dirPack    = "pack"
	dirHome    = "home"
	dirTmp     = "tmp"
	dirPulumi  = "pulumi" // PULUMI_HOME
	dirHost    = "host"   // for the language host of packs that are programs
	fileState  = "state.json"
	fileConfig = "config.json"
)

// unpack writes the pack's directory.
func (r *run) unpack(ctx context.Context) error {
	sum, err := digest(r.pack)
	if err != nil {
		return err
	}
	for _, name := range []string{dirHome, dirTmp, dirPulumi} {
		if err := os.Mkdir(r.path(name), 0o700); err != nil {
			return fmt.Errorf("creating the pack's directories: %w", err)
		}
	}
	if _, err := r.archive.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("reading the pack's archive: %w", err)
	}
	if err := policypack.Unpack(ctx, r.archive, sum, r.path(dirPack)); err != nil {
		return err
	}
	config, err := r.configuration()
	if err != nil {
		return err
	}
	if err := os.WriteFile(r.path(fileConfig), config, 0o600); err != nil {
		return fmt.Errorf("writing the pack's configuration: %w", err)
	}
	return r.copyState()
}

func (r *run) copyState() error {
	state, err := os.OpenFile(r.path(fileState), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err == nil {
		if _, err = r.params.state.Seek(0, io.SeekStart); err == nil {
			_, err = io.Copy(state, r.params.state)
		}
		err = errors.Join(err, state.Close())
	}
	if err != nil {
		return fmt.Errorf("writing the state for the pack: %w", err)
	}
	return nil
}

// analyze runs the pack and collects what it finds.
func (r *run) analyze(ctx context.Context) error {
	events := &eventReader{pack: r.pack, log: &boundedLog{out: r.out, left: maxPackLog}}
	paths, err := r.writeFiles()
	if err != nil {
		return err
	}
	vars := map[string]string{}
	maps.Copy(vars, r.opened.vars)
	maps.Copy(vars, paths) // as for deployments
	err = r.command(ctx, vars, events, events.log, pulumi.Analyze(r.path(fileState), r.path(dirPack), r.path(fileConfig))...)
	events.close()
	r.found = events.found
	switch _, exited := errors.AsType[*exec.ExitError](err); {
	case err == nil, exited && events.summary:
		return nil // it exits with 1 after mandatory violations
	default:
		return explain(err, events.log)
	}
}

// explain returns the error of a command, or the last line of its output instead of its exit code.
func explain(err error, log *boundedLog) error {
	if _, exited := errors.AsType[*exec.ExitError](err); exited && log.last() != "" {
		return errors.New(log.last())
	}
	return err
}

// errSurvivors ends the step, and the evaluation: no result from next to these processes would count.
var errSurvivors = errors.New("the pack started processes that could not be killed, so no pack after it was evaluated and nothing is reported: remove the pack from the policy group, or repair it")

// lingering is the time for which the output of an exited command is read, because its children can hold it open.
const lingering = 2 * time.Second

// command runs pulumi in the pack's directory, with additional variables. When ctx is done or too much output arrives, it is killed with all of its
// processes: nothing that it does matters then.
func (r *run) command(ctx context.Context, vars map[string]string, stdout, stderr io.Writer, args ...string) error {
	ctx, kill := context.WithCancelCause(ctx)
	defer kill(nil)
	if r.opened.masks != nil {
		out, errs := r.opened.masks.Writer(stdout), r.opened.masks.Writer(stderr)
		defer func() { _ = errors.Join(out.Close(), errs.Close()) }() // what they write to never fails
		stdout, stderr = out, errs
	}
	env, err := languagehost.Install(r.environ(vars), r.params.Self, r.path(dirHost))
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, r.program, args...)
	cmd.Dir, cmd.Env = r.path(dirPack), env
	cmd.Stdout, cmd.Stderr = &flood{to: stdout, left: maxPackOutput, kill: kill}, &flood{to: stderr, left: maxPackOutput, kill: kill}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.WaitDelay = lingering
	cmd.Cancel = func() error {
		process.KillSessions(cmd.Process.Pid)
		return cmd.Process.Kill()
	}
	err = cmd.Run()
	process.KillSessions(cmd.Process.Pid)
	if !process.KillDescendants() {
		return errSurvivors
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // pulumi has succeeded; a process that it left open held its output
	}
	return err
}

// environ returns the environment of the pack: that of the image without anything of pulumi's, additional variables, and its
// own directories.
func (r *run) environ(more map[string]string) []string {
	vars := map[string]string{}
	for _, entry := range os.Environ() {
		if name, value, ok := strings.Cut(entry, "="); ok && !strings.HasPrefix(name, "PULUMI_") {
			vars[name] = value
		}
	}
	maps.Copy(vars, more)
	maps.Copy(vars, map[string]string{
		"HOME": r.path(dirHome), "TMPDIR": r.path(dirTmp), "PWD": r.path(dirPack), "PULUMI_HOME": r.path(dirPulumi), "PULUMI_SKIP_UPDATE_CHECK": "true",
		"PULUMI_CREDENTIALS_PATH": r.path(dirHome),
	})
	var env []string
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		env = append(env, name+"="+vars[name])
	}
	return env
}
