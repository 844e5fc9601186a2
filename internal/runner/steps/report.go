package steps

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"workflowagent/internal/runner/lockfiles"
	"workflowagent/internal/runner/source"
)

// Workspace are the parameters of commands that use the job's workspace.
type Workspace struct {
	// Git is the directory of git's files, and Spare the one for the checkout if the workspace's disk is full.
	Git       string           `json:"git"`
	Spare     string           `json:"spare"`
	Checkout  *source.Kept     `json:"checkout,omitempty"`  // of the earlier job
	Installed *lockfiles.Stamp `json:"installed,omitempty"` // by the earlier job, into this checkout
	Secrets   []string         `json:"secrets,omitempty"`   // names of the variables whose values contain secrets
}

// Report is what a command reports to the runner, before it runs anything that the program contains.
type Report struct {
	// Full means that the workspace's disk is full and the checkout is in [Workspace.Spare].
	Full     bool         `json:"full,omitempty"`
	Reused   bool         `json:"reused,omitempty"`   // the kept checkout, or the installed dependencies
	Received int64        `json:"received,omitempty"` // from the repository, in bytes
	Checkout *source.Kept `json:"checkout,omitempty"`
	// Installed describes the dependencies that exist if the step succeeds.
	Installed *lockfiles.Stamp `json:"installed,omitempty"`
	Doubt     string           `json:"doubt,omitempty"` // why the dependencies are always installed
}

const (
	reportFD   = 4
	maxReport  = 1 << 20 // bytes
	reportTime = 5 * time.Second
)

// openReport returns the runner's end of the pipe for the report, and the command's.
func openReport() (r, w *os.File, err error) {
	if r, w, err = os.Pipe(); err != nil {
		return nil, nil, fmt.Errorf("creating a pipe for the step's report: %w", err)
	}
	return r, w, nil
}

// ReadReport returns the report of a command that has ended. Without a report, it returns nil.
func ReadReport(r *os.File) (*Report, error) {
	defer r.Close() // opened for reading only
	if err := r.SetReadDeadline(time.Now().Add(reportTime)); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(r, maxReport))
	if err != nil || len(data) == 0 {
		return nil, err
	}
	var report Report
	if err := json.Unmarshal(data, &report); err != nil {
		return nil, errors.New("the step's report is not valid JSON")
	}
	return &report, nil
}

// report sends the report. No program that the command starts inherits the descriptor.
func (p *Params) report(report Report) error {
	if p.reports == nil {
		return nil
	}
	data, err := json.Marshal(report)
	if err == nil {
		_, err = p.reports.Write(data)
	}
	return errors.Join(err, p.reports.Close())
}

// claimReport prepares the descriptor for the report.
func (p *Params) claimReport() {
	if p.Workspace != nil {
		unix.CloseOnExec(reportFD)
		p.reports = os.NewFile(reportFD, "report")
	}
}
