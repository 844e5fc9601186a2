// Package checkup runs the checks of a doctor and prints their results. The doctors of the agent and
// of the server use it, so that operators and scripts read the same report from both.
package checkup

import "time"

// Status is the outcome of a check.
type Status string

// The possible outcomes. A check is skipped if it does not apply, or if a check that it needs
// failed or was skipped.
const (
	StatusOK   Status = "ok"
	StatusWarn Status = "warn" // the program works, but with a problem
	StatusFail Status = "fail"
	StatusSkip Status = "skip"
)

// Result is the result of one check.
type Result struct {
	Name   string `json:"name"`  // stable, for use by programs
	Title  string `json:"title"` // for display
	Status Status `json:"status"`
	// Finding is the name of the problem, which is stable, for use by programs and documentation. It is
	// empty for problems without a name.
	Finding string `json:"finding,omitempty"`
	// Found describes the finding in one line.
	Found string `json:"found"`
	// Details contains additional lines of the finding.
	Details []string `json:"details,omitempty"`
	// Advice is the suggested action, or empty if no action is needed.
	Advice       string `json:"advice,omitempty"`
	Milliseconds int64  `json:"milliseconds"`
}

// OK returns the result of a check that found no problem.
func OK(found string, details ...string) Result {
	return Result{Status: StatusOK, Found: found, Details: details}
}

// Skip returns the result of a check that did not run.
func Skip(found string) Result { return Result{Status: StatusSkip, Found: found} }

// Warn returns the result of a check that found a problem with which the program works.
func Warn(found, advice string, details ...string) Result {
	return Result{Status: StatusWarn, Found: found, Advice: advice, Details: details}
}

// Fail returns the result of a check that found a problem with which the program does not work.
func Fail(found, advice string, details ...string) Result {
	return Result{Status: StatusFail, Found: found, Advice: advice, Details: details}
}

// Report contains the results of all checks, in order.
type Report struct {
	Version string    `json:"version"` // the version of the doctor's program
	Time    time.Time `json:"time"`
	OK      bool      `json:"ok"` // true if no check failed
	Checks  []Result  `json:"checks"`
}
