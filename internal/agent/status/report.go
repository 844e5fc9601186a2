// Package status is what an agent says about itself to the people who operate it.
//
// A [Report] is the one source of /status, of the control socket's answers and of the command
// `status`: it is written as JSON, as a table by [WriteText] and as a page by [WritePage]. It holds
// no secret. Names and messages in it come from servers and programs that are not trusted; both
// writers take out what could harm a terminal or a browser.
package status

import (
	"fmt"
	"time"
)

// State is what an agent is up to, in one word.
type State string

// The states of an agent. Only a ready one takes work; a draining one is on its way out because
// somebody asked for it, which is no fault.
const (
	Ready     State = "ready"
	Starting  State = "starting"  // the server has not answered yet
	NotReady  State = "not-ready" // it cannot take work, and the reasons say why
	Unhealthy State = "unhealthy" // it makes no progress: see health_threshold
	Draining  State = "draining"  // it takes no more work and ends after the running jobs
	Stopping  State = "stopping"  // it lets go of its jobs and ends
	Ended     State = "ended"     // the last word of a control socket
)

// Report is an agent at one moment. [Report.Judge] fills in State and Reasons.
type Report struct {
	State   State    `json:"state"`
	Reasons []string `json:"reasons"` // why it cannot take work; empty if it is ready
	// Problems are what the agent waits for or works around, one sentence each.
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

	// What Judge looks at and nobody else needs.
	Draining bool `json:"-"`
	Stopping bool `json:"-"`
	Over     bool `json:"-"`
}

// Agent is who it is.
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
	Connected bool   `json:"connected"` // the last poll was answered, and the token accepted
	// BreakerOpen says that no work is asked for until a probe reaches the server, or for
	// circuit_breaker_timeout.
	BreakerOpen bool       `json:"breakerOpen"`
	LastPoll    *time.Time `json:"lastPoll,omitempty"` // when a poll was answered last
	Error       string     `json:"error,omitempty"`    // of the last poll
	Since       *time.Time `json:"since,omitempty"`    // when it became connected, or not
}

// Engine is the place where jobs run.
type Engine struct {
	Target string     `json:"target"` // deploy_target
	Up     bool       `json:"up"`
	Error  string     `json:"error,omitempty"`
	Since  *time.Time `json:"since,omitempty"` // when it became so; absent before the first look
}

// Kinds of tokens.
const (
	TokenStatic = "static"
	TokenOIDC   = "oidc"
)

// Token is what the agent shows the server.
type Token struct {
	Kind      string     `json:"kind"`
	ExpiresAt *time.Time `json:"expiresAt,omitempty"` // of a token that was exchanged
	Error     string     `json:"error,omitempty"`     // why there is none at the moment
}

// Slots are how many jobs the agent can run at a time, and runs.
type Slots struct {
	Total int `json:"total"`
	Busy  int `json:"busy"`
	Free  int `json:"free"`
}

// Storage is the disk with the agent's state.
type Storage struct {
	Directory string `json:"directory"`
	FreeBytes int64  `json:"freeBytes"` // for the agent's user; -1 if unknown
	// PendingLogBytes are of log that the agent itself has yet to deliver. What runners keep
	// while they run is not among them.
	PendingLogBytes int64 `json:"pendingLogBytes"`
}

// What an agent does about new releases of itself.
const (
	UpdateInstalls = "installs" // finds, verifies and installs them
	UpdateTells    = "tells"    // only says how to update
	UpdateOff      = "off"
)

// Update is what an agent knows about new releases of itself.
type Update struct {
	Mode      string     `json:"mode"`
	Available string     `json:"available,omitempty"` // a version newer than the agent's
	CheckedAt *time.Time `json:"checkedAt,omitempty"` // when it last looked for one
	Error     string     `json:"error,omitempty"`     // of the last look, or of the update that it began
	// State says in a sentence how far the update to Available is, or why there are none.
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
	Preparing   Phase = "preparing"   // its definition, its image, its container
	StartingJob Phase = "starting"    // leave is asked for and the runner started
	Running     Phase = "running"     // its runner is at work, or delivers its log and result
	Reattaching Phase = "reattaching" // the agent was restarted and looks what became of it
	Shipping    Phase = "shipping"    // its runner has ended without, so the agent delivers its log
	Reporting   Phase = "reporting"   // the agent delivers its result
)

// Job is one job of the agent.
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
	StartedAt    *time.Time `json:"startedAt,omitempty"` // when its runner was started, if this process did that
	// Reattached says that another process of the agent had claimed it.
	Reattached bool `json:"reattached,omitempty"`
	// Log counts the log that the agent itself writes or delivers: the set-up step, and what a
	// dead runner has left.
	Log LogBytes `json:"log"`
}

// LogBytes counts bytes of log.
type LogBytes struct {
	Written int64 `json:"written"`
	Pending int64 `json:"pending"` // of them, not yet safe with the server
}

// Outcome is a job whose end the agent knows, or that it has let go of.
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

// Statuses of an [Outcome] that are the agent's own.
const (
	Detached   = "detached"   // let go of; the next agent finds it
	GivenAway  = "given-away" // the server has given it to another agent or closed it
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
	add(!r.Stopping || r.Over, "The agent is stopping: its jobs go on without it.")
	add(!r.Draining || r.Stopping || r.Over, "The agent is draining: it takes no more work and ends after the running jobs.")
	add(r.Healthy, "No progress since %s, which is longer than health_threshold.", stamp(r.LastActivity))
	switch s := r.Server; {
	case s.BreakerOpen:
		add(false, "The server cannot be reached, and is only probed until it can: %s", orUnknown(s.Error))
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
		add(e.Up, "It is not known yet whether jobs can run here.")
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

// stamp is a time for people.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }
