package review

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// Step is what brings a review stack closer to what is wanted.
type Step string

// The steps. Each is one transaction, after which the review stack is judged again.
const (
	StepNone        Step = ""
	StepCreate      Step = "create"       // create the stack with the settings of the template
	StepUpdate      Step = "update"       // deploy the commit
	StepSkipUpdates Step = "skip-updates" // skip queued updates
	StepSkipDestroy Step = "skip-destroy" // skip the queued destroy
	StepDestroy     Step = "destroy"      // destroy the resources, then the stack
	StepRemove      Step = "remove"       // remove the stack, which has no resources
	StepForget      Step = "forget"       // remove the record
)

// again are the pauses before a stack whose destroy failed is destroyed again. After the last, the
// stack is an orphan.
var again = []time.Duration{10 * time.Minute, time.Hour, 6 * time.Hour}

const (
	// busy is the time between two checks while deployments are queued or running.
	busy = 5 * time.Second
	// idle is the time between two checks of a review stack that is as wanted.
	idle = time.Hour
)

// Facts are what a review stack depends on.
type Facts struct {
	Now      time.Time
	Template bool // whether the template's stack exists and still is a template
	// Exists is set if the stack exists, and Empty if it has no resources.
	Exists, Empty bool
	// NameTaken is set if another stack has the name.
	NameTaken bool
	// Queued and Active are the stack's deployments that have not ended.
	Queued, Active []store.Job
	// Destroy is the newest deployment that was to destroy the stack.
	Destroy *store.Job
}

// Verdict is a step, or the reason that there is none.
type Verdict struct {
	Step    Step
	Problem string        // why the stack cannot be as wanted, or ""
	Orphan  bool          // the stack could not be destroyed
	Wait    time.Duration // until the next check, if there is no step
}

// Judge returns what is to be done about a review stack. It depends only on the state, not on the
// events that led to it, so that a lost or repeated event changes nothing.
func Judge(r store.ReviewStack, f Facts) Verdict {
	expired := r.TTL > 0 && !r.DeployedAt.IsZero() && !f.Now.Before(r.DeployedAt.Add(r.TTL)) && r.Deployed == r.CommitID
	if r.Wanted && !expired {
		return judgePresent(r, f)
	}
	return judgeAbsent(r, f)
}

func judgePresent(r store.ReviewStack, f Facts) Verdict {
	switch {
	case !f.Template:
		return Verdict{Problem: "the template was deleted, or is no template any more: the stack gets no more updates", Wait: idle}
	case !f.Exists && f.NameTaken:
		return Verdict{Problem: fmt.Sprintf("a stack %s/%s exists that is not the review stack of this pull request: rename or remove it", r.Project, r.Name), Wait: again[0]}
	case !f.Exists:
		return Verdict{Step: StepCreate}
	case has(f.Queued, workflow.OperationDestroy):
		return Verdict{Step: StepSkipDestroy}
	case has(f.Active, workflow.OperationDestroy):
		return Verdict{Wait: busy} // the stack is created again afterwards
	case r.Deployed != r.CommitID && has(f.Queued, workflow.OperationUpdate):
		return Verdict{Step: StepSkipUpdates}
	case r.Deployed != r.CommitID:
		return Verdict{Step: StepUpdate}
	}
	wait := idle
	if r.TTL > 0 {
		wait = min(wait, max(r.DeployedAt.Add(r.TTL).Sub(f.Now), busy))
	}
	return Verdict{Wait: wait}
}

func judgeAbsent(r store.ReviewStack, f Facts) Verdict {
	switch {
	case !f.Exists:
		return Verdict{Step: StepForget}
	case has(f.Queued, workflow.OperationUpdate):
		return Verdict{Step: StepSkipUpdates}
	case has(f.Queued, workflow.OperationDestroy), has(f.Active, workflow.OperationDestroy):
		return Verdict{Wait: busy}
	case f.Empty && len(f.Active)+len(f.Queued) == 0:
		return Verdict{Step: StepRemove}
	case f.Destroy == nil || f.Destroy.Status == workflow.StatusSkipped:
		return Verdict{Step: StepDestroy} // after a running update, which is never cancelled
	}
	// The destroy ended, and resources are left.
	problem := "its resources could not be destroyed: " + cmp.Or(f.Destroy.Message, "the deployment ended as "+string(f.Destroy.Status))
	if r.Tries > int64(len(again)) {
		return Verdict{Problem: problem, Orphan: true, Wait: idle}
	}
	if at := f.Destroy.EndedAt.Add(again[max(0, r.Tries-1)]); f.Now.Before(at) {
		return Verdict{Problem: problem, Wait: at.Sub(f.Now)}
	}
	return Verdict{Step: StepDestroy}
}

func has(jobs []store.Job, op workflow.Operation) bool {
	return slices.ContainsFunc(jobs, func(j store.Job) bool { return j.Operation == op })
}

// maxName is the maximum length of the name of a stack.
const maxName = 100

// Name returns the name of the review stack of a pull request. Characters that names cannot have are
// replaced, and a long name is cut and made unique by a hash.
func Name(repository string, pull int) string {
	repository = strings.Trim(repository, "/")
	suffix := fmt.Sprintf("-%d", pull)
	name := "pr-" + strings.Map(func(c rune) rune {
		if c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c == '.' || c == '-' {
			return c
		}
		return '-'
	}, repository)
	if len(name)+len(suffix) <= maxName {
		return name + suffix
	}
	sum := sha256.Sum256([]byte(repository))
	suffix = "-" + hex.EncodeToString(sum[:4]) + suffix
	return name[:maxName-len(suffix)] + suffix
}
