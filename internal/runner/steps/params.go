// Package steps contains the commands for a job's steps: fetching the source, installing
// dependencies, pre-run commands and pulumi. The server names a command, and the runner starts
// itself with the command's parameters.
package steps

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"workflowagent/internal/workflow"
)

// A command receives its parameters through a pipe on the file descriptor paramsFD. Other processes
// could read arguments or the environment, and a file would have to be removed.
const (
	paramsFD  = 3
	paramsEnv = "WORKFLOW_RUNNER_PARAMETERS" // holds the number of the file descriptor
	maxParams = 16 << 20                     // bytes
)

// Params are the parameters of one command. Only the parameters that the command needs are set.
type Params struct {
	JobDir string `json:"jobDir"`
	// WorkDir is the directory of the checkout.
	WorkDir string `json:"workDir"`
	// ProgramDir is the program's directory in the image; "" means RepoDir in the checkout.
	ProgramDir string `json:"programDir,omitempty"`
	RepoDir    string `json:"repoDir,omitempty"`
	Stack      string `json:"stack"` // organization/project/stack

	Git       *workflow.GitSource `json:"git,omitempty"`       // for source git
	Allowed   []string            `json:"allowed"`             // for source git: patterns for submodules, nil for all
	Shell     string              `json:"shell,omitempty"`     // for pre-run
	Command   string              `json:"command,omitempty"`   // for pre-run
	Generated bool                `json:"generated,omitempty"` // for dependencies: pre-run commands can still write the project file
	Remediate bool                `json:"remediate,omitempty"` // for pulumi detect-drift
	Workspace *Workspace          `json:"workspace,omitempty"` // for source git and dependencies; nil: the job has none
	// JournalURL, for pulumi, is the URL of a server to which pulumi should send a journal without
	// preparing checkpoints, or "".
	JournalURL string `json:"journalURL,omitempty"`

	reports *os.File // of a command with a workspace
}

// Command returns the arguments of an internal command. For shell text, which stock servers send,
// internal is false.
func Command(run string) (args []string, internal bool, err error) {
	if !strings.HasPrefix(run, workflow.RunCommandPrefix) {
		return nil, false, nil
	}
	switch run {
	case workflow.RunSourceGit, workflow.RunDependencies, workflow.RunPreRun, workflow.RunRemoveStack:
		return strings.Fields(run)[1:], true, nil
	case workflow.RunPostRun:
		return strings.Fields(workflow.RunPreRun)[1:], true, nil // which runs any command
	}
	if op, ok := strings.CutPrefix(run, workflow.RunPulumi+" "); ok {
		if _, err := workflow.ParseOperation(op); err != nil {
			return nil, false, err
		}
		return []string{"pulumi", op}, true, nil
	}
	return nil, false, fmt.Errorf("unknown command %q: the server is newer than this runner; update the agent", run)
}

// ParamsFor returns the parameters of a step of the deployment. workDir is the directory of the checkout.
// number is the index of a pre-run or post-run command among those of its kind. allowed are the host's
// patterns for repositories.
func ParamsFor(jobDir, workDir string, allowed []string, d *workflow.Deployment, step workflow.Step, number int) (*Params, error) {
	if d == nil {
		return nil, fmt.Errorf("the job definition has the step %q but no deployment", step.Name)
	}
	p := &Params{
		JobDir:  jobDir,
		WorkDir: workDir,
		Stack:   d.StackName(),
	}
	if d.Source != nil && d.Source.Git != nil {
		p.RepoDir = d.Source.Git.RepoDir
	} else {
		dir, err := filepath.Abs(step.WorkingDir)
		if err != nil {
			return nil, fmt.Errorf("finding the program's directory: %w", err)
		}
		p.ProgramDir = dir
	}
	switch step.Run {
	case workflow.RunSourceGit:
		if d.Source == nil || d.Source.Git == nil {
			return nil, errors.New("the job definition has a git step but no git source")
		}
		p.Git, p.Allowed = d.Source.Git, allowed
	case workflow.RunDependencies:
		p.Generated = len(d.PreRunCommands) > 0
	case workflow.RunPreRun:
		if number >= len(d.PreRunCommands) {
			return nil, fmt.Errorf("the job definition has more pre-run steps than pre-run commands (%d)", len(d.PreRunCommands))
		}
		p.Command = ShellText(d.PreRunCommands[number])
		p.Shell = d.Options.Shell // "" selects the default shell; by default, the server sets the job's shell
	case workflow.RunPostRun:
		if number >= len(d.PostRunCommands) {
			return nil, fmt.Errorf("the job definition has %d post-run commands", len(d.PostRunCommands))
		}
		p.Command, p.Shell = ShellText(d.PostRunCommands[number].Command), d.Options.Shell
	default:
		p.Remediate = d.Options.RemediateIfDriftDetected
		if d.SkipCheckpoints {
			p.JournalURL = d.BackendURL
		}
	}
	return p, nil
}

// HandOver passes the parameters to cmd, which must not have started yet. The caller must close
// cmd.ExtraFiles after it has started cmd or failed to start it. If cmd uses the workspace, the caller
// passes the returned file to [ReadReport].
func (p *Params) HandOver(cmd *exec.Cmd) (report *os.File, err error) {
	data, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encoding the step's parameters: %w", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("creating a pipe for the step's parameters: %w", err)
	}
	cmd.ExtraFiles = []*os.File{r} // becomes paramsFD
	if p.Workspace != nil {
		var reports *os.File
		if report, reports, err = openReport(); err != nil {
			return nil, errors.Join(err, r.Close(), w.Close())
		}
		cmd.ExtraFiles = append(cmd.ExtraFiles, reports) // becomes reportFD
	}
	cmd.Env = append(cmd.Env, paramsEnv+"="+strconv.Itoa(paramsFD))
	// The parameters can exceed the pipe's capacity, so write while the command reads. The write
	// fails if the command does not start or exits without reading. In this case, the command
	// reports its own error.
	go func() {
		_, _ = w.Write(data)
		_ = w.Close()
	}()
	return report, nil
}

// ReadParams reads a command's parameters. It can be called once, and hides the parameters from
// programs that the command starts.
func ReadParams() (*Params, error) {
	fd, err := strconv.Atoi(os.Getenv(paramsEnv))
	if err != nil || fd != paramsFD {
		return nil, errors.New("this command is a job's step: only `workflow-runner run`, which the agent starts, may start it")
	}
	if err := os.Unsetenv(paramsEnv); err != nil {
		return nil, fmt.Errorf("removing the parameters' descriptor from the environment: %w", err)
	}
	file := os.NewFile(uintptr(fd), "parameters")
	defer file.Close() // opened for reading only
	data, err := io.ReadAll(io.LimitReader(file, maxParams))
	if err != nil {
		return nil, fmt.Errorf("reading the step's parameters: %w", err)
	}
	var p Params
	if err := json.Unmarshal(data, &p); err != nil {
		return nil, errors.New("reading the step's parameters: not valid JSON; the processes of the runner have different versions")
	}
	p.claimReport()
	return &p, nil
}
