// Package policy contains the commands for the steps of a policy evaluation's job: getting a state, fetching policy
// packs, running them on the state, and reporting what they found.
//
// A pack is foreign code. It gets no token, none of the agent's variables, and no file of another pack: what the steps hand
// to each other is in files without names, whose descriptors only the runner and its own steps have. All packs of a job
// run as the user of the steps, so a hostile one can change the programs and files of the image that later ones use.
package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"workflowagent/internal/runner/process"
	"workflowagent/internal/workflow"
)

// A command receives its parameters through a pipe, and the files of the job, on these descriptors.
const (
	paramsFD  = 3
	stateFD   = 4
	resultsFD = 5
	packsFD   = 6 // the first of the packs' archives

	paramsEnv = "WORKFLOW_RUNNER_POLICY" // holds the number of the descriptor
	maxParams = 16 << 20                 // bytes
	// MaxPacks bounds the packs of one evaluation.
	MaxPacks = 100
)

// Params are the parameters of a command.
type Params struct {
	JobDir     string                     `json:"jobDir"`
	Self       string                     `json:"self"` // path of the runner, which is also the host of packs that are programs
	ServiceURL string                     `json:"serviceURL"`
	UserAgent  string                     `json:"userAgent"`
	CACertPEM  string                     `json:"caCertPEM,omitempty"`
	Evaluation *workflow.PolicyEvaluation `json:"evaluation"`
	// Remaining is the time that the packs may take together; 0 means that there is no limit.
	Remaining workflow.Duration `json:"remaining,omitempty"`

	state, results *os.File
	packs          []*os.File
}

// Files are the files of a job's evaluation. They have no names, so that the packs cannot open them.
type Files struct{ all []*os.File } // in the order of their descriptors

// NewFiles creates the files of an evaluation with a number of packs, in a directory. The caller closes them.
func NewFiles(dir string, packs int) (*Files, error) {
	if packs > MaxPacks {
		return nil, fmt.Errorf("the policy group has %d packs; an evaluation runs at most %d", packs, MaxPacks)
	}
	f := &Files{}
	for range packsFD - stateFD + packs {
		file, err := os.CreateTemp(dir, "policy-")
		if err == nil {
			f.all = append(f.all, file)
			err = os.Remove(file.Name())
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("creating the files of the policy evaluation: %w", err), f.Close())
		}
	}
	return f, nil
}

// Close closes the files, whose content is then gone.
func (f *Files) Close() error {
	if f == nil {
		return nil
	}
	var errs []error
	for _, file := range f.all {
		errs = append(errs, file.Close())
	}
	return errors.Join(errs...)
}

// Command returns the arguments of a step's command, or nil if it is not one of this package.
func Command(run string) []string {
	switch run {
	case workflow.RunPolicyState, workflow.RunPolicyInstall, workflow.RunPolicyEvaluate, workflow.RunPolicyReport:
		return strings.Fields(run)[1:]
	}
	return nil
}

// exitPacks is the exit code of a step that has recorded which packs could not be run. After any other failure, the
// results are not complete.
const exitPacks = 3

// packsError says that packs could not be run, which the results contain.
type packsError struct{ message string }

func (e *packsError) Error() string { return e.message }

// ExitCode returns the exit code for the error of a command.
func ExitCode(err error) int {
	if _, recorded := errors.AsType[*packsError](err); recorded {
		return exitPacks
	}
	if err != nil {
		return 1
	}
	return 0
}

// Continues reports whether the steps after a failed one run: a pack that cannot be run is reported like the others'
// violations.
func Continues(run string, code int) bool {
	return (run == workflow.RunPolicyInstall || run == workflow.RunPolicyEvaluate) && code == exitPacks
}

// HandOver passes the parameters and the files to cmd, which must not have started yet. The caller must close
// cmd.ExtraFiles after it has started cmd or failed to start it.
func (p *Params) HandOver(cmd *exec.Cmd, files *Files) error {
	data, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encoding the step's parameters: %w", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("creating a pipe for the step's parameters: %w", err)
	}
	cmd.ExtraFiles = []*os.File{r}
	for _, file := range files.all {
		fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return errors.Join(fmt.Errorf("passing files to the step: %w", err), w.Close())
		}
		cmd.ExtraFiles = append(cmd.ExtraFiles, os.NewFile(uintptr(fd), file.Name()))
	}
	cmd.Env = append(cmd.Env, paramsEnv+"="+strconv.Itoa(paramsFD))
	// The parameters can exceed the pipe's capacity, so write while the command reads. The write fails if the command does
	// not start or exits without reading. In this case, the command reports its own error.
	go func() {
		_, _ = w.Write(data)
		_ = w.Close()
	}()
	return nil
}

// ReadParams reads a command's parameters. It can be called once. Before, it protects the memory and the files of this
// process from the programs that it starts.
func ReadParams() (*Params, error) {
	if err := process.Protect(); err != nil {
		return nil, fmt.Errorf("hiding the job's token from the policy packs: %w", err)
	}
	if os.Getenv(paramsEnv) != strconv.Itoa(paramsFD) {
		return nil, errors.New("this command is a job's step: only `workflow-runner run`, which the agent starts, may start it")
	}
	if err := os.Unsetenv(paramsEnv); err != nil {
		return nil, fmt.Errorf("removing the parameters' descriptor from the environment: %w", err)
	}
	pipe := os.NewFile(paramsFD, "parameters")
	defer pipe.Close() // opened for reading only
	data, err := io.ReadAll(io.LimitReader(pipe, maxParams))
	if err != nil {
		return nil, fmt.Errorf("reading the step's parameters: %w", err)
	}
	var p Params
	if err := json.Unmarshal(data, &p); err != nil || p.Evaluation == nil {
		return nil, errors.New("reading the step's parameters: not valid JSON; the processes of the runner have different versions")
	}
	open := func(fd int, name string) *os.File {
		unix.CloseOnExec(fd)
		return os.NewFile(uintptr(fd), name)
	}
	p.state, p.results = open(stateFD, "state"), open(resultsFD, "results")
	for i := range p.Evaluation.Packs {
		p.packs = append(p.packs, open(packsFD+i, "pack"))
	}
	return &p, nil
}

// rewind empties a file.
func rewind(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.Seek(0, io.SeekStart)
	return err
}

// readResults returns the results of the earlier steps.
func (p *Params) readResults() (workflow.PolicyResults, error) {
	r := workflow.PolicyResults{Violations: []workflow.PolicyViolation{}}
	if _, err := p.results.Seek(0, io.SeekStart); err != nil {
		return r, err
	}
	err := json.NewDecoder(p.results).Decode(&r)
	if errors.Is(err, io.EOF) {
		for _, pack := range p.Evaluation.Packs {
			r.Packs = append(r.Packs, workflow.PolicyPackResult{Name: pack.Name, Version: pack.Version, VersionTag: pack.VersionTag})
		}
		return r, nil
	}
	if err == nil && len(r.Packs) != len(p.Evaluation.Packs) {
		err = errors.New("they are not those of the job's policy packs")
	}
	if err != nil {
		return r, fmt.Errorf("reading the results of the earlier steps: %w", err)
	}
	return r, nil
}

func (p *Params) writeResults(r workflow.PolicyResults) error {
	err := rewind(p.results)
	if err == nil {
		err = json.NewEncoder(p.results).Encode(r)
	}
	if err != nil {
		return fmt.Errorf("keeping the results for the next step: %w", err)
	}
	return nil
}

// failed returns an error if packs could not be run.
func failed(r workflow.PolicyResults) error {
	n, last := 0, ""
	for _, pack := range r.Packs {
		if pack.Error != "" {
			n++
			last = pack.Name + ": " + pack.Error
		}
	}
	switch n {
	case 0:
		return nil
	case 1:
		return &packsError{"a policy pack could not be evaluated: " + last}
	}
	return &packsError{fmt.Sprintf("%d policy packs could not be evaluated; the last one is %s", n, last)}
}
