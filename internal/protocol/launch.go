package protocol

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"workflowagent/internal/workflow"
)

// Launch is what an agent hands to the runner on its standard input, as one
// JSON document. It holds secrets, which is why it is neither an argument nor an
// environment variable. A runner that gets none within 30 s starts nothing.
type Launch struct {
	ServiceURL   string                  `json:"serviceURL"` // of the API, as the job can reach it
	JobID        string                  `json:"jobID"`
	JobToken     string                  `json:"jobToken"`
	OIDCToken    string                  `json:"oidcToken,omitempty"`
	Epoch        int64                   `json:"epoch,omitempty"` // 0: a server with only the stock calls
	Definition   *workflow.JobDefinition `json:"definition"`
	ForwardedEnv map[string]string       `json:"forwardedEnv,omitempty"` // from the host; wins over the definition, always masked
	Proxy        map[string]string       `json:"proxy,omitempty"`        // the host's proxy variables, for a place that sets none; the definition wins
	CACertPEM    string                  `json:"caCertPEM,omitempty"`    // added to the system's roots
	UserAgent    string                  `json:"userAgent,omitempty"`
	Signed       bool                    `json:"signed,omitempty"`  // the server is known to sign its answers
	EchoLog      bool                    `json:"echoLog,omitempty"` // copy the masked log to standard output
	// Offline says that there is no server: the job is run for its echo only. ServiceURL and
	// JobToken are empty then.
	Offline bool `json:"offline,omitempty"`
	// Probe, if it is there, is all there is to do: nothing of a job is run.
	Probe *Probe `json:"probe,omitempty"`
}

// The runner is started as `workflow-runner run --job-dir DIR`. DIR is the job's
// own directory, made by the executor, writable for the job only; the runner
// keeps its log spool in DirSpool, its checkout in DirWork and writes FileResult
// (a [Result]) atomically: when the steps have ended, before it delivers log and
// result, and once more, last of all, to say whether the server has them.
const (
	DirSpool   = "spool"
	DirWork    = "work"
	FileResult = "result.json"
)

// ExitNoLaunch is the exit code of a runner that got no launch document, or only a part
// of one: nothing of the job was run. A runner that has a job never ends with it.
const ExitNoLaunch = 64

// Result is what a runner leaves in its job directory once its steps have ended,
// so that an agent that was not there learns how the job ended, and one that was
// there learns it even if the runner is killed while it delivers. It holds no secret.
type Result struct {
	ExitCode   int             `json:"exitCode"`
	Status     workflow.Status `json:"status"`
	Reason     workflow.Reason `json:"reason,omitempty"`
	Reported   bool            `json:"reported"` // the server has acknowledged log and result
	FinishedAt time.Time       `json:"finishedAt"`
	// Seal is the HMAC-SHA256 of all the above with the job's token, in hex. The
	// job's own processes can write FileResult, but a container keeps that token from
	// them: it enters by standard input and stays in the runner's memory. Processes of
	// deploy_target process share the agent's user, which can read it.
	Seal string `json:"seal,omitempty"`
}

// Sealed returns r with its seal.
func (r Result) Sealed(jobToken string) Result {
	r.Seal = hex.EncodeToString(r.sum(jobToken))
	return r
}

// SealedWith reports whether r was sealed with the token.
func (r Result) SealedWith(jobToken string) bool {
	seal, err := hex.DecodeString(r.Seal)
	return err == nil && jobToken != "" && hmac.Equal(seal, r.sum(jobToken))
}

func (r Result) sum(jobToken string) []byte {
	mac := hmac.New(sha256.New, []byte(jobToken))
	fmt.Fprintf(mac, "%d\n%q\n%q\n%t\n%d", r.ExitCode, r.Status, r.Reason, r.Reported, r.FinishedAt.UnixNano())
	return mac.Sum(nil)
}
