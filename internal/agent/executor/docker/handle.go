package docker

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/agent/executor"
)

// Labels of all objects that the executor makes. The janitor touches no object without them.
const (
	labelPrefix  = "workflowagent."
	labelOwner   = labelPrefix + "owner"
	labelKind    = labelPrefix + "kind"
	labelName    = labelPrefix + "name" // the job's object name
	labelJob     = labelPrefix + "job"
	labelEpoch   = labelPrefix + "epoch"
	labelJobDir  = labelPrefix + "job-dir"
	labelShared  = labelPrefix + "shared-directory"
	labelCreated = labelPrefix + "created"
	labelArch    = labelPrefix + "arch" // the runner's
)

const (
	kindJob    = "job"    // a job's container and volume
	kindCopy   = "copy"   // a container that copies a runner into a volume, or tries it
	kindRunner = "runner" // a volume with a runner
)

// job is the executor's part of a handle.
type job struct {
	Name   string `json:"name"`             // of the container and the volume
	JobDir string `json:"jobDir"`           // in the container
	Shared string `json:"shared,omitempty"` // the job's directory on the host, if it has no volume
	Engine string `json:"engine"`           // address of the engine
}

func (j job) copier() string { return j.Name + "-copy" }

// labels returns the labels of a job's objects. The job's labels cannot replace the executor's.
// It sets all of the executor's, even to "", because a container also has the labels of its
// image, and the janitor believes what it reads.
func labels(spec executor.Spec, j job, kind string, now time.Time) map[string]string {
	out := map[string]string{}
	for k, v := range spec.Labels {
		out[labelPrefix+k] = v
	}
	maps.Copy(out, map[string]string{
		labelOwner:   spec.Owner,
		labelKind:    kind,
		labelName:    j.Name,
		labelJob:     spec.JobID,
		labelEpoch:   strconv.FormatInt(spec.Epoch, 10),
		labelJobDir:  j.JobDir,
		labelCreated: now.UTC().Format(time.RFC3339),
		labelShared:  j.Shared,
	})
	return out
}

func (j job) handle(jobID string, epoch int64, created time.Time) (executor.Handle, error) {
	data, err := json.Marshal(j)
	if err != nil {
		return executor.Handle{}, fmt.Errorf("writing the handle of job %s: %w", jobID, err)
	}
	return executor.Handle{Executor: Name, JobID: jobID, Epoch: epoch, CreatedAt: created, Data: data}, nil
}

// open decodes a handle and checks the names in it, because handles come from files.
func (e *Executor) open(h executor.Handle) (job, error) {
	if h.Executor != Name {
		return job{}, fmt.Errorf("the handle of job %s belongs to executor %q, not to %q", h.JobID, h.Executor, Name)
	}
	var j job
	if err := json.Unmarshal(h.Data, &j); err != nil {
		return job{}, fmt.Errorf("reading the handle of job %s: %w", h.JobID, err)
	}
	if !executor.IsObjectName(j.Name) || !path.IsAbs(j.JobDir) {
		return job{}, fmt.Errorf("the handle of job %s names no object of ours: %q", h.JobID, j.Name)
	}
	return j, nil
}

// jobDir returns the job directory in the container, below rootPath if the job has one.
func jobDir(rootPath string) (string, error) {
	if rootPath == "" {
		return defaultJobDir, nil
	}
	clean := path.Clean(rootPath)
	if !path.IsAbs(rootPath) || clean == "/" {
		return "", fmt.Errorf("the job's root path %q is not an absolute path below /", rootPath)
	}
	for _, taken := range []string{runnerDir, "/proc", "/sys", "/dev"} {
		if clean == taken || strings.HasPrefix(clean, taken+"/") {
			return "", fmt.Errorf("the job's root path %q cannot be used: it is in %s", rootPath, taken)
		}
	}
	return path.Join(clean, "workflow-job"), nil
}
