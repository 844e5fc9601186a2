// Package status defines the agent's report to its operators.
//
// The HTTP page /status, the control socket and the status command all show a [Report]: as JSON, as
// text ([WriteText]) or as an HTML page ([WritePage]). A report contains no secrets. Its names and
// messages come from untrusted servers and programs, so both writers remove characters that could
// harm a terminal or a browser.
package status

import (
	"fmt"
	"time"
)

// State is the one-word state of an agent.
type State string

// The states of an agent. Only a ready agent claims jobs. An agent drains at the operator's
// request, so draining is not a fault.
const (
	Ready     State = "ready"
	Starting  State = "starting"  // the server has not responded yet
	NotReady  State = "not-ready" // the agent cannot accept jobs; see Reasons
	Unhealthy State = "unhealthy" // the agent makes no progress; see health_threshold
	Draining  State = "draining"  // the agent accepts no more jobs and exits after the running jobs
	Stopping  State = "stopping"  // the agent detaches from its jobs and exits
	Ended     State = "ended"     // only in the last response of a control socket
)

// Report is the state of an agent at one point in time. [Report.Judge] sets State and Reasons.
type Report struct {
	State   State    `json:"state"`
	Reasons []string `json:"reasons"` // why the agent cannot accept jobs; empty if it is ready
	// Problems lists the conditions that delay the agent, one sentence each.
	Problems []string `json:"problems"`

	Time          time.Time `json:"time"`
	StartedAt     time.Time `json:"startedAt"`
	UptimeSeconds int64     `json:"uptimeSeconds"`
	LastActivity  time.Time `json:"lastActivity"` // as in /healthz
	Healthy       bool      `json:"healthy"`      // as in /healthz

	Agent   Agent   `json:"agent"`
	Server  Server  `json:"server"`
	Engine  Engine  `json:"engine"`
	Token   Token   `json:"token"`
	Slots   Slots   `json:"slots"`
	Storage Storage `json:"storage"`
	// Workspaces is absent before they were measured for the first time, and in Kubernetes.
	Workspaces *Workspaces `json:"workspaces,omitempty"`
	Update     Update      `json:"update"`
	Config     []Setting   `json:"config"`
	Jobs       []Job       `json:"jobs"`  // oldest first
	Ended      []Outcome   `json:"ended"` // the most recent jobs, newest first; not kept after the agent exits

	// These fields are only input to Judge.
	Draining bool `json:"-"`
	Stopping bool `json:"-"`
	Over     bool `json:"-"`
}

// Agent identifies the agent.
type Agent struct {
	Version   string `json:"version"`
	Instance  string `json:"instance"` // the name of its directory below state_directory/instances
	ID        string `json:"id"`       // stable
	SessionID string `json:"sessionID"`
	Hostname  string `json:"hostname"`
	PID       int    `json:"pid"`
}

// Server is the agent's view of the control plane.
type Server struct {
	URL       string `json:"url"`
	Connected bool   `json:"connected"` // the server responded to the last poll and accepted the token
	// BreakerOpen reports that the agent's circuit breaker is open. The agent does not poll until a
	// probe reaches the server or circuit_breaker_timeout has passed.
	BreakerOpen bool       `json:"breakerOpen"`
	LastPoll    *time.Time `json:"lastPoll,omitempty"` // time of the last poll that received a response
	Error       string     `json:"error,omitempty"`    // error of the last poll
	Since       *time.Time `json:"since,omitempty"`    // time of the last change of Connected
}

// Engine describes the environment in which jobs run.
type Engine struct {
	Target string     `json:"target"` // the value of deploy_target
	Up     bool       `json:"up"`
	Error  string     `json:"error,omitempty"`
	Since  *time.Time `json:"since,omitempty"` // time of the last change of Up; absent before the first check
}

// Kinds of tokens.
const (
	TokenStatic = "static"
	TokenOIDC   = "oidc"
)

// Token is the agent's credential for the server.
type Token struct {
	Kind      string     `json:"kind"`
	ExpiresAt *time.Time `json:"expiresAt,omitempty"` // expiry of an exchanged token
	Error     string     `json:"error,omitempty"`     // why no token is available
}

// Slots counts the agent's job slots.
type Slots struct {
	Total int `json:"total"`
	Busy  int `json:"busy"`
	Free  int `json:"free"`
}

// Storage describes the disk that contains the agent's state.
type Storage struct {
	Directory string `json:"directory"`
	FreeBytes int64  `json:"freeBytes"` // space available to the agent's user; -1 if unknown
	// PendingLogBytes is the number of log bytes that the agent itself must still deliver. It
	// excludes the logs that runners deliver.
	PendingLogBytes int64  `json:"pendingLogBytes"`
	Error           string `json:"error,omitempty"` // why the disk has no space for jobs
}

// Workspaces counts what the agent keeps for later jobs.
type Workspaces struct {
	Count int   `json:"count"`
	Bytes int64 `json:"bytes"`
}

// The modes in which an agent handles new releases.
const (
	UpdateInstalls = "installs" // finds, verifies and installs new releases
	UpdateTells    = "tells"    // only reports how to update
	UpdateOff      = "off"
)

// Update is the state of the agent's updates.
type Update struct {
	Mode      string     `json:"mode"`
	Available string     `json:"available,omitempty"` // a version newer than the running version
	CheckedAt *time.Time `json:"checkedAt,omitempty"` // time of the last check for a new release
	Error     string     `json:"error,omitempty"`     // error of the last check or of the subsequent update
	// State describes in one sentence the progress of the update to Available, or why updates are
	// off.
	State string `json:"state,omitempty"`
}

// Setting is a configuration value that differs from the default. A secret value is redacted.
type Setting struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Source string `json:"source"`
}

// Phase is the phase of a job.
type Phase string

// The phases of a job.
const (
	Preparing   Phase = "preparing"   // the agent fetches the definition and the image, and creates the container
	StartingJob Phase = "starting"    // the agent requests permission and starts the runner
	Running     Phase = "running"     // the runner executes the job, or delivers its log and result
	Reattaching Phase = "reattaching" // the restarted agent checks the job's state
	Shipping    Phase = "shipping"    // the agent delivers the log of an exited runner
	Reporting   Phase = "reporting"   // the agent delivers the job's result
)

// Job is a job that the agent is handling.
type Job struct {
	JobID        string     `json:"jobID"`
	DeploymentID string     `json:"deploymentID,omitempty"`
	Pool         string     `json:"pool,omitempty"`
	Stack        string     `json:"stack,omitempty"` // organization/project/stack; absent until it is known
	Operation    string     `json:"operation,omitempty"`
	Epoch        int64      `json:"epoch,omitempty"`
	Phase        Phase      `json:"phase"`
	PhaseSince   time.Time  `json:"phaseSince"`
	ClaimedAt    time.Time  `json:"claimedAt"`
	StartedAt    *time.Time `json:"startedAt,omitempty"` // time at which this agent process started the job's runner
	// Reattached reports whether an earlier agent process claimed the job.
	Reattached bool `json:"reattached,omitempty"`
	// Log counts the log bytes that the agent itself writes or delivers: the log of the set-up step
	// and the log of an exited runner.
	Log LogBytes `json:"log"`
}

// LogBytes counts the bytes of a log.
type LogBytes struct {
	Written int64 `json:"written"`
	Pending int64 `json:"pending"` // not yet received by the server
}

// Outcome describes a job that has finished, or from which the agent has detached.
type Outcome struct {
	JobID        string    `json:"jobID"`
	DeploymentID string    `json:"deploymentID,omitempty"`
	Pool         string    `json:"pool,omitempty"`
	Stack        string    `json:"stack,omitempty"`
	Operation    string    `json:"operation,omitempty"`
	Status       string    `json:"status"` // succeeded, failed, or one of the statuses below
	Reason       string    `json:"reason,omitempty"`
	Message      string    `json:"message,omitempty"` // one masked line
	ClaimedAt    time.Time `json:"claimedAt"`
	EndedAt      time.Time `json:"endedAt"`
}

// Statuses of an [Outcome] that only the agent uses.
const (
	Detached   = "detached"   // left to the next agent process
	GivenAway  = "given-away" // requeued for another agent, or closed
	Unreported = "unreported" // the job's result could not be reported
)

// Judge sets State and Reasons based on the other fields.
func (r *Report) Judge() {
	r.Reasons = []string{}
	add := func(ok bool, format string, args ...any) {
		if !ok {
			r.Reasons = append(r.Reasons, fmt.Sprintf(format, args...))
		}
	}
	add(!r.Over, "The agent has ended.")
	add(!r.Stopping || r.Over, "The agent is stopping: its jobs continue without it.")
	add(!r.Draining || r.Stopping || r.Over, "The agent is draining: it accepts no more jobs and exits after the running ones.")
	switch s := r.Server; {
	case s.BreakerOpen:
		add(false, "The agent cannot reach the server, and only probes it until it can: %s", orUnknown(s.Error))
	case s.Error != "":
		add(false, "Asking the server for work failed: %s", s.Error)
	default:
		add(s.Connected, "The server has not answered yet.")
	}
	add(r.Token.Error == "", "There is no valid token: %s", r.Token.Error)
	switch e := r.Engine; {
	case e.Error != "":
		add(false, "No jobs can run here: %s", e.Error)
	default:
		add(e.Up, "The engine was not checked yet.")
	}
	add(r.Storage.Error == "", "No jobs are claimed: %s", r.Storage.Error)
	add(r.Healthy, "No progress since %s, which is longer than health_threshold.", stamp(r.LastActivity)) // after its cause
	r.State = r.state()
}

func (r *Report) state() State {
	switch {
	case r.Over:
		return Ended
	case r.Stopping:
		return Stopping
	case r.Draining:
		return Draining
	case !r.Healthy:
		return Unhealthy
	case len(r.Reasons) == 0:
		return Ready
	case r.Server.LastPoll == nil && r.Server.Error == "" && r.Token.Error == "" && r.Engine.Error == "" && r.Storage.Error == "":
		return Starting
	}
	return NotReady
}

func orUnknown(text string) string {
	if text == "" {
		return "the cause is in the log."
	}
	return text
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }
