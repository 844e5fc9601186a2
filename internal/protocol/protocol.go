// Package protocol is what agent and runner say to the server and how: the wire
// types, their headers, and the HTTP client with its retries and circuit
// breaker. docs/protocol.md states every field and status code; this package is
// their only implementation on the client's side.
package protocol

import (
	"time"

	"workflowagent/internal/workflow"
)

// Headers of a poll. All but the standard ones are ours; a server that does not
// know them ignores them.
const (
	HeaderAgentID       = "X-Workflow-Agent-Id"      // stable: survives restarts of the agent
	HeaderAgentSession  = "X-Workflow-Agent-Session" // one process; a second live session of one id gets 409
	HeaderAgentHostname = "X-Workflow-Agent-Hostname"
	HeaderAgentPID      = "X-Workflow-Agent-Pid"
	HeaderAgentVersion  = "X-Workflow-Agent-Version"
	HeaderAgentPlatform = "X-Workflow-Agent-Platform"   // GOOS/GOARCH
	HeaderAgentSlots    = "X-Workflow-Agent-Free-Slots" // 0: presence only, nothing is handed out
	HeaderAgentInterval = "X-Workflow-Agent-Interval"   // whole seconds until the next poll at the latest
	HeaderPollID        = "X-Workflow-Agent-Poll-Id"    // the same id gets the same claim again

	HeaderPrefer            = "Prefer"             // "wait=25"
	HeaderPreferenceApplied = "Preference-Applied" // "wait": the server held, or would have held, the poll
)

// Headers of the answer to a status call. They are ours.
const (
	HeaderAgentPool   = "X-Workflow-Agent-Pool"   // id of the token's pool
	HeaderPoolName    = "X-Workflow-Pool-Name"    // its name, path-escaped
	HeaderExternalURL = "X-Workflow-External-Url" // what jobs get as PULUMI_BACKEND_URL
)

// PollRequest is what an agent says when it asks for work.
type PollRequest struct {
	AgentID   string
	SessionID string
	PollID    string
	Hostname  string
	PID       int
	Version   string
	Platform  string
	FreeSlots int
	Interval  time.Duration   // announced longest pause between polls
	Wait      time.Duration   // 0: do not send Prefer
	Types     []workflow.Type // empty: all
}

// PollResponse is a claimed job. A response without Epoch comes from a server
// that speaks only the stock calls.
type PollResponse struct {
	JobID          string        `json:"jobID"`
	JobToken       string        `json:"jobToken"`
	OIDCToken      string        `json:"oidcToken"`
	RunID          string        `json:"runID"`
	TypeSpecificID string        `json:"typeSpecificID"` // deployment id
	DeploymentID   string        `json:"deploymentID,omitempty"`
	WorkflowType   workflow.Type `json:"workflowType,omitempty"`
	Epoch          int64         `json:"epoch,omitempty"`
	PoolID         string        `json:"poolID,omitempty"` // for the agent's log; from HeaderAgentPool
}

// PollResult is the outcome of one poll.
type PollResult struct {
	Job        *PollResponse // nil: nothing to do
	Held       bool          // the server answered Preference-Applied: wait, poll again at once
	RetryAfter time.Duration // 0: the server gave none
}

// Phase tells the server how far an agent or runner has come with a job.
type Phase string

// The phases of a heartbeat. PhaseStarting asks leave to start: the job may
// start only after a 200.
const (
	PhasePreparing Phase = "preparing" // the agent fetches the image and makes the container
	PhaseStarting  Phase = "starting"
	PhaseRunning   Phase = "running"
	PhaseFinishing Phase = "finishing" // the work is done, log and result are being delivered
)

// HeartbeatRequest extends the lease of a job. 410 answers a superseded epoch or
// a job that has its final result.
type HeartbeatRequest struct {
	Phase Phase `json:"phase"`
}

// HeartbeatResponse is the answer to a heartbeat.
type HeartbeatResponse struct {
	CancelRequested bool `json:"cancelRequested"`
	ForceRequested  bool `json:"forceRequested,omitempty"` // ours: end it without patience
}

// StepStatusRequest reports the state of a step. The members after Status are ours.
type StepStatusRequest struct {
	Status     workflow.StepStatus `json:"status"`
	ExitCode   *int                `json:"exitCode,omitempty"`
	StartedAt  *time.Time          `json:"startedAt,omitempty"`
	FinishedAt *time.Time          `json:"finishedAt,omitempty"`
}

// LogLines is the JSON form of step logs that stock runners send. Offset counts
// lines from the start of the step.
type LogLines struct {
	Offset int64     `json:"offset"`
	Lines  []LogLine `json:"lines"`
}

// LogLine is one line of [LogLines], its text without the final newline.
type LogLine struct {
	Time time.Time `json:"t"`
	Line string    `json:"l"`
}

// LogAck answers a raw log PUT, and a 409 to it carries the same body. Offsets
// count the framed, masked, uncompressed bytes of the step's stream.
type LogAck struct {
	Received int64 `json:"received"` // send from here, forwards or backwards
	Durable  int64 `json:"durable"`  // only what is below may be forgotten
	Limit    int64 `json:"limit"`    // no byte beyond is taken; 0 = no limit
}

// ResultRequest ends a job. It is idempotent.
type ResultRequest struct {
	Status     workflow.Status `json:"status"` // succeeded or failed
	Reason     workflow.Reason `json:"reason,omitempty"`
	Message    string          `json:"message,omitempty"` // one line for people, masked
	ExitCode   *int            `json:"exitCode,omitempty"`
	Signal     string          `json:"signal,omitempty"`
	FinishedAt time.Time       `json:"finishedAt"`
	Steps      []StepResult    `json:"steps"`
	Truncated  bool            `json:"logTruncated,omitempty"` // the sender had to drop log before its spool
}

// StepResult is what a sender knows of one step's log stream.
type StepResult struct {
	Step   int    `json:"step"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`         // lower-case hex of the framed bytes
	Gone   bool   `json:"gone,omitempty"` // the sender no longer has the bytes; do not ask for them
}

// ResultConflict is the body of a 409 to a result: the offsets from which the
// server still wants log.
type ResultConflict struct {
	Code    int          `json:"code"`
	Message string       `json:"message"`
	Missing []MissingLog `json:"missing"`
}

// MissingLog is one gap: the server has the step's stream only up to Received.
type MissingLog struct {
	Step     int   `json:"step"`
	Received int64 `json:"received"`
}

// Probe asks a runner how far it gets to some URLs from where it is. It answers on its standard
// output, with one line of JSON.
type Probe struct {
	URLs    []string `json:"urls"`
	Seconds int      `json:"seconds"` // the time for each, all at once
	// Engines are addresses at which no container engine may answer, as [reach.Engines] has them.
	Engines []string `json:"engines,omitempty"`
}
