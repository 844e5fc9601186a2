// Package process runs jobs as plain processes of the agent's own user, without isolation. It
// is for disposable hosts and for trying the product without a container engine, and the
// operator must select it.
//
// A job is a directory whose files contain everything that a restarted agent needs to resume the
// job:
//
//	meta.json     owner, job and labels
//	started       created by the first Start; it makes any other Start fail
//	process.json  the runner's PID, start time and boot ID
//	output.log    the runner's output
//	exit.json     the runner's exit, written by the agent that observed it
//	job/          the runner's own directory (--job-dir)
//	home/ tmp/    HOME and TMPDIR of the job
package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/executor/workspacedir"
	"workflowagent/internal/workflow"
)

// Name is this executor's deploy_target value.
const Name = "process"

// Options configure an [Executor].
type Options struct {
	RunnerPath string // absolute path of this host's workflow-runner executable
	BaseDir    string // parent directory of the job directories; created with mode 0700 if missing
	Workspaces string // absolute path of the directory of the workspaces; "" means that jobs have none
	Log        *logrus.Entry
}

// Executor runs jobs as processes. Their directories are below one base directory.
type Executor struct {
	runner     string
	base       string
	workspaces *workspacedir.Dir // nil if jobs have none
	log        *logrus.Entry

	ctx     context.Context // canceled by Close, to stop the reapers
	cancel  context.CancelFunc
	reapers sync.WaitGroup
}

// New creates the base directory and returns an executor. [Executor.Check] reports a missing
// runner.
func New(o Options) (*Executor, error) {
	if !filepath.IsAbs(o.RunnerPath) || !filepath.IsAbs(o.BaseDir) {
		return nil, fmt.Errorf("the process executor requires absolute paths, but got runner %q and base directory %q", o.RunnerPath, o.BaseDir)
	}
	if err := os.MkdirAll(o.BaseDir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the directory for jobs: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	e := &Executor{runner: o.RunnerPath, base: filepath.Clean(o.BaseDir), log: o.Log, ctx: ctx, cancel: cancel}
	if o.Workspaces != "" {
		e.workspaces = workspacedir.New(o.Workspaces, func() (map[string]bool, error) { return UsedWorkspaces(e.base) })
	}
	return e, nil
}

// Name returns [Name].
func (e *Executor) Name() string { return Name }

// Check returns an error if the runner or the base directory is missing.
func (e *Executor) Check(context.Context) error {
	if err := executor.CheckRunner(e.runner); err != nil {
		return fmt.Errorf("no job can run: %w", err)
	}
	if info, err := os.Stat(e.base); err != nil || !info.IsDir() {
		return fmt.Errorf("no job can run: the directory for jobs, %s, is missing", e.base)
	}
	return nil
}

// Close stops watching jobs. The jobs keep running.
func (e *Executor) Close() error {
	e.cancel()
	e.reapers.Wait()
	return nil
}

type meta struct {
	JobID     string            `json:"jobID"`
	Epoch     int64             `json:"epoch"`
	Owner     string            `json:"owner"`
	Labels    map[string]string `json:"labels,omitempty"`
	Workspace string            `json:"workspace,omitempty"` // its scope
	CreatedAt time.Time         `json:"createdAt"`
}

type handleData struct {
	Dir string `json:"dir"` // absolute, a direct child of the base directory
}

// Prepare creates the job's directory.
func (e *Executor) Prepare(ctx context.Context, spec executor.Spec, progress func(line string)) (executor.Handle, error) {
	if err := ctx.Err(); err != nil {
		return executor.Handle{}, err
	}
	// A job that names no operating system can run on any host. A job that requires linux can also
	// run on macOS, but a job that requires darwin must run on macOS.
	if spec.OS != "" && spec.OS != "linux" && spec.OS != runtime.GOOS {
		return executor.Handle{}, launchError(fmt.Sprintf("This job requires %s, but the agent runs jobs as processes of a %s host.", spec.OS, runtime.GOOS), nil)
	}
	if err := e.Check(ctx); err != nil {
		return executor.Handle{}, launchError(err.Error(), err)
	}
	var pulumi executor.Pulumi
	if spec.Pulumi != nil {
		var err error
		if pulumi, err = spec.Pulumi(ctx, runtime.GOOS, runtime.GOARCH); err != nil {
			return executor.Handle{}, err
		}
	}
	m := meta{JobID: spec.JobID, Epoch: spec.Epoch, Owner: spec.Owner, Labels: spec.Labels, Workspace: spec.Workspace, CreatedAt: time.Now()}
	d := dir(filepath.Join(e.base, executor.ObjectName(spec.Owner, spec.JobID, spec.Epoch)))
	if err := d.create(m); err != nil {
		return executor.Handle{}, launchError("The job's directory could not be created on the agent's host.", err)
	}
	progress("Running as a process of the agent's host, without a container")
	if _, err := e.workspace(ctx, d); err != nil {
		progress("Running without a workspace: " + err.Error())
	}
	h, err := e.handle(d, m)
	h.PulumiDir = pulumi.Dir
	return h, err
}

func launchError(message string, err error) error {
	return &executor.Error{Reason: workflow.ReasonLaunch, Message: message, Err: err}
}

func (e *Executor) handle(d dir, m meta) (executor.Handle, error) {
	return executor.NewHandle(Name, m.JobID, m.Epoch, m.CreatedAt, handleData{Dir: string(d)})
}

// open returns the directory of h. It rejects a directory outside the base directory, because
// handles are read from files and Remove deletes their directories.
func (e *Executor) open(h executor.Handle) (dir, error) {
	var data handleData
	if err := h.Decode(Name, &data); err != nil {
		return "", err
	}
	parent, name := filepath.Split(data.Dir)
	if filepath.Clean(parent) != e.base || !executor.IsObjectName(name) {
		return "", fmt.Errorf("the handle of job %s names the directory %q, which is not a job's directory in %s", h.JobID, data.Dir, e.base)
	}
	return dir(data.Dir), nil
}

// CopySpool copies the regular files of the job's log spool to dst.
func (e *Executor) CopySpool(ctx context.Context, h executor.Handle, dst string) error {
	d, err := e.open(h)
	if err != nil {
		return err
	}
	if err := d.copySpool(ctx, dst); err != nil {
		return fmt.Errorf("copying the log spool of job %s: %w", h.JobID, err)
	}
	return nil
}

// Remove kills the job's processes and deletes its directory.
func (e *Executor) Remove(ctx context.Context, h executor.Handle) error {
	d, err := e.open(h)
	if err != nil {
		return err
	}
	p, err := d.process()
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = killTree(ctx, p, d.marker())
	}
	if err == nil {
		// The runner can be a child of this process. It remains a zombie until this process waits
		// for it.
		_, err = d.exit(ctx, nil)
	}
	if err == nil || errors.Is(err, executor.ErrNotStarted) || errors.Is(err, fs.ErrNotExist) {
		err = d.remove(ctx)
	}
	if err != nil {
		return fmt.Errorf("removing job %s: %w", h.JobID, err)
	}
	return nil
}

// List returns the jobs of owner that have a directory.
func (e *Executor) List(ctx context.Context, owner string) ([]executor.Handle, error) {
	entries, err := os.ReadDir(e.base)
	if err != nil {
		return nil, fmt.Errorf("listing jobs: %w", err)
	}
	var out []executor.Handle
	for _, entry := range entries {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		m, ok := e.identify(entry, owner)
		if !ok {
			continue
		}
		name := strings.TrimPrefix(entry.Name(), removedPrefix)
		h, err := e.handle(dir(filepath.Join(e.base, name)), m)
		if err != nil {
			return nil, err
		}
		out = append(out, h)
	}
	return out, nil
}

// identify returns the job of a directory. If the agent exited before it wrote meta.json, identify
// derives the job from the directory's name.
func (e *Executor) identify(entry fs.DirEntry, owner string) (meta, bool) {
	name := strings.TrimPrefix(entry.Name(), removedPrefix)
	if !entry.IsDir() || !executor.IsObjectName(name) {
		return meta{}, false
	}
	if m, err := dir(filepath.Join(e.base, entry.Name())).meta(); err == nil {
		return m, m.Owner == owner
	}
	jobID, epoch, ours := executor.ParseObjectName(owner, name)
	info, err := entry.Info()
	if !ours || err != nil {
		return meta{}, false
	}
	return meta{JobID: jobID, Epoch: epoch, Owner: owner, CreatedAt: info.ModTime()}, true
}

var _ executor.Executor = (*Executor)(nil)
