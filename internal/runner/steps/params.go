// Package steps has the commands that are steps of a job: fetching the source, installing
// dependencies, pre-run commands and pulumi. The server names them, and the runner starts
// itself with the parameters of one.
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

	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

// The parameters of a command come through a pipe on its file descriptor paramsFD: not through
// arguments or environment, which other processes can see, and not through a file, which would
// have to be removed.
const (
	paramsFD  = 3
	paramsEnv = "WORKFLOW_RUNNER_PARAMETERS" // holds the number of the file descriptor
	maxParams = 16 << 20                     // bytes
)

// Params are the parameters of one command. Only those it needs are set.
type Params struct {
	JobDir string `json:"jobDir"`
	// WorkDir is the directory of the checkout.
	WorkDir string `json:"workDir"`
	// ProgramDir is the directory of the program in the image; "" means RepoDir in the
	// checkout.
	ProgramDir string `json:"programDir,omitempty"`
	RepoDir    string `json:"repoDir,omitempty"`
	Stack      string `json:"stack"` // organization/project/stack

	Git       *workflow.GitSource `json:"git,omitempty"`       // for source git
	Shell     string              `json:"shell,omitempty"`     // for pre-run
	Command   string              `json:"command,omitempty"`   // for pre-run
	Generated bool                `json:"generated,omitempty"` // for dependencies: pre-run commands may still write the project
	Remediate bool                `json:"remediate,omitempty"` // for pulumi detect-drift
}

// Command returns the arguments of an internal command. Shell text, which stock servers write,
// is not internal.
func Command(run string) (args []string, internal bool, err error) {
	if !strings.HasPrefix(run, workflow.RunCommandPrefix) {
		return nil, false, nil
	}
	switch run {
	case workflow.RunSourceGit, workflow.RunDependencies, workflow.RunPreRun, workflow.RunRemoveStack:
		return strings.Fields(run)[1:], true, nil
	}
	if op, ok := strings.CutPrefix(run, workflow.RunPulumi+" "); ok {
		if _, err := workflow.ParseOperation(op); err != nil {
			return nil, false, err
		}
		return []string{"pulumi", op}, true, nil
	}
	return nil, false, fmt.Errorf("unknown command %q: the server is newer than this runner; update the agent", run)
}

// ParamsFor returns the parameters of a step of the deployment; preRun counts the earlier
// pre-run steps.
func ParamsFor(jobDir string, d *workflow.Deployment, step workflow.Step, preRun int) (*Params, error) {
	if d == nil {
		return nil, fmt.Errorf("the job definition has the step %q but no deployment that says what it works on", step.Name)
	}
	p := &Params{
		JobDir:  jobDir,
		WorkDir: filepath.Join(jobDir, protocol.DirWork),
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
			return nil, errors.New("the job definition wants a git source fetched but names none")
		}
		p.Git = d.Source.Git
	case workflow.RunDependencies:
		p.Generated = len(d.PreRunCommands) > 0
	case workflow.RunPreRun:
		if preRun >= len(d.PreRunCommands) {
			return nil, fmt.Errorf("the job definition has more pre-run steps than pre-run commands (%d)", len(d.PreRunCommands))
		}
		p.Command = d.PreRunCommands[preRun]
		p.Shell = d.Options.Shell // "" is any: the job's own shell is a default of the server
	default:
		p.Remediate = d.Options.RemediateIfDriftDetected
	}
	return p, nil
}

// HandOver prepares cmd for the parameters. The caller must call pass with whether cmd has
// started.
func (p *Params) HandOver(cmd *exec.Cmd) (pass func(started bool), err error) {
	data, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encoding the step's parameters: %w", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("creating a pipe for the step's parameters: %w", err)
	}
	cmd.ExtraFiles = []*os.File{r} // becomes paramsFD
	cmd.Env = append(cmd.Env, paramsEnv+"="+strconv.Itoa(paramsFD))
	return func(started bool) {
		if !started {
			_ = w.Close()
			return
		}
		// A pipe holds less than the maximum, so write as the command reads. If it ends without
		// reading, the write fails, and the command reports its own error.
		go func() {
			_, _ = w.Write(data)
			_ = w.Close()
		}()
	}, nil
}

// ReadParams reads the parameters of a command once and hides them from programs that the
// command starts.
func ReadParams() (*Params, error) {
	fd, err := strconv.Atoi(os.Getenv(paramsEnv))
	if err != nil || fd != paramsFD {
		return nil, errors.New("this command is a step of a job and is started by `workflow-runner run`, which the agent starts")
	}
	if err := os.Unsetenv(paramsEnv); err != nil {
		return nil, fmt.Errorf("removing the path of the parameters from the environment: %w", err)
	}
	file := os.NewFile(uintptr(fd), "parameters")
	defer file.Close() // only read from
	data, err := io.ReadAll(io.LimitReader(file, maxParams))
	if err != nil {
		return nil, fmt.Errorf("reading the step's parameters: %w", err)
	}
	var p Params
	if err := json.Unmarshal(data, &p); err != nil {
		return nil, errors.New("the step's parameters cannot be read: the runner's two halves do not fit each other")
	}
	return &p, nil
}
