package store

import (
	"fmt"
	"strings"

	"workflowagent/internal/server/store/database"
)

// Reference is a stack that a StackReference in another stack's state names. The named stack might
// not exist.
type Reference struct{ Org, Project, Name string }

const withoutReferences = "s.active_update = '' AND s.references_of <> s.state_blob"

// StacksWithoutReferences returns up to limit stacks whose references were not read from their
// current state, and that no update holds. The ids of the stacks follow after.
func (tx *Tx) StacksWithoutReferences(after string, limit int) ([]Stack, error) {
	return tx.stacksWithoutConfig("WHERE "+withoutReferences+" AND s.id > $1 ORDER BY s.id"+fmt.Sprintf(" LIMIT %d", limit), after)
}

// LacksReferences reports whether a stack's references were not read from its current state, and
// no update holds the stack.
func (tx *Tx) LacksReferences(stackID string) (bool, error) {
	n, err := database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM live_stacks s WHERE "+withoutReferences+" AND s.id = $1", stackID)
	return n > 0, err
}

// SetReferences records the references and the resources that were read from a state. It changes nothing if the state
// is no longer the stack's current one.
func (tx *Tx) SetReferences(stackID, state string, references []Reference, resources []ResourceName) error {
	n, err := tx.Exec("UPDATE stacks SET references_of = $2 WHERE id = $1 AND state_blob = $2 AND active_update = ''", stackID, state)
	if err != nil || n == 0 {
		return err
	}
	if _, err := tx.Exec("DELETE FROM stack_references WHERE stack_id = $1", stackID); err != nil {
		return err
	}
	for _, r := range references {
		_, err := tx.Exec(`INSERT INTO stack_references (stack_id, org, project, name) VALUES ($1, $2, $3, $4)
			ON CONFLICT (stack_id, org, project, name) DO NOTHING`, stackID, r.Org, r.Project, r.Name)
		if err != nil {
			return err
		}
	}
	return tx.SetResourceNames(stackID, resources)
}

// KeepReferences marks a stack's references and resources as read from a state that the server cannot read.
func (tx *Tx) KeepReferences(stackID, state string) error {
	_, err := tx.Exec("UPDATE stacks SET references_of = $2 WHERE id = $1", stackID, state)
	return err
}

// UpstreamStacks returns the existing stacks that a stack references and that f selects by Reach,
// ordered by name.
func (tx *Tx) UpstreamStacks(st Stack, f StackFilter) ([]Stack, error) {
	return tx.relatedStacks("JOIN stack_references r ON s.org_id = "+named("r.org")+" AND r.project = s.project AND r.name = s.name WHERE r.stack_id = $1",
		f, st.ID)
}

// DownstreamStacks returns the stacks that reference a stack and that f selects by Reach, ordered by
// name.
func (tx *Tx) DownstreamStacks(st Stack, f StackFilter) ([]Stack, error) {
	return tx.relatedStacks(`JOIN stack_references r ON r.stack_id = s.id
		WHERE r.org IN (SELECT name FROM organizations WHERE id = $1 UNION ALL SELECT name FROM former_names WHERE org_id = $1)
		AND r.project = $2 AND r.name = $3`, f, st.OrgID, st.Project, st.Name)
}

func (tx *Tx) relatedStacks(join string, f StackFilter, args ...any) ([]Stack, error) {
	visible, args := f.Reach.query(args...)
	if visible == "" {
		return nil, nil
	}
	rest := join + " AND " + visible + " ORDER BY o.name, s.project, s.name"
	if f.Limit > 0 {
		rest += fmt.Sprintf(" LIMIT %d", f.Limit)
	}
	return tx.stacksWithoutConfig(rest, args...)
}

// stacksWithoutConfig returns the stacks of a query, without their configurations, which can be
// long.
func (tx *Tx) stacksWithoutConfig(rest string, args ...any) ([]Stack, error) {
	query := strings.Replace(stacks.Query(rest), "s.config", "''", 1)
	return database.Collect(tx.Tx, stacks.Scan, query, args...)
}
