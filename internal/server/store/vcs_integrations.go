package store

import (
	"fmt"
	"time"

	"workflowagent/internal/server/store/database"
)

// VCSIntegration connects an organization to a forge.
type VCSIntegration struct {
	ID, OrgID    string
	Provider     string // as in the settings of stacks
	Flavor       string // kind of forge of a custom provider, or ""
	Name         string
	BaseURL      string `db:"base_url"`
	APIURL       string `db:"api_url"`
	Owner        string
	Project      string
	AppID        string // of a GitHub App, or ""
	Installation string
	Options      string    // JSON
	Credential   []byte    // encrypted
	Secret       []byte    // of webhooks, encrypted
	OldSecret    []byte    // the previous secret, encrypted; valid until OldUntil
	OldUntil     time.Time // zero if there is none
	RefusedAt    time.Time // the first of the requests since which the forge accepts no credentials; zero if it accepts them
	Problem      string    // why the integration does not work, or ""
	CreatedBy    string
	CreatedAt    time.Time
	ModifiedAt   time.Time
	KeepsHost    bool      // whether its host may be in any network, because it is older than this rule
	DeliveriesAt time.Time // up to which the deliveries that failed were read; zero if never
}

var vcsIntegrations = database.NewTable[VCSIntegration]("vcs_integrations i")

// InsertIntegration adds an integration, or returns [ErrConflict] if the organization has one of this
// provider and name.
func (tx *Tx) InsertIntegration(i VCSIntegration) error { return vcsIntegrations.Insert(tx.Tx, i) }

// SaveIntegration stores what an administrator sets of an integration, and its problem.
func (tx *Tx) SaveIntegration(i VCSIntegration) error {
	return vcsIntegrations.Update(tx.Tx, i, "flavor", "name", "base_url", "api_url", "owner", "project", "app_id", "installation", "options",
		"credential", "secret", "old_secret", "old_until", "refused_at", "problem", "modified_at", "keeps_host")
}

// NoteIntegration records since when a forge accepts no credentials of an integration, and its problem,
// unless they or the integration have changed since i was read.
func (tx *Tx) NoteIntegration(i VCSIntegration, refusedAt time.Time, problem string) error {
	_, err := tx.Exec(`UPDATE vcs_integrations SET refused_at = $2, problem = $3
		WHERE id = $1 AND refused_at = $4 AND problem = $5 AND modified_at = $6`, i.ID, refusedAt, problem, i.RefusedAt, i.Problem, i.ModifiedAt)
	return err
}

// SetDeliveriesAt records up to when the failed deliveries of an integration's app were read.
func (tx *Tx) SetDeliveriesAt(id, appID string, at time.Time) error {
	_, err := tx.Exec("UPDATE vcs_integrations SET deliveries_at = $3 WHERE id = $1 AND app_id = $2 AND deliveries_at < $3", id, appID, at)
	return err
}

// Integration returns an integration by its id.
func (tx *Tx) Integration(id string) (VCSIntegration, error) {
	return vcsIntegrations.One(tx.Tx, "WHERE i.id = $1", id)
}

// Integrations returns the integrations of an organization, by provider and name.
func (tx *Tx) Integrations(orgID string) ([]VCSIntegration, error) {
	return vcsIntegrations.All(tx.Tx, "WHERE i.org_id = $1 ORDER BY i.provider, i.name", orgID)
}

// KeptIntegrations returns the integrations of all organizations whose hosts may be in any network.
func (tx *Tx) KeptIntegrations() ([]VCSIntegration, error) {
	return vcsIntegrations.All(tx.Tx, "WHERE i.keeps_host = 1 ORDER BY i.org_id, i.provider, i.name")
}

// IntegrationsOfApp returns the integrations that use a GitHub App, oldest first.
func (tx *Tx) IntegrationsOfApp(appID string) ([]VCSIntegration, error) {
	return vcsIntegrations.All(tx.Tx, "WHERE i.app_id = $1 AND i.app_id <> '' ORDER BY i.created_at, i.id", appID)
}

// AppIntegrations returns the integrations of all organizations that use a GitHub App, in the order of
// their ids, after an id.
func (tx *Tx) AppIntegrations(after string, limit int) ([]VCSIntegration, error) {
	return vcsIntegrations.All(tx.Tx, "WHERE i.app_id <> '' AND i.id > $1 ORDER BY i.id LIMIT $2", after, limit)
}

// DeleteIntegration removes an integration with its repositories, watches and events.
func (tx *Tx) DeleteIntegration(id string) error {
	return tx.ExecOne("DELETE FROM vcs_integrations WHERE id = $1", id)
}

// VCSRepo is a repository of an integration.
type VCSRepo struct {
	ID            string
	IntegrationID string
	RemoteID      string // the forge's id
	Name          string
	CloneURL      string    `db:"clone_url"`
	TagsKnown     bool      // the ledger contains all tags of the last poll
	HookAt        time.Time // time of the last delivery; zero if there was none
	HookedAt      time.Time // time at which the server tried to register its webhook; zero before
	PollAt        time.Time // time of the next poll
	PolledAt      time.Time // time of the last successful poll; zero before the first
	Failures      int64     // failed polls since the last successful one
	Problem       string    // of the last poll, or ""
	PullCursor    string
	CreatedAt     time.Time
	OrgID         string `db:"-" read:"(SELECT i.org_id FROM vcs_integrations i WHERE i.id = r.integration_id)"`
}

var vcsRepos = database.NewTable[VCSRepo]("vcs_repos r")

// InsertRepo adds a repository, or returns [ErrConflict] if the integration has it.
func (tx *Tx) InsertRepo(r VCSRepo) error { return vcsRepos.Insert(tx.Tx, r) }

// SaveRepo stores a repository, but not the time of its next poll, which other writes set at the same time.
func (tx *Tx) SaveRepo(r VCSRepo) error {
	return vcsRepos.Update(tx.Tx, r, "name", "clone_url", "tags_known", "hook_at", "hooked_at", "polled_at", "failures", "problem", "pull_cursor")
}

// SchedulePoll sets the time of the next poll of a repository, unless another write has set one since r was read.
func (tx *Tx) SchedulePoll(r VCSRepo, at time.Time) error {
	_, err := tx.Exec("UPDATE vcs_repos SET poll_at = $3 WHERE id = $1 AND poll_at = $2", r.ID, r.PollAt, at)
	return err
}

// Repo returns a repository by its id.
func (tx *Tx) Repo(id string) (VCSRepo, error) { return vcsRepos.One(tx.Tx, "WHERE r.id = $1", id) }

// RepoByRemoteID returns a repository by the forge's id.
func (tx *Tx) RepoByRemoteID(integrationID, remoteID string) (VCSRepo, error) {
	return vcsRepos.One(tx.Tx, "WHERE r.integration_id = $1 AND r.remote_id = $2", integrationID, remoteID)
}

// Repos returns the repositories of an integration, by name.
func (tx *Tx) Repos(integrationID string) ([]VCSRepo, error) {
	return vcsRepos.All(tx.Tx, "WHERE r.integration_id = $1 ORDER BY r.name, r.id", integrationID)
}

// ReposToPoll returns up to limit watched repositories whose next poll is due, the longest due first,
// while organizations, and the integrations of each, take turns. So many repositories of one do not
// hide those of the others.
func (tx *Tx) ReposToPoll(now time.Time, limit int) ([]VCSRepo, error) {
	return vcsRepos.All(tx.Tx, byTurn("r", "id", `SELECT r.id, i.org_id, r.integration_id, r.poll_at AS due_at FROM vcs_repos r
		JOIN vcs_integrations i ON i.id = r.integration_id
		WHERE r.poll_at <= $1 AND EXISTS (SELECT 1 FROM vcs_watches w JOIN live_stacks s ON s.id = w.stack_id WHERE w.repo_id = r.id AND w.repo_id <> '')`), now, limit)
}

// byTurn returns the clauses that select up to $2 rows of a table that are due. due is a query for the
// columns key, org_id, integration_id and due_at.
func byTurn(table, key, due string) string {
	return fmt.Sprintf(`JOIN (SELECT %[2]s AS row_key, due_at, ROW_NUMBER() OVER (PARTITION BY org_id ORDER BY of_integration, due_at, %[2]s) AS turn
			FROM (SELECT %[2]s, org_id, due_at, ROW_NUMBER() OVER (PARTITION BY integration_id ORDER BY due_at, %[2]s) AS of_integration FROM (%[3]s) AS due) AS ranked
		) AS turns ON turns.row_key = %[1]s.%[2]s ORDER BY turns.turn, turns.due_at, turns.row_key LIMIT $2`, table, key, due)
}

// repoUnused is the condition that no stack watches a repository r, with a time $1.
const repoUnused = `r.poll_at < $1 AND r.created_at < $1
	AND NOT EXISTS (SELECT 1 FROM vcs_watches w WHERE w.repo_id = r.id)
	AND NOT EXISTS (SELECT 1 FROM vcs_events e WHERE e.repo_id = r.id AND e.done = 0)`

// UnusedRepos returns up to limit repositories that no stack watches.
func (tx *Tx) UnusedRepos(before time.Time, limit int) ([]VCSRepo, error) {
	return vcsRepos.All(tx.Tx, "WHERE "+repoUnused+" LIMIT $2", before, limit)
}

// DeleteUnusedRepo removes a repository with its ledger and pull requests, unless a stack watches it.
func (tx *Tx) DeleteUnusedRepo(id string, before time.Time) error {
	_, err := tx.Exec("DELETE FROM vcs_repos WHERE id IN (SELECT r.id FROM vcs_repos r WHERE r.id = $2 AND "+repoUnused+")", before, id)
	return err
}

// PollReposNow makes the polls of repositories due, except those that are due anyway: of an integration,
// or of all if integrationID is "".
func (tx *Tx) PollReposNow(integrationID string, now time.Time) error {
	_, err := tx.Exec("UPDATE vcs_repos SET poll_at = $1 WHERE poll_at > $1 AND ($2 = '' OR integration_id = $2)", now, integrationID)
	return err
}
