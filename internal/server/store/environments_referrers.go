package store

import (
	"fmt"

	"workflowagent/internal/server/store/database"
)

// EnvironmentImport is an environment that a revision imports, of the same organization.
type EnvironmentImport struct {
	EnvironmentID string
	Number        int64
	Project, Name string
	Version       string // number or tag; [LatestVersion] if the definition names none
}

// StackEnvironment is an environment that an update of a stack has opened.
type StackEnvironment struct {
	EnvironmentID, StackID string
	StackVersion           int64  // of the update
	Version                string // of the environment: number or tag; [LatestVersion] if the stack names none
}

var (
	environmentImports = database.NewTable[EnvironmentImport]("environment_imports i")
	stackEnvironments  = database.NewTable[StackEnvironment]("stack_environments u")
)

// InsertEnvironmentImport adds an import of a revision, once.
func (tx *Tx) InsertEnvironmentImport(i EnvironmentImport) error {
	return environmentImports.Merge(tx.Tx, i, "environment_id, number, project, name, version", "version = excluded.version")
}

// EnvironmentImports returns what a revision imports, by name.
func (tx *Tx) EnvironmentImports(environmentID string, number int64) ([]EnvironmentImport, error) {
	return environmentImports.All(tx.Tx, "WHERE i.environment_id = $1 AND i.number = $2 ORDER BY i.project, i.name, i.version", environmentID, number)
}

// SaveStackEnvironment records that an update has opened an environment, once. Only the newest update of the stack that opened
// the version is kept.
func (tx *Tx) SaveStackEnvironment(u StackEnvironment) error {
	_, err := tx.Exec("DELETE FROM stack_environments WHERE environment_id = $1 AND stack_id = $2 AND version = $3 AND stack_version < $4",
		u.EnvironmentID, u.StackID, u.Version, u.StackVersion)
	if err != nil {
		return err
	}
	return stackEnvironments.Merge(tx.Tx, u, "environment_id, stack_id, stack_version, version", "version = excluded.version")
}

// Referrer is what refers to an environment: another environment, or an update of a stack.
type Referrer struct {
	Version       string // of the environment, as the referrer names it
	Project, Name string // of the referring environment or stack
	Number        int64  // of the referring environment's revision, or version of the update
	Stack         bool
	ID            string // of the referring environment or stack
}

// referrersOf selects the referrers of the environment with the organization $1, the project $2, the name $3 and the id $4.
// Another environment refers to it with its newest revision.
const referrersOf = `SELECT i.version AS version, e.project AS project, e.name AS name, i.number AS number, 0 AS stack, e.id AS id
		FROM environment_imports i JOIN environments e ON e.id = i.environment_id AND i.number = e.last_number
		WHERE e.org_id = $1 AND i.project = $2 AND i.name = $3
	UNION ALL SELECT u.version, s.project, s.name, u.stack_version, 1, s.id
		FROM stack_environments u JOIN live_stacks s ON s.id = u.stack_id AND s.org_id = $1 WHERE u.environment_id = $4`

// Referrers returns up to limit referrers of an environment after the first ones, in a stable order. newest is set to
// return of each stack only the newest update that refers to it.
func (tx *Tx) Referrers(e Environment, newest bool, offset, limit int) ([]Referrer, error) {
	where := ""
	if newest {
		where = `WHERE r.stack = 0 OR r.number = (SELECT MAX(u.stack_version) FROM stack_environments u WHERE u.environment_id = $4 AND u.stack_id = r.id) `
	}
	return database.Collect(tx.Tx, func(scan database.Scan) (r Referrer, err error) {
		var stack int64
		err = scan(&r.Version, &r.Project, &r.Name, &r.Number, &stack, &r.ID)
		r.Stack = stack != 0
		return r, err
	}, fmt.Sprintf("SELECT r.version, r.project, r.name, r.number, r.stack, r.id FROM (%s) r %sORDER BY r.stack, r.id, r.number DESC, r.version LIMIT %d OFFSET %d",
		referrersOf, where, limit, offset), e.OrgID, e.Project, e.Name, e.ID)
}

// ReferrerCounts are the numbers of an environment's referrers.
type ReferrerCounts struct{ Environments, Stacks int64 }

// Importer is an environment with the revisions that import another one.
type Importer struct {
	EnvironmentID string
	Numbers       []int64 // the newest ones, in ascending order
}

// Importers returns up to limit environments that import an environment with one of some versions, and of each up to revisions
// newest revisions that do so and are not retracted.
func (tx *Tx) Importers(e Environment, versions []string, limit, revisions int) ([]Importer, error) {
	among, args := among("i.version", versions, []any{e.OrgID, e.Project, e.Name})
	type importing struct {
		id     string
		number int64
	}
	list, err := database.Collect(tx.Tx, func(scan database.Scan) (i importing, err error) {
		err = scan(&i.id, &i.number)
		return i, err
	}, fmt.Sprintf(`WITH importing AS (SELECT DISTINCT i.environment_id AS id, i.number AS number FROM environment_imports i
			JOIN environments e ON e.id = i.environment_id
			JOIN environment_revisions r ON r.environment_id = i.environment_id AND r.number = i.number AND r.replacement = 0
			WHERE e.org_id = $1 AND i.project = $2 AND i.name = $3 AND %s),
		ranked AS (SELECT id, number, ROW_NUMBER() OVER (PARTITION BY id ORDER BY number DESC) AS newer FROM importing)
		SELECT k.id, k.number FROM ranked k WHERE k.newer <= %d
			AND k.id IN (SELECT DISTINCT id FROM importing ORDER BY id LIMIT %d) ORDER BY k.id, k.number`, among, revisions, limit), args...)
	var out []Importer
	for _, i := range list {
		if len(out) == 0 || out[len(out)-1].EnvironmentID != i.id {
			out = append(out, Importer{EnvironmentID: i.id})
		}
		last := &out[len(out)-1]
		last.Numbers = append(last.Numbers, i.number)
	}
	return out, err
}
