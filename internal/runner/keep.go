package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"workflowagent/internal/delivery"
	"workflowagent/internal/protocol"
	"workflowagent/internal/runner/environ"
	"workflowagent/internal/runner/source"
	"workflowagent/internal/runner/steps"
	"workflowagent/internal/runner/workspace"
	"workflowagent/internal/words"
	"workflowagent/internal/workflow"
)

// openTime limits the time for which the first step waits until the workspace is open. Only on a disk that is
// nearly full, this includes the deletion of what an earlier job has left.
const openTime = 20 * time.Second

// storeTime limits the time after the last step in which the workspace is prepared for the next job.
const storeTime = time.Minute

// keeping is the part of a job that uses a workspace. Its zero value is a job without one.
type keeping struct {
	ws    *workspace.Workspace
	links *environ.Links
	next  workspace.State // what the job leaves

	onlyPulumi             bool // all steps before pulumi have succeeded
	installed              bool // the program has dependencies
	reusedFetch, reusedDep bool
	received               int64
	doubt                  string
	fetchTime, installTime time.Duration
	told                   bool
	syncing                sync.WaitGroup
	syncErr                error
}

// openWorkspace opens the job's workspace if the agent has given it one. All failures only cost the job
// time.
func (j *job) openWorkspace(ctx context.Context) {
	dir := ""
	for _, entry := range j.opts.Environ {
		if value, ok := strings.CutPrefix(entry, protocol.EnvWorkspace+"="); ok {
			dir = value
		}
	}
	d := j.definition.Deployment
	if dir == "" || d == nil || d.Workspace == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	unused := func(err error) { j.notices.add("Workspace: not used: " + err.Error()) }
	if !d.Workspace.Valid() || !filepath.IsAbs(dir) {
		unused(errors.New("its name is not valid"))
		return
	}
	parts := []string{
		d.Workspace.Scope, d.Workspace.Key, j.opts.Version, runtime.GOOS, runtime.GOARCH, dir, strconv.Itoa(os.Geteuid()),
	}
	ws, err := workspace.Open(ctx, dir, workspace.Key(append(parts, tools(j.env.Base().Vars["PATH"])...)...))
	if err != nil {
		unused(err)
		return
	}
	links, err := j.env.UseCaches(ws.Path(workspace.DirCaches), ws.Path(workspace.DirPlugins))
	if err != nil {
		unused(err)
		j.keep = &keeping{ws: ws, links: links}
		j.leaveWorkspace(ctx)
		return
	}
	if ws.Fresh != "" {
		j.notices.add("Workspace: starting afresh: " + ws.Fresh)
	}
	j.keep = &keeping{ws: ws, links: links, next: ws.Found()}
	j.keep.next.Checkout, j.keep.next.Installed = nil, nil
}

// toolNames are the programs whose replacement makes a workspace start afresh.
var toolNames = []string{
	"pulumi", "pulumi-language-nodejs", "pulumi-language-python", "pulumi-language-go", "pulumi-language-dotnet",
	"pulumi-language-java", "pulumi-language-yaml", "git", "node", "npm", "yarn", "pnpm", "bun", "python3", "python",
	"pip", "poetry", "uv", "go", "dotnet", "java", "mvn", "gradle",
}

// tools returns what identifies the versions of the tools in a PATH. Their own answers would take seconds.
func tools(path string) (ids []string) {
	for _, name := range toolNames {
		for _, dir := range filepath.SplitList(path) {
			file, err := filepath.EvalSymlinks(filepath.Join(dir, name))
			if err != nil {
				continue
			}
			info, err := os.Stat(file)
			if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
				continue
			}
			ids = append(ids, fmt.Sprintf("%s %s %d %d", name, file, info.Size(), info.ModTime().UnixNano()))
			break
		}
	}
	return ids
}

// leaveWorkspace makes the rest of the job run without its workspace.
func (j *job) leaveWorkspace(ctx context.Context) {
	k := j.keep
	if k.ws == nil {
		return
	}
	err := k.ws.Discard(ctx)
	if k.links != nil {
		err = cmp.Or(j.env.LeaveCaches(k.ws.Path(workspace.DirCaches), k.links), err)
	}
	if err != nil {
		j.log.WithError(err).Warn("leaving the job's workspace")
	}
	k.ws.Close()
	k.ws = nil
}

// workDir returns the directory of the checkout.
func (j *job) workDir() string {
	if j.keep.ws != nil {
		return j.keep.ws.Path(workspace.DirSource)
	}
	return filepath.Join(j.opts.JobDir, protocol.DirWork)
}

// workspaceFor returns the parameters of the workspace for a step, or nil.
func (j *job) workspaceFor(step workflow.Step, env []string) *steps.Workspace {
	k := j.keep
	if k.ws == nil || step.Run != workflow.RunSourceGit && step.Run != workflow.RunDependencies {
		return nil
	}
	found := k.ws.Found()
	w := &steps.Workspace{
		Git: k.ws.Path(workspace.DirGit), Spare: filepath.Join(j.opts.JobDir, protocol.DirWork), Checkout: found.Checkout,
	}
	if step.Run == workflow.RunSourceGit || k.reusedFetch {
		w.Installed = found.Installed
	}
	short := j.masks.Skipped()
	for _, entry := range env {
		if name, value, _ := strings.Cut(entry, "="); slices.Contains(short, name) || j.masks.String(value) != value {
			w.Secrets = append(w.Secrets, name)
		}
	}
	return w
}

// stepReported takes the report of a step that has ended.
func (j *job) stepReported(ctx context.Context, step workflow.Step, report *steps.Report, took time.Duration, v delivery.Verdict) {
	k := j.keep
	if k.ws == nil || v.Status != workflow.StatusSucceeded {
		return
	}
	if report == nil {
		report = &steps.Report{}
	}
	switch step.Run {
	case workflow.RunSourceGit:
		if report.Full {
			j.leaveWorkspace(ctx)
			return
		}
		k.fetchTime = took
		k.reusedFetch, k.received, k.next.Checkout = report.Reused, report.Received, report.Checkout
		if !report.Reused {
			k.next.FetchTime, k.next.InstallTime = took, 0
		}
	case workflow.RunDependencies:
		k.installed, k.installTime = report.Installed != nil || report.Doubt != "", took
		k.reusedDep, k.doubt = report.Reused, report.Doubt
		if report.Installed != nil && report.Installed.Complete(j.workDir()) {
			k.next.Installed = report.Installed
		}
		if !report.Reused {
			if !k.reusedFetch || k.next.InstallTime == 0 {
				k.next.InstallTime = took
			}
			// Steps that follow usually take longer.
			ws := k.ws
			k.syncing.Go(func() { k.syncErr = ws.Sync() })
		}
	}
}

// describeReuse returns the line that says what the job uses of earlier ones, the first time that it is
// called.
func (k *keeping) describeReuse() string {
	if k.ws == nil || k.told {
		return ""
	}
	k.told = true
	var parts []string
	reason := ""
	var saved time.Duration
	if k.reusedFetch {
		parts = append(parts, fmt.Sprintf("checkout (fetched %s)", words.Bytes(k.received)))
		saved += k.next.FetchTime - k.fetchTime
	}
	switch {
	case k.reusedDep:
		parts = append(parts, "dependencies (lock file unchanged)")
		saved += k.next.InstallTime - k.installTime
	case k.installed && k.doubt != "":
		reason = "; installed the dependencies again: " + k.doubt
	case k.installed && k.reusedFetch:
		reason = "; installed the dependencies again, because the lock file, a setting or a tool changed"
	}
	if k.ws.Found().FetchTime != 0 {
		parts = append(parts, "caches of tools")
	}
	if len(parts) == 0 {
		return "Workspace: nothing kept by an earlier job; this job keeps its checkout and caches for the next one"
	}
	line := "Workspace: kept " + strings.Join(parts, ", ") + reason
	if saved >= time.Second {
		line += fmt.Sprintf("; saved about %d s", int(saved.Round(time.Second).Seconds()))
	}
	return line
}

// giveBack prepares the workspace for the next job, and records that it is whole, unless the job ended in a
// way that makes it doubtful. orderly means that the job was not stopped and that nothing of it is running.
func (j *job) giveBack(ctx context.Context, v delivery.Verdict, orderly bool) {
	k := j.keep
	if k.ws == nil {
		return
	}
	defer func() {
		k.ws.Close()
		k.ws = nil
	}()
	k.syncing.Wait()
	if err := k.links.Remove(); err != nil {
		j.log.WithError(err).Warn("removing the links to the workspace")
	}
	switch {
	case !orderly || v.Status != workflow.StatusSucceeded && !(k.onlyPulumi && v.Reason == workflow.ReasonExitCode):
		j.log.Info("the workspace is not kept, because the job did not end in order")
		return
	case k.syncErr != nil:
		j.log.WithError(k.syncErr).Warn("the workspace is not kept, because it could not be written to disk")
		return
	}
	if v.Status != workflow.StatusSucceeded && k.reusedFetch && k.ws.Found().Installed != nil {
		k.next.Installed = nil // the program could have failed because of them
	}
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	unlink := context.AfterFunc(j.stop.hurried, cancel)
	defer unlink()
	if err := j.store(ctx); err != nil {
		j.log.WithError(err).Warn("the workspace is not kept")
	}
}

func (j *job) store(ctx context.Context) error {
	k := j.keep
	if err := k.ws.Check(); err != nil {
		return err
	}
	if k.next.Checkout == nil {
		k.next.Installed = nil
		if err := k.ws.Empty(ctx, workspace.DirSource, workspace.DirGit); err != nil {
			return err
		}
		return k.ws.Keep(ctx, k.next)
	}
	var environ []string
	for name, value := range j.env.Base().Vars {
		environ = append(environ, name+"="+value)
	}
	store := source.Store{
		Dir: k.ws.Path(workspace.DirSource), Git: k.ws.Path(workspace.DirGit),
		Private: filepath.Join(j.opts.JobDir, steps.DirGit), Environ: environ,
		Kept: k.next.Checkout, Dependencies: k.next.Installed != nil,
	}
	checkout, err := store.Run(ctx)
	if err != nil {
		return err
	}
	k.next.Checkout = checkout
	return k.ws.Keep(ctx, k.next)
}

// reportOf returns the report of a step's command that has ended, or nil.
func (j *job) reportOf(file *os.File) *steps.Report {
	if file == nil {
		return nil
	}
	report, err := steps.ReadReport(file)
	if err != nil {
		j.log.WithError(err).Warn("reading a step's report")
	}
	return report
}

// closeExtra closes the files that a command has inherited.
func closeExtra(cmd *exec.Cmd) {
	for _, file := range cmd.ExtraFiles {
		_ = file.Close() // the command has its own copy
	}
}
