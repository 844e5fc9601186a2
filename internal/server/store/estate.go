package store

import (
	"slices"
	"strings"
	"time"

	"workflowagent/internal/server/store/database"
	"workflowagent/internal/workflow"
)

// Drift is what the newest detection with a result found. The zero value means that no detection had a result.
type Drift string

// The results of a detection.
const (
	NoDrift    Drift = "none"
	DriftFound Drift = "found"
)

// RunResult is how a run ended.
type RunResult string

// The results of runs. A run that found drift changed nothing, but shows that the stack is not as declared.
const (
	RunRunning   RunResult = "running"
	RunSucceeded RunResult = "succeeded"
	RunFailed    RunResult = "failed"
	RunCancelled RunResult = "cancelled"
	RunDrift     RunResult = "drift"
)

// Estate is what lists show of a stack. A run is a deployment, or an update that no deployment ran. Runs that write
// are all except previews and detections of drift.
type Estate struct {
	StackID       string
	OrgID         string // as in the row of the stack, also of a deleted one
	Project, Name string
	Rank          EstateRank // of the state; see [Estate.rank]
	ChangedAt     time.Time  // end of the last run that writes, or its start while it runs; zero without one
	Version       int64      // of the stack
	Deployments   int64      // number of the newest deployment
	Resources     int64      // in the state
	HeldBy        string     // update that holds the stack; "" if none does
	Active        int64      // claimed and running deployments that write
	Queued        int64      // queued deployments that write
	Paused        bool       // the stack's queue, not that of the organization

	// The last run that writes. LastKind is "" if there was none.
	LastKind       string // operation of the deployment, or kind of the update
	LastDeployment int64  // its number; 0 if the run is no deployment
	LastVersion    int64  // version of the stack that it created; 0 if it started no update
	LastResult     RunResult
	LastBy         string // user id; "" if no user requested it
	LastWho        string // name at the time of the request; "" for updates
	LastMessage    string
	LastStartedAt  time.Time
	LastEndedAt    time.Time // zero while it runs

	Drift        Drift
	DriftAt      time.Time // end of the newest detection with a result, or of the remediation after it
	DriftChanges string    // JSON object from operations to counts of that detection
	Runs         Runs      // the last ones that write or found drift
	Tags         string    // in lower case for searches, without those that programs set
	Owner        string    // value of the tag owner
	Repository   string    // of the program, by its tags
	Unevaluated  bool      // the last update ended without a required policy pack
}

var estates = database.NewTable[Estate]("estate e")

// Estate returns what lists show of a stack.
func (tx *Tx) Estate(stackID string) (Estate, error) {
	return estates.One(tx.Tx, "WHERE e.stack_id = $1", stackID)
}

// EstateRank is a stack's state. The ranks are in the order in which states need attention; package estate names them.
type EstateRank int64

// The ranks.
const (
	RankFailed EstateRank = iota
	RankDrift
	RankRunning
	RankQueued
	RankPaused
	RankDeclared
	RankNever
)

// rank returns the state of a stack: the first that holds. The lock is that of a running update; a failed preview marks
// its run only.
func (e *Estate) rank() EstateRank {
	switch {
	case e.HeldBy != "" || e.Active > 0:
		return RankRunning
	case e.LastResult == RunFailed || e.LastResult == RunCancelled:
		return RankFailed
	case e.Drift == DriftFound:
		return RankDrift
	case e.Queued > 0:
		return RankQueued
	case e.Paused:
		return RankPaused
	case e.LastKind != "":
		return RankDeclared
	default:
		return RankNever
	}
}

// derive sets what follows from the rest.
func (e *Estate) derive() {
	e.Rank, e.ChangedAt = e.rank(), e.LastStartedAt
	if e.LastEndedAt.After(e.LastStartedAt) {
		e.ChangedAt = e.LastEndedAt
	}
}

// changeEstate changes a stack's row, which does not exist if an older program created the stack.
func (tx *Tx) changeEstate(stackID string, change func(e *Estate)) error {
	e, err := tx.Estate(stackID)
	if err != nil {
		return IgnoreMissing(err)
	}
	before := e
	change(&e)
	return tx.saveEstate(before, e)
}

func (tx *Tx) saveEstate(before, e Estate) error {
	e.derive()
	columns := estates.Differences(before, e)
	if len(columns) == 0 {
		return nil
	}
	return estates.Update(tx.Tx, e, columns...)
}

// addEstate adds the row of a new stack.
func (tx *Tx) addEstate(s Stack) error {
	e := Estate{StackID: s.ID, OrgID: s.OrgID, Project: s.Project, Name: s.Name, Version: s.Version, Resources: s.ResourceCount, HeldBy: s.ActiveUpdate}
	e.derive()
	return estates.Insert(tx.Tx, e)
}

// stateOfEstate copies a stack's version, number of resources and lock.
func (tx *Tx) stateOfEstate(s Stack) error {
	return tx.changeEstate(s.ID, func(e *Estate) { e.Version, e.Resources, e.HeldBy = s.Version, s.ResourceCount, s.ActiveUpdate })
}

// nameOfEstate copies a stack's organization and names, also those of a deleted one, and the organization to its
// resources.
func (tx *Tx) nameOfEstate(stackID string) error {
	_, err := tx.Exec(`UPDATE estate SET org_id = s.org_id, project = s.project, name = s.name
		FROM stacks s WHERE s.id = estate.stack_id AND estate.stack_id = $1`, stackID)
	if err != nil {
		return err
	}
	_, err = tx.Exec(`UPDATE resource_names SET org_id = s.org_id FROM stacks s
		WHERE s.id = resource_names.stack_id AND resource_names.stack_id = $1 AND resource_names.org_id <> s.org_id`, stackID)
	return err
}

// queueOfEstate copies the state of a stack's queue.
func (tx *Tx) queueOfEstate(q StackQueue) error {
	return tx.changeEstate(q.StackID, func(e *Estate) { e.Paused, e.Deployments = q.Paused, q.LastVersion })
}

// Tags that describe a stack.
const (
	ownerTag = "owner"
	maxTags  = 4000 // of [Estate].Tags, in bytes
)

// tagPrefixes are those of the tags that programs set.
var tagPrefixes = []string{"pulumi:", "vcs:", "gitHub:"}

// tagsOfEstate copies a stack's tags.
func (tx *Tx) tagsOfEstate(stackID string, tags map[string]string) error {
	var list []string
	for name, value := range tags {
		if !slices.ContainsFunc(tagPrefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			list = append(list, strings.ToLower(name+":"+value))
		}
	}
	slices.Sort(list)
	_, err := tx.Exec("UPDATE estate SET tags = $2, owner = $3, repository = $4 WHERE stack_id = $1",
		stackID, cutOff(strings.Join(list, "\n"), maxTags), tags[ownerTag], repositoryOf(tags))
	return err
}

// repositoryOf returns the repository that the pulumi CLI has found the stack's program in, or "".
func repositoryOf(tags map[string]string) string {
	for _, prefix := range []string{"vcs:", "gitHub:"} {
		if repo := tags[prefix+"repo"]; repo != "" {
			return strings.TrimPrefix(tags[prefix+"owner"]+"/"+repo, "/")
		}
	}
	return ""
}

// readTagsOfEstate copies a stack's tags after one of them has changed.
func (tx *Tx) readTagsOfEstate(stackID string) error {
	tags, err := tx.StackTags(stackID)
	if err != nil {
		return err
	}
	return tx.tagsOfEstate(stackID, tags)
}

// Star marks a stack for a user.
func (tx *Tx) Star(userID, stackID string) error {
	_, err := tx.Exec("INSERT INTO stars (user_id, stack_id, created_at) VALUES ($1, $2, $3) ON CONFLICT (user_id, stack_id) DO NOTHING", userID, stackID, tx.Now())
	return err
}

// Unstar removes the mark of a user from a stack.
func (tx *Tx) Unstar(userID, stackID string) error {
	_, err := tx.Exec("DELETE FROM stars WHERE user_id = $1 AND stack_id = $2", userID, stackID)
	return err
}

// runOf is what a stack's row shows of a deployment.
type runOf struct {
	ID                     string
	Version                int64
	Operation              workflow.Operation
	RequestedBy, Requester string
}

var runsOf = database.NewTable[runOf]("deployments d")

// runOf returns what a stack's row shows of a deployment, or the zero value if it does not exist.
func (tx *Tx) runOf(deploymentID string) (runOf, error) {
	d, err := runsOf.One(tx.Tx, "WHERE d.id = $1", deploymentID)
	return d, IgnoreMissing(err)
}
