package steps

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"workflowagent/internal/runner/lockfiles"
	"workflowagent/internal/runner/process"
	"workflowagent/internal/runner/pulumi"
	"workflowagent/internal/runner/source"
	"workflowagent/internal/workflow"
)

// DirGit is the directory, in the job's, of the files that git needs only while it runs.
const DirGit = "git"

// SourceGit fetches the job's git source.
func SourceGit(ctx context.Context, p *Params, self string, out io.Writer) error {
	if p.Git == nil {
		return errors.New("the job has no git source")
	}
	git := source.Git{
		Source:  *p.Git,
		Dir:     p.WorkDir,
		Private: filepath.Join(p.JobDir, DirGit),
		Askpass: self,
		Environ: os.Environ(),
		Log:     out,

		AllowedRepositories: p.Allowed,
	}
	if p.Workspace == nil {
		checkout, err := git.Fetch(ctx)
		if err != nil {
			return err
		}
		return p.recordCommit(checkout.Commit)
	}
	git.Keep = &source.Keep{Git: p.Workspace.Git, Kept: p.Workspace.Checkout, Dependencies: p.Workspace.Installed != nil}
	checkout, err := git.Fetch(ctx)
	report := Report{}
	if source.IsFull(err) {
		fmt.Fprintln(out, "Workspace: not used, because its disk is full")
		git.Dir, git.Keep, report.Full = p.Workspace.Spare, nil, true
		checkout, err = git.Fetch(ctx)
	}
	if err == nil {
		err = p.recordCommit(checkout.Commit)
	}
	if err != nil {
		return err
	}
	report.Reused, report.Received, report.Checkout = checkout.Reused, checkout.Received, checkout.Kept
	return p.report(report)
}

// fileCommit contains the hash of the commit that [SourceGit] has checked out.
const fileCommit = "commit"

func (p *Params) recordCommit(hash string) error {
	if err := os.WriteFile(filepath.Join(p.JobDir, fileCommit), []byte(hash), 0o600); err != nil {
		return fmt.Errorf("recording the commit: %w", err)
	}
	return nil
}

// Commit returns the commit that [SourceGit] has checked out for a job, or "". Later steps can change it.
func Commit(jobDir string) string {
	hash, err := os.ReadFile(filepath.Join(jobDir, fileCommit))
	if err != nil || len(hash) > 64 {
		return ""
	}
	return string(hash)
}

// Dependencies installs the program's dependencies with the pulumi command line, which replaces
// this process. It returns only if no dependencies can be installed yet, if the program has none,
// or on an error.
func Dependencies(ctx context.Context, p *Params, out io.Writer) error {
	root, dir, err := p.program()
	if err != nil {
		return err
	}
	file, err := pulumi.FindProject(root, dir)
	if errors.Is(err, pulumi.ErrNoProject) && p.Generated {
		fmt.Fprintln(out, "Skipping the installation: Pulumi.yaml does not exist before the pre-run commands")
		return nil
	}
	if err != nil {
		return err
	}
	project, err := pulumi.ReadProject(file)
	if err != nil {
		return err
	}
	if !project.NeedsInstall() {
		fmt.Fprintf(out, "Programs of the runtime %s have no dependencies to install\n", project.Runtime)
		return nil
	}
	if p.Workspace != nil {
		skip, err := p.skipInstall(ctx, lockfiles.Program{
			Root: root, Dir: dir, File: file, Project: project, Environ: os.Environ(), Secrets: p.Workspace.Secrets,
		}, out)
		if err != nil || skip {
			return err
		}
	}
	return become(dir, pulumi.Find, pulumi.Install())
}

// skipInstall reports whether the dependencies are those that an earlier job installed. It reports to the
// runner what the dependencies are if the step succeeds.
func (p *Params) skipInstall(ctx context.Context, program lockfiles.Program, out io.Writer) (skip bool, err error) {
	var report Report
	stamp, err := lockfiles.Describe(program)
	earlier := p.Workspace.Installed
	switch {
	case err == nil:
		report.Installed = stamp
		report.Reused = earlier != nil && *earlier == *stamp && stamp.Complete(program.Root)
	case lockfiles.Reconciles(program.Project):
		report.Doubt, report.Installed = err.Error(), &lockfiles.Stamp{}
	default:
		report.Doubt = err.Error()
	}
	if earlier != nil && !report.Reused && !lockfiles.Reconciles(program.Project) {
		if err := earlier.Remove(ctx, program.Root); err != nil {
			return false, fmt.Errorf("removing the dependencies of an earlier job: %w", err)
		}
	}
	if report.Reused {
		fmt.Fprintln(out, "Skipping the installation: the workspace has the dependencies, and the lock file is unchanged")
	}
	return report.Reused, p.report(report)
}

// PreRun replaces this process with the shell that runs one of the deployment's pre-run commands.
func PreRun(p *Params, out io.Writer) error {
	_, dir, err := p.program()
	if err != nil {
		return err
	}
	shell, err := FindShell(p.Shell)
	if err != nil {
		return err
	}
	// Print the command as a shell with -x does.
	fmt.Fprintln(out, "+ "+strings.ReplaceAll(strings.TrimSpace(p.Command), "\n", "\n+ "))
	find := func() (string, error) { return shell[0], nil }
	return become(dir, find, append(shell[1:], "-c", p.Command))
}

// Pulumi replaces this process with the pulumi command line that runs the operation on the stack.
// Before a remediation, it detects drift in a child process.
func Pulumi(p *Params, op workflow.Operation, out io.Writer) error {
	root, dir, err := p.program()
	if err != nil {
		return err
	}
	if _, err := pulumi.FindProject(root, dir); err != nil {
		return err
	}
	args, err := pulumi.Operation(op, p.Stack)
	if err != nil {
		return err
	}
	if p.JournalURL != "" {
		if err := pulumi.SkipCheckpoints(p.JournalURL, dir); err != nil {
			return err
		}
	}
	if op == workflow.OperationDetectDrift && p.Remediate {
		drift, err := detect(dir, args)
		if err != nil || !drift {
			return err
		}
		fmt.Fprintln(out, "Drift was detected; remediating it")
		if args, err = pulumi.Operation(workflow.OperationRemediateDrift, p.Stack); err != nil {
			return err
		}
	}
	return become(dir, pulumi.Find, args)
}

// RemoveStack replaces this process with the pulumi command line that deletes the stack.
func RemoveStack(p *Params) error {
	_, dir, err := p.program()
	if err != nil {
		return err
	}
	return become(dir, pulumi.Find, pulumi.RemoveStack(p.Stack))
}

// program returns the real paths of the program and its root. root is "" if the program is part of
// the image.
func (p *Params) program() (root, dir string, err error) {
	if p.ProgramDir != "" {
		info, err := os.Stat(p.ProgramDir)
		if err != nil || !info.IsDir() {
			return "", "", fmt.Errorf("the working directory %s does not exist in the image", p.ProgramDir)
		}
		return "", p.ProgramDir, nil
	}
	if root, err = source.ProgramDir(p.WorkDir, ""); err != nil {
		return "", "", err
	}
	dir, err = source.ProgramDir(p.WorkDir, p.RepoDir)
	return root, dir, err
}

// become replaces this process with the program that find returns, in dir. As the leader of the
// step, that program itself receives the one SIGINT of a cancellation. become returns only on an
// error.
func become(dir string, find func() (string, error), args []string) error {
	path, err := find()
	if err != nil {
		return err
	}
	if err := os.Chdir(dir); err != nil {
		return fmt.Errorf("entering the program's directory: %w", err)
	}
	if err := os.Setenv("PWD", dir); err != nil {
		return fmt.Errorf("entering the program's directory: %w", err)
	}
	args = append([]string{filepath.Base(path)}, args...)
	err = syscall.Exec(path, args, os.Environ())
	return fmt.Errorf("starting %s: %w", path, process.ExplainStart(err, args, os.Environ()))
}

// detect runs pulumi to detect drift and reports whether it found any. It does not replace this
// process, because more work might follow. As the step's leader, it forwards one interrupt.
func detect(dir string, args []string) (drift bool, err error) {
	path, err := pulumi.Find()
	if err != nil {
		return false, err
	}
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, syscall.SIGINT)
	defer signal.Stop(interrupts)
	cmd := exec.Command(path, args...) //nolint:noctx // exits by itself or after the forwarded interrupt
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "PWD="+dir)
	if err := cmd.Start(); err != nil {
		return false, fmt.Errorf("starting %s: %w", path, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	interrupted := false
	for {
		select {
		case <-interrupts:
			if !interrupted {
				interrupted = true
				_ = cmd.Process.Signal(syscall.SIGINT) // fails only if the command has exited
			}
		case err = <-ended:
			var exit *exec.ExitError
			switch {
			case err == nil:
				return false, nil
			case interrupted:
				return false, errors.New("drift detection was interrupted")
			case errors.As(err, &exit) && exit.ExitCode() == pulumi.ExitNoChanges:
				return true, nil
			}
			return false, fmt.Errorf("detecting drift: %w", err)
		}
	}
}
