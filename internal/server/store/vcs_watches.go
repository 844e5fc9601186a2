package store

import (
	"time"

	"workflowagent/internal/server/store/database"
)

// VCSWatch is what the settings of a stack say about a repository of an integration.
type VCSWatch struct {
	StackID       string
	IntegrationID string
	RepoID        string // "" until the forge has told the repository's id
	Name          string // of the repository, as in the settings
	Branch        string
	DeployCommits bool
	PreviewPulls  bool
	Template      bool
	DeployTags    bool
	DeployPull    int64
	Paths         []string
	TagFilters    []string
	Labels        []string
	FindAt        time.Time // time of the next attempt to find the repository
	Failures      int64     // attempts that failed
	Problem       string    // of the last attempt, or ""
	OrgID         string    `db:"-" read:"s.org_id"`
	Project       string    `db:"-" read:"s.project"`
	Stack         string    `db:"-" read:"s.name"`
}

// A stack can be in another organization than the integration for a moment, while it is transferred.
var vcsWatches = database.NewTable[VCSWatch]("vcs_watches w JOIN live_stacks s ON s.id = w.stack_id JOIN vcs_integrations i ON i.id = w.integration_id AND i.org_id = s.org_id")

// SaveWatch adds or replaces the watch of a stack.
func (tx *Tx) SaveWatch(w VCSWatch) error { return vcsWatches.Save(tx.Tx, w, "stack_id") }

// DeleteWatch removes the watch of a stack, if it exists.
func (tx *Tx) DeleteWatch(stackID string) error {
	_, err := tx.Exec("DELETE FROM vcs_watches WHERE stack_id = $1", stackID)
	return err
}

// Watch returns the watch of a stack.
func (tx *Tx) Watch(stackID string) (VCSWatch, error) {
	return vcsWatches.One(tx.Tx, "WHERE w.stack_id = $1", stackID)
}

// WatchesOfRepo returns the watches of a repository, by project and stack.
func (tx *Tx) WatchesOfRepo(repoID string) ([]VCSWatch, error) {
	return vcsWatches.All(tx.Tx, "WHERE w.repo_id = $1 AND w.repo_id <> '' ORDER BY s.project, s.name", repoID)
}

// WatchesOfIntegration returns the watches of the repositories of an integration.
func (tx *Tx) WatchesOfIntegration(integrationID string) ([]VCSWatch, error) {
	return vcsWatches.All(tx.Tx, "WHERE w.integration_id = $1 ORDER BY s.project, s.name", integrationID)
}

// WatchesOfName returns the watches of an integration whose settings contain a name of a repository.
func (tx *Tx) WatchesOfName(integrationID, name string) ([]VCSWatch, error) {
	return vcsWatches.All(tx.Tx, "WHERE w.integration_id = $1 AND w.name = $2 ORDER BY s.project, s.name", integrationID, name)
}

// FailingWatches returns the number of stacks whose repository could not be found or polled, by the
// integrations of an organization.
func (tx *Tx) FailingWatches(orgID string) (map[string]int64, error) {
	return database.Pairs[string, int64](tx.Tx, `SELECT w.integration_id, COUNT(*) FROM vcs_watches w JOIN vcs_integrations i ON i.id = w.integration_id
		JOIN live_stacks s ON s.id = w.stack_id
		LEFT JOIN vcs_repos r ON r.id = w.repo_id WHERE i.org_id = $1 AND (w.problem <> '' OR r.problem <> '') GROUP BY w.integration_id`, orgID)
}

// WatchesToFind returns up to limit watches whose repository must be found now, in the order of
// [Tx.ReposToPoll].
func (tx *Tx) WatchesToFind(now time.Time, limit int) ([]VCSWatch, error) {
	return vcsWatches.All(tx.Tx, byTurn("w", "stack_id", `SELECT w.stack_id, i.org_id, w.integration_id, w.find_at AS due_at FROM vcs_watches w
		JOIN live_stacks s ON s.id = w.stack_id
		JOIN vcs_integrations i ON i.id = w.integration_id WHERE w.repo_id = '' AND w.find_at <= $1`), now, limit)
}

// VCSRef is a ref in the ledger of a repository.
type VCSRef struct {
	RepoID, Ref string
	CommitID    string // "" if the ref does not exist
	Recorded    bool   // no event has led to the commit
	SeenAt      time.Time
}

var vcsRefs = database.NewTable[VCSRef]("vcs_refs f")

// Ref returns a ref in the ledger.
func (tx *Tx) Ref(repoID, ref string) (VCSRef, error) {
	return vcsRefs.One(tx.Tx, "WHERE f.repo_id = $1 AND f.ref = $2", repoID, ref)
}

// Refs returns the ledger of a repository, by ref.
func (tx *Tx) Refs(repoID string) ([]VCSRef, error) {
	return vcsRefs.All(tx.Tx, "WHERE f.repo_id = $1 ORDER BY f.ref", repoID)
}

// SaveRef adds or replaces a ref in the ledger.
func (tx *Tx) SaveRef(r VCSRef) error { return vcsRefs.Save(tx.Tx, r, "repo_id, ref") }

// DeleteRef removes a ref from the ledger, if it exists.
func (tx *Tx) DeleteRef(repoID, ref string) error {
	_, err := tx.Exec("DELETE FROM vcs_refs WHERE repo_id = $1 AND ref = $2", repoID, ref)
	return err
}
