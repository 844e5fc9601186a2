package store

import (
	"time"

	"workflowagent/internal/server/store/database"
)

// VCSPull is a pull request as the forge described it last.
type VCSPull struct {
	ID, RepoID string
	Number     int64
	State      string
	Head       string // full commit id
	Base       string
	Source     string
	Ref        string
	Title      string
	URL        string `db:"url"`
	Draft      bool
	Fork       bool
	Doubt      string // the reason of package vcs that Fork is set although no other repository has the head, or ""
	Bot        bool
	AuthorID   string
	Author     string
	Labels     []string
	Approved   string   // the commit that members have approved, or ""
	ApprovedBy []string // actors of package identity, the latest first
	ApprovedAt time.Time
	UpdatedAt  time.Time // by the forge's clock
	ReadAt     time.Time
}

var vcsPulls = database.NewTable[VCSPull]("vcs_pulls p")

// SavePull adds a pull request, or replaces it.
func (tx *Tx) SavePull(p VCSPull) error { return vcsPulls.Save(tx.Tx, p, "id") }

// VCSPull returns a pull request by its id.
func (tx *Tx) VCSPull(id string) (VCSPull, error) { return vcsPulls.One(tx.Tx, "WHERE p.id = $1", id) }

// PullByNumber returns a pull request of a repository.
func (tx *Tx) PullByNumber(repoID string, number int64) (VCSPull, error) {
	return vcsPulls.One(tx.Tx, "WHERE p.repo_id = $1 AND p.number = $2", repoID, number)
}

// OpenPulls returns the open pull requests of a repository, by number.
func (tx *Tx) OpenPulls(repoID string) ([]VCSPull, error) {
	return vcsPulls.All(tx.Tx, "WHERE p.repo_id = $1 AND p.state = 'open' ORDER BY p.number", repoID)
}

// VCSRun is a deployment, or another consequence, of a commit of a pull request.
type VCSRun struct {
	ID              string
	StackID, PullID string
	CommitID        string
	Action          string
	Cause           string // "" for the first run; the id of the event that requested another
	DeploymentID    string
}

var vcsRuns = database.NewTable[VCSRun]("vcs_runs n")

// InsertRun adds a run, or returns [ErrConflict] if it exists.
func (tx *Tx) InsertRun(r VCSRun) error { return vcsRuns.Insert(tx.Tx, r) }

// HasRun reports whether a run exists, whatever its id and deployment.
func (tx *Tx) HasRun(r VCSRun) (bool, error) {
	n, err := database.Scalar[int64](tx.Tx, `SELECT COUNT(*) FROM vcs_runs WHERE stack_id = $1 AND pull_id = $2 AND commit_id = $3 AND action = $4 AND cause = $5`,
		r.StackID, r.PullID, r.CommitID, r.Action, r.Cause)
	return n > 0, err
}

// VCSCheckout is what a deployment checks out, if a repository of an integration contains its
// program.
type VCSCheckout struct {
	DeploymentID  string
	IntegrationID string
	RepoID        string
	CommitID      string
	Ref           string // full ref from which the commit can be fetched, or ""
	Branch        string // as jobs see it; a full ref for tags
	Pull          int64
	Fork          bool
	Credential    []byte    // encrypted; empty until the job's definition was fetched
	ExpiresAt     time.Time // of the credential; zero means never
}

var vcsCheckouts = database.NewTable[VCSCheckout]("vcs_checkouts c")

// InsertCheckout adds the checkout of a deployment that was added in the same transaction.
func (tx *Tx) InsertCheckout(c VCSCheckout) error { return vcsCheckouts.Insert(tx.Tx, c) }

// SaveCheckout stores a checkout.
func (tx *Tx) SaveCheckout(c VCSCheckout) error { return vcsCheckouts.Update(tx.Tx, c) }

// Checkout returns the checkout of a deployment.
func (tx *Tx) Checkout(deploymentID string) (VCSCheckout, error) {
	return vcsCheckouts.One(tx.Tx, "WHERE c.deployment_id = $1", deploymentID)
}
