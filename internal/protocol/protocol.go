// Package protocol implements the wire protocol between the server and an agent or runner: types,
// headers, and an HTTP client with retries and a circuit breaker. docs/protocol.md documents every
// field and status code. This package is the only client implementation.
package protocol

import (
	"time"

	"workflowagent/internal/workflow"
)

// Headers of a poll. The X- headers are extensions that other servers ignore.
const (
	HeaderAgentID       = "X-Workflow-Agent-Id"      // stable: survives restarts of the agent
	HeaderAgentSession  = "X-Workflow-Agent-Session" // identifies one process; a second live session with the same ID gets 409
	HeaderAgentHostname = "X-Workflow-Agent-Hostname"
	HeaderAgentPID      = "X-Workflow-Agent-Pid"
	HeaderAgentVersion  = "X-Workflow-Agent-Version"
	HeaderAgentPlatform = "X-Workflow-Agent-Platform"   // GOOS/GOARCH
	HeaderAgentSlots    = "X-Workflow-Agent-Free-Slots" // 0: presence only, the server hands out no job
	HeaderAgentCapacity = "X-Workflow-Agent-Capacity"   // number of jobs that the agent can run at once; 0 while it cannot start jobs
	HeaderAgentInterval = "X-Workflow-Agent-Interval"   // longest time until the next poll, in seconds
	HeaderPollID        = "X-Workflow-Agent-Poll-Id"    // the server repeats the claim for the same ID

	HeaderPrefer            = "Prefer"             // "wait=25"
	HeaderPreferenceApplied = "Preference-Applied" // "wait": the server holds polls, even if it responded to this one at once
)

// HeaderAgentDrained is "true" in the response to a poll of an agent that gets no jobs because an
// administrator of the server has drained it. In a poll, it is "true" or "false": what the agent knows.
// If that has changed, the server answers at once. It is an extension.
const HeaderAgentDrained = "X-Workflow-Agent-Drained"

// Headers of the response to a status call. All are extensions.
const (
	HeaderAgentPool   = "X-Workflow-Agent-Pool"   // id of the token's pool
	HeaderPoolName    = "X-Workflow-Pool-Name"    // path-escaped name of that pool
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
	Capacity  int             // number of jobs that the agent can run at once; 0 while it cannot start jobs
	Drained   bool            // the result of the last poll said so
	Interval  time.Duration   // longest announced pause between polls
	Wait      time.Duration   // 0: do not send Prefer
	Types     []workflow.Type // empty: all
}

// PollResponse is a claimed job. If Epoch is zero, the server supports only the stock calls.
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
	Job        *PollResponse // nil: no work
	Held       bool          // the server applied the wait: poll again at once
	RetryAfter time.Duration // 0: the server requested no pause
	Drained    bool          // the server hands out no jobs to this agent, because an administrator has drained it
}

// Phase is the stage of a job at an agent or runner.
type Phase string

// The phases reported in heartbeats. PhaseStarting requests permission to start, which only a 200
// grants.
const (
	PhasePreparing Phase = "preparing" // the agent pulls the image and creates the container
	PhaseStarting  Phase = "starting"
	PhaseRunning   Phase = "running"
	PhaseFinishing Phase = "finishing" // the steps have finished; log and result are being delivered
	PhaseReturned  Phase = "returned"  // the agent is stopping and hands back the job, which has not started
)

// HeartbeatRequest extends a job's lease. A 410 means that the epoch is superseded or the job's
// result is final.
type HeartbeatRequest struct {
	Phase Phase `json:"phase"`
	// Holder names the process that requests permission to start, and later heartbeats of that
	// process. A claim has one holder: another one gets 410.
	Holder string `json:"holder,omitempty"`
}

// HeartbeatResponse is the response to a heartbeat.
type HeartbeatResponse struct {
	CancelRequested bool `json:"cancelRequested"`
	ForceRequested  bool `json:"forceRequested,omitempty"` // an extension: end without a grace period
	Started         bool `json:"started,omitempty"`        // an extension: the job has permission to start
}

// IdentityTokenRequest requests an identity token for a job.
type IdentityTokenRequest struct {
	Audience string `json:"audience,omitempty"` // "" means the organization's name
}

// IdentityToken is an identity token for a job, with which the job obtains cloud credentials.
type IdentityToken struct {
	Token     string    `json:"token"`
	ExpiresAt time.Time `json:"expiresAt"`
}

// OpenedSecrets are the secrets of the environments that a job has opened, to be masked in its log.
type OpenedSecrets struct {
	// Count is the number of openings with secrets. Secrets is empty if the caller knows as many.
	Count   int64    `json:"count"`
	Secrets []string `json:"secrets,omitempty"`
}

// JobEnvironments are what the environments of a deployment's settings give to the job's later steps.
type JobEnvironments struct {
	// Problem says why they could not be opened. Then the other members are empty, and another attempt fails, too.
	Problem string `json:"problem,omitempty"`
	// Opened are the environments with their revisions, in words.
	Opened    []string         `json:"opened,omitempty"`
	Variables []JobEnvironment `json:"variables,omitempty"`
	// Files are those whose paths are the values of variables.
	Files []JobEnvironment `json:"files,omitempty"`
}

// JobEnvironment is a variable, or the content of a file.
type JobEnvironment struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Secret bool   `json:"secret,omitempty"`
}

// StepStatusRequest reports the state of a step. The members after Status are extensions.
type StepStatusRequest struct {
	Status     workflow.StepStatus `json:"status"`
	ExitCode   *int                `json:"exitCode,omitempty"`
	StartedAt  *time.Time          `json:"startedAt,omitempty"`
	FinishedAt *time.Time          `json:"finishedAt,omitempty"`
	Commit     string              `json:"commit,omitempty"` // full hash of the commit that a successful source step has checked out
	// LogBytes is the size of the ended step's framed log. Log and statuses travel in parallel, so
	// a reader that has received fewer bytes must expect more.
	LogBytes *int64 `json:"logBytes,omitempty"`
	// PulumiVersion is the version of pulumi that the step runs, if the job's definition requests one.
	PulumiVersion string `json:"pulumiVersion,omitempty"`
	// Workspace says what a successful source step has found in the job's workspace; "" if the job's definition
	// names none.
	Workspace WorkspaceUse `json:"workspace,omitempty"`
}

// WorkspaceUse is the use of a workspace by a job.
type WorkspaceUse string

// The uses of a workspace.
const (
	WorkspaceReused WorkspaceUse = "reused" // the checkout of an earlier job was there
	WorkspaceFresh  WorkspaceUse = "fresh"  // the job makes everything anew, for later ones
	WorkspaceUnused WorkspaceUse = "unused" // the job runs without it
)

// LogLines is the JSON form of step logs, for stock runners. Offset counts the step's lines.
type LogLines struct {
	Offset int64     `json:"offset"`
	Lines  []LogLine `json:"lines"`
}

// LogLine is one line of a step's log, without the final newline.
type LogLine struct {
	Time time.Time `json:"t"`
	Line string    `json:"l"`
}

// LogAck is the response to a PUT of raw log, including a 409. Its offsets count framed, masked,
// uncompressed bytes.
type LogAck struct {
	Received int64 `json:"received"` // continue from this offset, even if it was sent before
	Durable  int64 `json:"durable"`  // only bytes below this offset may be discarded
	Limit    int64 `json:"limit"`    // the server accepts no byte from this offset on; 0 = no limit
}

// ResultRequest reports a job's result, which ends the job. It is idempotent.
type ResultRequest struct {
	Status     workflow.Status `json:"status"` // succeeded or failed
	Reason     workflow.Reason `json:"reason,omitempty"`
	Message    string          `json:"message,omitempty"` // one line for users, masked
	ExitCode   *int            `json:"exitCode,omitempty"`
	Signal     string          `json:"signal,omitempty"`
	FinishedAt time.Time       `json:"finishedAt"`
	Steps      []StepResult    `json:"steps"`
	Truncated  bool            `json:"logTruncated,omitempty"` // the sender dropped output before spooling it
	// NotStarted means that the job failed before a runner received permission to start. If the
	// server has granted permission, it rejects such a result with [ErrStarted].
	NotStarted bool `json:"notStarted,omitempty"`
}

// StepResult describes a step's log stream at the sender.
type StepResult struct {
	Step   int    `json:"step"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`         // lower-case hex of the framed bytes
	Gone   bool   `json:"gone,omitempty"` // the sender no longer has the bytes; do not request them
}

// ResultConflict is the body of the 409 response to a result. It lists the missing parts of the
// log.
type ResultConflict struct {
	Code    int          `json:"code"`
	Message string       `json:"message"`
	Missing []MissingLog `json:"missing"`
}

// MissingLog is the missing end of a step's log: the server has the stream only up to Received.
type MissingLog struct {
	Step     int   `json:"step"`
	Received int64 `json:"received"`
}

// Probe is a request to a runner to probe URLs and print one line of JSON to standard output.
type Probe struct {
	URLs    []string `json:"urls"`
	Seconds int      `json:"seconds"` // timeout of each probe; all probes run concurrently
	// Engines are addresses, in the form of [reach.Engines], at which no container engine should
	// respond.
	Engines []string `json:"engines,omitempty"`
}
