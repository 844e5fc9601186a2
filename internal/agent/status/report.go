// Package status is the agent's report to its operators.
//
// A [Report] is the one source of /status, of the control socket's answers and of the status
// command, as JSON, as a table ([WriteText]) and as a page ([WritePage]). It holds no secret.
// Its names and messages come from untrusted servers and programs; both writers remove characters
// that could harm a terminal or a browser.
package status

import (
	"fmt"
	"time"
)

// State is the state of an agent in one word.
type State string

// The states of an agent. Only a ready agent claims jobs. An agent drains at the operator's
// request, which is no fault.
const (
	Ready     State = "ready"
	Starting  State = "starting"  // the server has not answered yet
	NotReady  State = "not-ready" // it cannot take jobs; see Reasons
	Unhealthy State = "unhealthy" // it makes no progress: see health_threshold
	Draining  State = "draining"  // it accepts no more jobs and exits after the running ones
	Stopping  State = "stopping"  // it detaches from its jobs and exits
	Ended     State = "ended"     // in the last answer of a control socket
)

// Report is the state of an agent at one moment. [Report.Judge] fills in State and Reasons.
type Report struct {
	State   State    `json:"state"`
	Reasons []string `json:"reasons"` // why it cannot take jobs; empty if it is ready
	// Problems are the conditions that delay the agent, one sentence each.
	Problems []string `json:"problems"`

	Time          time.Time `json:"time"`
	StartedAt     time.Time `json:"startedAt"`
	UptimeSeconds int64     `json:"uptimeSeconds"`
	LastActivity  time.Time `json:"lastActivity"` // as in /healthz
	Healthy       bool      `json:"healthy"`      // as in /healthz

	Agent   Agent     `json:"agent"`
	Server  Server    `json:"server"`
	Engine  Engine    `json:"engine"`
	Token   Token     `json:"token"`
	Slots   Slots     `json:"slots"`
	Storage Storage   `json:"storage"`
	Update  Update    `json:"update"`
	Config  []Setting `json:"config"`
	Jobs    []Job     `json:"jobs"`  // oldest first
	Ended   []Outcome `json:"ended"` // the last ones, newest first; forgotten when the agent ends

	// Input of Judge only.
	Draining bool `json:"-"`
	Stopping bool `json:"-"`
	Over     bool `json:"-"`
}

// Agent identifies the agent.
type Agent struct {
	Version   string `json:"version"`
	Instance  string `json:"instance"` // name of its directory below state_directory/instances
	ID        string `json:"id"`       // stable
	SessionID string `json:"sessionID"`
	Hostname  string `json:"hostname"`
	PID       int    `json:"pid"`
}

// Server is the control plane as the agent sees it.
type Server struct {
	URL       string `json:"url"`
	Connected bool   `json:"connected"` // the server answered the last poll and accepted the token
	// BreakerOpen says that the agent does not poll until a probe reaches the server, or for
	// circuit_breaker_timeout.
	BreakerOpen bool       `json:"breakerOpen"`
	LastPoll    *time.Time `json:"lastPoll,omitempty"` // of the last answered poll
	Error       string     `json:"error,omitempty"`    // of the last poll
	Since       *time.Time `json:"since,omitempty"`    // of the last change of Connected
}

// Engine is the place where jobs run.
type Engine struct {
	Target string     `json:"target"` // deploy_target
	Up     bool       `json:"up"`
	Error  string     `json:"error,omitempty"`
	Since  *time.Time `json:"since,omitempty"` // of the last change of Up; absent before the first check
}

// Kinds of tokens.
const (
	TokenStatic = "static"
	TokenOIDC   = "oidc"
)

// Token is the agent's credential for the server.
type Token struct {
	Kind      string     `json:"kind"`
	ExpiresAt *time.Time `json:"expiresAt,omitempty"` // of an exchanged token
	Error     string     `json:"error,omitempty"`     // why none is available
}

// Slots are the agent's capacity for jobs and the running ones.
type Slots struct {
	Total int `json:"total"`
	Busy  int `json:"busy"`
	Free  int `json:"free"`
}

// Storage is the disk with the agent's state.
type Storage struct {
	Directory string `json:"directory"`
	FreeBytes int64  `json:"freeBytes"` // for the agent's user; -1 if unknown
	// PendingLogBytes counts log that the agent itself has yet to deliver, without the logs of
	// running runners.
	PendingLogBytes int64 `json:"pendingLogBytes"`
}

// The agent's handling of its new releases.
const (
	UpdateInstalls = "installs" // finds, verifies and installs them
	UpdateTells    = "tells"    // only prints how to update
	UpdateOff      = "off"
)

// Update is the state of the agent's updates.
type Update struct {
	Mode      string     `json:"mode"`
	Available string     `json:"available,omitempty"` // a version newer than the agent's
	CheckedAt *time.Time `json:"checkedAt,omitempty"` // last check for one
	Error     string     `json:"error,omitempty"`     // of the last check, or of the update that followed it
	// State says in a sentence how far the update to Available is, or why updates are off.
	State string `json:"state,omitempty"`
}

// Setting is a value of the configuration that is not the default, redacted if it is a secret.
type Setting struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Source string `json:"source"`
}

// Phase is how far a job has come.
type Phase string

// The phases of a job.
const (
	Preparing   Phase = "preparing"   // fetching definition and image, creating the container
	StartingJob Phase = "starting"    // asking for permission, starting the runner
	Running     Phase = "running"     // its runner works, or delivers log and result
	Reattaching Phase = "reattaching" // the restarted agent checks its state
	Shipping    Phase = "shipping"    // the agent delivers the log of a dead runner
	Reporting   Phase = "reporting"   // the agent delivers its result
)

// Job is one job of the agent.
type Job struct {
	JobID        string     `json:"jobID"`
	DeploymentID string     `json:"deploymentID,omitempty"`
	Pool         string     `json:"pool,omitempty"`
	Stack        string     `json:"stack,omitempty"` // organization/project/stack; absent while unknown
	Operation    string     `json:"operation,omitempty"`
	Epoch        int64      `json:"epoch,omitempty"`
	Phase        Phase      `json:"phase"`
	PhaseSince   time.Time  `json:"phaseSince"`
	ClaimedAt    time.Time  `json:"claimedAt"`
	StartedAt    *time.Time `json:"startedAt,omitempty"` // when this process started its runner
	// Reattached reports that an earlier process of the agent claimed the job.
	Reattached bool `json:"reattached,omitempty"`
	// Log counts the log that the agent itself writes or delivers: the set-up step and a dead
	// runner's log.
	Log LogBytes `json:"log"`
}

// LogBytes counts bytes of log.
type LogBytes struct {
	Written int64 `json:"written"`
	Pending int64 `json:"pending"` // not yet received by the server
}

// Outcome is a job that has ended, or from which the agent has detached.
type Outcome struct {
	JobID        string    `json:"jobID"`
	DeploymentID string    `json:"deploymentID,omitempty"`
	Pool         string    `json:"pool,omitempty"`
	Stack        string    `json:"stack,omitempty"`
	Operation    string    `json:"operation,omitempty"`
	Status       string    `json:"status"` // succeeded, failed, or one of the words below
	Reason       string    `json:"reason,omitempty"`
	Message      string    `json:"message,omitempty"` // one masked line
	ClaimedAt    time.Time `json:"claimedAt"`
	EndedAt      time.Time `json:"endedAt"`
}

// Statuses of an [Outcome] that only the agent uses.
const (
	Detached   = "detached"   // for the next agent process
	GivenAway  = "given-away" // requeued to another agent, or closed
	Unreported = "unreported" // its end could not be reported
)

// Judge fills in State and Reasons from the rest of the report.
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
	add(r.Healthy, "No progress since %s, which is longer than health_threshold.", stamp(r.LastActivity))
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
	case r.Server.LastPoll == nil && r.Server.Error == "" && r.Token.Error == "" && r.Engine.Error == "":
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
