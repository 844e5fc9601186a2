// Package protocol implements the wire between agent or runner and the server: its types, headers,
// and the HTTP client with retries and circuit breaker. docs/protocol.md documents every field and
// status code; this package is the only client implementation.
package protocol

import (
	"time"

	"workflowagent/internal/workflow"
)

// Headers of a poll. The X- headers are extensions that other servers ignore.
const (
	HeaderAgentID       = "X-Workflow-Agent-Id"      // stable: survives restarts of the agent
	HeaderAgentSession  = "X-Workflow-Agent-Session" // one process; a second live session with the same id gets 409
	HeaderAgentHostname = "X-Workflow-Agent-Hostname"
	HeaderAgentPID      = "X-Workflow-Agent-Pid"
	HeaderAgentVersion  = "X-Workflow-Agent-Version"
	HeaderAgentPlatform = "X-Workflow-Agent-Platform"   // GOOS/GOARCH
	HeaderAgentSlots    = "X-Workflow-Agent-Free-Slots" // 0: presence only, the server hands out no job
	HeaderAgentInterval = "X-Workflow-Agent-Interval"   // longest time until the next poll, in whole seconds
	HeaderPollID        = "X-Workflow-Agent-Poll-Id"    // the same id gets the same claim again

	HeaderPrefer            = "Prefer"             // "wait=25"
	HeaderPreferenceApplied = "Preference-Applied" // "wait": the server held, or would have held, the poll
)

// Headers of the response to a status call, all extensions.
const (
	HeaderAgentPool   = "X-Workflow-Agent-Pool"   // id of the token's pool
	HeaderPoolName    = "X-Workflow-Pool-Name"    // its name, path-escaped
	HeaderExternalURL = "X-Workflow-External-Url" // the jobs' PULUMI_BACKEND_URL
)

// PollRequest is an agent's request for work.
type PollRequest struct {
	AgentID   string
	SessionID string
	PollID    string
	Hostname  string
	PID       int
	Version   string
	Platform  string
	FreeSlots int
	Interval  time.Duration   // longest announced pause between polls
	Wait      time.Duration   // 0: do not send Prefer
	Types     []workflow.Type // empty: all
}

// PollResponse is a claimed job. Without Epoch, the server supports only the stock calls.
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
	Held       bool          // the server answered Preference-Applied: wait; poll again at once
	RetryAfter time.Duration // 0: the server gave none
}

// Phase is an agent's or runner's progress with a job.
type Phase string

// The phases of a heartbeat. PhaseStarting requests permission to start, which only a 200 grants.
const (
	PhasePreparing Phase = "preparing" // the agent pulls the image and creates the container
	PhaseStarting  Phase = "starting"
	PhaseRunning   Phase = "running"
	PhaseFinishing Phase = "finishing" // the steps have ended; log and result are being delivered
)

// HeartbeatRequest extends the lease of a job; 410 means a superseded epoch or a final result.
type HeartbeatRequest struct {
	Phase Phase `json:"phase"`
}

// HeartbeatResponse is the response to a heartbeat.
type HeartbeatResponse struct {
	CancelRequested bool `json:"cancelRequested"`
	ForceRequested  bool `json:"forceRequested,omitempty"` // an extension: end without a grace period
}

// StepStatusRequest reports the state of a step. The members after Status are extensions.
type StepStatusRequest struct {
	Status     workflow.StepStatus `json:"status"`
	ExitCode   *int                `json:"exitCode,omitempty"`
	StartedAt  *time.Time          `json:"startedAt,omitempty"`
	FinishedAt *time.Time          `json:"finishedAt,omitempty"`
}

// LogLines is the JSON form of step logs, for stock runners. Offset counts the step's lines.
type LogLines struct {
	Offset int64     `json:"offset"`
	Lines  []LogLine `json:"lines"`
}

// LogLine is one line of [LogLines] without the final newline.
type LogLine struct {
	Time time.Time `json:"t"`
	Line string    `json:"l"`
}

// LogAck is the response to a raw log PUT, also with status 409. Offsets count framed, masked,
// uncompressed bytes.
type LogAck struct {
	Received int64 `json:"received"` // continue from this offset, even if it was sent before
	Durable  int64 `json:"durable"`  // only bytes below this offset may be discarded
	Limit    int64 `json:"limit"`    // no byte from this offset on is accepted; 0 = no limit
}

// ResultRequest ends a job. It is idempotent.
type ResultRequest struct {
	Status     workflow.Status `json:"status"` // succeeded or failed
	Reason     workflow.Reason `json:"reason,omitempty"`
	Message    string          `json:"message,omitempty"` // one line for users, masked
	ExitCode   *int            `json:"exitCode,omitempty"`
	Signal     string          `json:"signal,omitempty"`
	FinishedAt time.Time       `json:"finishedAt"`
	Steps      []StepResult    `json:"steps"`
	Truncated  bool            `json:"logTruncated,omitempty"` // the sender dropped output before spooling it
}

// StepResult describes one step's log stream as the sender has it.
type StepResult struct {
	Step   int    `json:"step"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`         // lower-case hex of the framed bytes
	Gone   bool   `json:"gone,omitempty"` // the sender no longer has the bytes; do not request them
}

// ResultConflict is the body of a 409 to a result: the offsets of missing log.
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

// Probe makes a runner probe URLs and print one line of JSON on standard output.
type Probe struct {
	URLs    []string `json:"urls"`
	Seconds int      `json:"seconds"` // timeout of each probe; all run at once
	// Engines are addresses at which no container engine must respond, as listed by
	// [reach.Engines].
	Engines []string `json:"engines,omitempty"`
}
