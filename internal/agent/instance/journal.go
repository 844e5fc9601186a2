package instance

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/protocol"
	"workflowagent/internal/sys/durable"
	"workflowagent/internal/workflow"
)

// version is the version of the entries that this program writes. The program does not change
// entries of other versions.
const version = 1

// Phase is the last phase that a job in the journal is known to have reached.
type Phase string

const (
	// Starting means that the server may have permitted the start, and that the runner may have
	// been started. Requesting permission and starting the runner are idempotent, so the next
	// process can safely repeat them.
	Starting Phase = "starting"
	// Started means that the runner was started.
	Started Phase = "started"
	// Reporting means that the agent is delivering the log and the result. No process of the job is
	// running.
	Reporting Phase = "reporting"
)

// Entry contains the data with which the next process resumes a job. It includes the job's token,
// so its file has mode 0600 and is removed when the job ends.
type Entry struct {
	Version    int                     `json:"version"`
	Phase      Phase                   `json:"phase"`
	Claim      protocol.PollResponse   `json:"claim"`
	ServiceURL string                  `json:"serviceURL"` // a different service_url might belong to another server
	Stack      string                  `json:"stack,omitempty"`
	Steps      int                     `json:"steps"` // number of steps in the definition
	Handle     *executor.Handle        `json:"handle,omitempty"`
	Echoed     int64                   `json:"echoed"` // number of bytes of the job's output that were copied to the agent's own output
	ClaimedAt  time.Time               `json:"claimedAt"`
	BootID     string                  `json:"bootID,omitempty"` // the host's boot ID when the entry was written
	Result     *protocol.ResultRequest `json:"result,omitempty"` // set in phase Reporting
	Operation  workflow.Operation      `json:"operation,omitempty"`
	Signed     bool                    `json:"signed,omitempty"` // the server is known to sign its responses
	EndedAt    time.Time               `json:"endedAt,omitzero"` // when the agent began to report the job's end
	// SetupBytes is the size of the agent's log of the set-up before its last line, set in phase Started.
	SetupBytes int64 `json:"setupBytes,omitempty"`
}

// Journal is a directory with one entry and one spool per job.
type Journal struct {
	dir string
}

// OpenJournal returns the journal of an instance directory. It creates the journal's directory if
// it is missing.
func OpenJournal(instanceDir string) (*Journal, error) {
	dir := filepath.Join(instanceDir, "jobs")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the job journal: %w", err)
	}
	return &Journal{dir: dir}, nil
}

// JobName returns the base name of a job's files. The server chooses the job ID, so an ID that is
// unsafe in file names is replaced with a digest.
func JobName(jobID string, epoch int64) string {
	plain := jobID != "" && len(jobID) <= 64
	for _, r := range jobID {
		plain = plain && (r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z')
	}
	if !plain {
		jobID = "x" + executor.Digest(jobID)
	}
	return fmt.Sprintf("%s.%d", jobID, epoch)
}

// SpoolDir returns the directory for a job's log streams that the agent itself writes or delivers.
func (j *Journal) SpoolDir(name string) string { return filepath.Join(j.dir, name+".spool") }

func (j *Journal) path(name string) string { return filepath.Join(j.dir, name+".json") }

// Write stores an entry atomically. The entry is complete even after a host crash.
func (j *Journal) Write(name string, e Entry) error {
	e.Version = version
	data, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encoding the job's journal entry: %w", err)
	}
	if err := durable.WriteFile(j.path(name), data, 0o600); err != nil {
		return fmt.Errorf("writing the job's journal entry: %w", err)
	}
	return nil
}

// Remove deletes a job's entry, and then its spool.
func (j *Journal) Remove(name string) error {
	return errors.Join(os.RemoveAll(j.path(name)), os.RemoveAll(j.SpoolDir(name)))
}

// Read returns the entries of this version by name. foreign contains the names of the entries that
// Read cannot decode, such as entries of other versions. Read does not change those entries.
func (j *Journal) Read() (entries map[string]Entry, foreign []string, err error) {
	files, err := os.ReadDir(j.dir)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the job journal: %w", err)
	}
	entries = map[string]Entry{}
	for _, file := range files {
		name, ok := strings.CutSuffix(file.Name(), ".json")
		if !ok || !file.Type().IsRegular() {
			continue
		}
		data, err := os.ReadFile(j.path(name))
		if err != nil {
			return nil, nil, fmt.Errorf("reading the job journal: %w", err)
		}
		var e Entry
		if err := json.Unmarshal(data, &e); err != nil || e.Version != version || e.Claim.JobID == "" {
			foreign = append(foreign, name)
			continue
		}
		entries[name] = e
	}
	return entries, foreign, nil
}

// Sweep deletes partly written entries and spools without an entry, because their jobs cannot be
// resumed.
func (j *Journal) Sweep() error {
	files, err := os.ReadDir(j.dir)
	if err != nil {
		return fmt.Errorf("reading the job journal: %w", err)
	}
	var errs []error
	for _, file := range files {
		name, ok := strings.CutSuffix(file.Name(), ".spool")
		if !ok {
			if strings.HasPrefix(name, ".") && file.Type().IsRegular() {
				errs = append(errs, os.Remove(filepath.Join(j.dir, name)))
			}
			continue
		}
		if _, err := os.Lstat(j.path(name)); errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, os.RemoveAll(j.SpoolDir(name)))
		}
	}
	return errors.Join(errs...)
}
