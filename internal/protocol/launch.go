package protocol

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"time"

	"workflowagent/internal/workflow"
)

// Launch is the JSON document that an agent writes to the runner's standard input. It contains
// secrets, so it is not passed as an argument or an environment variable. A runner that receives no
// document within 30 s starts nothing.
type Launch struct {
	ServiceURL string `json:"serviceURL"` // URL of the API as reachable from the job
	// ServerAddress, if set, is the host:port at which the job reaches the server of a ServiceURL on
	// loopback. The runner forwards connections to it.
	ServerAddress string `json:"serverAddress,omitempty"`

	JobID        string                  `json:"jobID"`
	JobToken     string                  `json:"jobToken"`
	OIDCToken    string                  `json:"oidcToken,omitempty"`
	Epoch        int64                   `json:"epoch,omitempty"` // 0: a server with only the stock calls
	Definition   *workflow.JobDefinition `json:"definition"`
	ForwardedEnv map[string]string       `json:"forwardedEnv,omitempty"` // from the host; overrides the definition, always masked
	Proxy        map[string]string       `json:"proxy,omitempty"`        // the host's proxy variables, if the executor sets none; the definition overrides them
	// AllowedRepositories are the host's patterns for repositories, with which the runner checks
	// submodules; nil allows all.
	AllowedRepositories []string `json:"allowedRepositories"`

	// PulumiDir is the directory of the pulumi that the steps run, or "" for the first one in the PATH.
	PulumiDir string `json:"pulumiDir,omitempty"`

	CACertPEM string `json:"caCertPEM,omitempty"` // added to the system's roots
	UserAgent string `json:"userAgent,omitempty"`
	Signed    bool   `json:"signed,omitempty"`  // the server is known to sign its responses
	EchoLog   bool   `json:"echoLog,omitempty"` // copy the masked log to standard output
	// AskLeave means that the agent has not requested permission to start, so the runner does so
	// before it runs any part of the job.
	AskLeave bool `json:"askLeave,omitempty"`
	// Offline means that the job runs without a server: ServiceURL and JobToken are empty.
	Offline bool `json:"offline,omitempty"`
	// Probe, if set, makes the runner probe URLs instead of running a job.
	Probe *Probe `json:"probe,omitempty"`
}

// ReadDefinition reads a job definition from a file, or from stdin if file is "-".
func ReadDefinition(stdin io.Reader, file string) (*workflow.JobDefinition, error) {
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("opening the job definition: %w", err)
		}
		defer f.Close()
		stdin = f
	}
	data, err := io.ReadAll(io.LimitReader(stdin, maxDefinitionBody+1))
	if err != nil {
		return nil, fmt.Errorf("reading the job definition: %w", err)
	}
	if len(data) > maxDefinitionBody {
		return nil, fmt.Errorf("the job definition is longer than %d bytes", maxDefinitionBody)
	}
	return workflow.ParseJobDefinition(data)
}

// The runner is started as `workflow-runner run --job-dir DIR`. The executor creates DIR, which
// only the job can write to. The runner keeps its log spool in DirSpool and its checkout in
// DirWork. It writes FileResult (a [Result]) atomically when the steps have finished, and again at
// the end, to record whether the server has the log and the result.
const (
	DirSpool   = "spool"
	DirWork    = "work"
	FileResult = "result.json"
	// FileEnv is the file that the variable PULUMI_ENV names. In a pod it is next to the job's
	// directory.
	FileEnv = "pulumi.env"
)

// FilePulumiEnv is the path that Pulumi's documentation gives for [FileEnv]. In a container, the
// executor makes it a link to the job's file, or mounts that file.
const FilePulumiEnv = "/PULUMI_ENV"

// EnvWorkspace is the variable that names the directory of the job's workspace, for the runner only:
// steps do not receive it. Without it, the job has no workspace. The agent makes, measures and removes
// the directory. Its content belongs to the runner.
const EnvWorkspace = "WORKFLOW_RUNNER_WORKSPACE"

// FileWorkspaceLock is the file in a workspace that the runner locks with flock while it uses the
// workspace. The agent removes no workspace whose lock is held.
const FileWorkspaceLock = "lock"

// FileWorkspaceState is the runner's record in a workspace that the content is whole. The agent removes it
// before the content.
const FileWorkspaceState = "state.json"

// FileTermination is the file whose content Kubernetes reports as a container's termination
// message, at most 4096 bytes. In a pod, the runner also writes its [Result] there.
const FileTermination = "/dev/termination-log"

// ExitNoLaunch is the exit code of a runner that received no complete launch document and ran
// nothing. A runner that has a job never exits with this code.
const ExitNoLaunch = 64

// ExitNoLeave is the exit code of a runner that received no permission to start the job and ran
// nothing. A runner that has permission never exits with this code.
const ExitNoLeave = 65

// Result is the outcome that a runner writes to its job directory once the steps have finished. The
// agent reads it if the agent was not running at that time, or if the runner was killed during
// delivery. It contains no secret.
type Result struct {
	ExitCode   int             `json:"exitCode"`
	Status     workflow.Status `json:"status"`
	Reason     workflow.Reason `json:"reason,omitempty"`
	Reported   bool            `json:"reported"` // the server has acknowledged log and result
	FinishedAt time.Time       `json:"finishedAt"`
	// Seal is the HMAC-SHA256 of the other fields, keyed with the job's token, in hex. The job's
	// own processes can write FileResult. In a container they cannot read the token, because it
	// arrives on standard input and stays in the runner's memory. With deploy_target process they
	// run as the agent's user, which can read that memory.
	Seal string `json:"seal,omitempty"`
}

// Sealed returns a copy of r with its seal set.
func (r Result) Sealed(jobToken string) Result {
	r.Seal = hex.EncodeToString(r.sum(jobToken))
	return r
}

// SealedWith reports whether r was sealed with the job's token.
func (r Result) SealedWith(jobToken string) bool {
	seal, err := hex.DecodeString(r.Seal)
	return err == nil && jobToken != "" && hmac.Equal(seal, r.sum(jobToken))
}

func (r Result) sum(jobToken string) []byte {
	mac := hmac.New(sha256.New, []byte(jobToken))
	fmt.Fprintf(mac, "%d\n%q\n%q\n%t\n%d", r.ExitCode, r.Status, r.Reason, r.Reported, r.FinishedAt.UnixNano())
	return mac.Sum(nil)
}

// MaxEcho is the number of bytes of a job's log that the runner copies to its output.
const MaxEcho = 64 << 20
