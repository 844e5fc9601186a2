package store

import (
	"fmt"
	"strings"
	"time"
)

// Stack is an instance of a project and its current state.
type Stack struct {
	ID, OrgID, OrgName string // OrgName is read by a join and never written
	Project, Name      string
	CreatedBy          string // user id
	CreatedAt          time.Time
	Version            int64     // of the newest started update; 0 for none
	StateBlob          string    // blob key of the current state, "" for none
	StateSchema        int64     // schema version of the current state
	ResourceCount      int64     // resources in the current state
	ActiveUpdate       string    // id of the update that holds the stack, "" for none
	LastUpdateAt       time.Time // when the newest update started, zero for never
	Config             string    // JSON of the stored stack configuration, "" for none
}

// Ref returns the stack's name as org/project/stack.
func (s Stack) Ref() string { return s.OrgName + "/" + s.Project + "/" + s.Name }

const stackColumns = `s.id, s.org_id, o.name, s.project, s.name, s.created_by, s.created_at, s.version,
	s.state_blob, s.state_schema, s.resource_count, s.active_update, s.last_update_at, s.config`

const stackFrom = " FROM stacks s JOIN organizations o ON o.id = s.org_id "

func readStack(scan scanFunc) (Stack, error) {
	var s Stack
	var created, last int64
	err := scan(&s.ID, &s.OrgID, &s.OrgName, &s.Project, &s.Name, &s.CreatedBy, &created, &s.Version,
		&s.StateBlob, &s.StateSchema, &s.ResourceCount, &s.ActiveUpdate, &last, &s.Config)
	s.CreatedAt, s.LastUpdateAt = fromMicros(created), fromMicros(last)
	return s, err
}

// InsertStack adds a stack, or returns [ErrConflict] if its name is taken.
func (tx *Tx) InsertStack(s Stack) error {
	_, err := tx.exec(`INSERT INTO stacks (id, org_id, project, name, created_by, created_at, version,
		state_blob, state_schema, resource_count, active_update, last_update_at, config)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)`,
		s.ID, s.OrgID, s.Project, s.Name, s.CreatedBy, micros(s.CreatedAt), s.Version,
		s.StateBlob, s.StateSchema, s.ResourceCount, s.ActiveUpdate, micros(s.LastUpdateAt), s.Config)
	return err
}

// Stack returns a stack by id.
func (tx *Tx) Stack(id string) (Stack, error) {
	return one(tx, readStack, "SELECT "+stackColumns+stackFrom+"WHERE s.id = $1", id)
}

// StackByName returns a stack by organization, project and stack name.
func (tx *Tx) StackByName(org, project, name string) (Stack, error) {
	return one(tx, readStack, "SELECT "+stackColumns+stackFrom+
		"WHERE o.name = $1 AND s.project = $2 AND s.name = $3", org, project, name)
}

// UpdateStack writes a stack's names, version, state, active update and configuration.
func (tx *Tx) UpdateStack(s Stack) error {
	return tx.execOne(`UPDATE stacks SET project = $2, name = $3, version = $4, state_blob = $5, state_schema = $6,
		resource_count = $7, active_update = $8, last_update_at = $9, config = $10 WHERE id = $1`,
		s.ID, s.Project, s.Name, s.Version, s.StateBlob, s.StateSchema,
		s.ResourceCount, s.ActiveUpdate, micros(s.LastUpdateAt), s.Config)
}

// DeleteStack removes a stack with its tags, updates and events. The caller removes its blobs.
func (tx *Tx) DeleteStack(id string) error {
	return tx.execOne("DELETE FROM stacks WHERE id = $1", id)
}

// ProjectExists reports whether a project of an organization has a stack.
func (tx *Tx) ProjectExists(orgID, project string) (bool, error) {
	var n int64
	err := tx.queryOne("SELECT COUNT(*) FROM stacks WHERE org_id = $1 AND project = $2", []any{orgID, project}, &n)
	return n > 0, err
}

// StackFilter selects stacks; empty fields select all.
type StackFilter struct {
	OrgIDs   []string // must not be empty
	StackID  string   // "" for all
	Project  string
	TagName  string
	TagValue string
	// After continues a list behind the stack with this sort key.
	After string
	// Limit bounds the list; 0 means no bound.
	Limit int
}

// SortKey returns the stack's position in lists.
func (s Stack) SortKey() string { return s.OrgID + "/" + s.Project + "/" + s.Name }

// Stacks returns the selected stacks, without their configurations, ordered by [Stack.SortKey].
func (tx *Tx) Stacks(f StackFilter) ([]Stack, error) {
	if len(f.OrgIDs) == 0 {
		return nil, nil
	}
	var where []string
	var args []any
	arg := func(v any) string {
		args = append(args, v)
		return fmt.Sprintf("$%d", len(args))
	}
	var orgs []string
	for _, id := range f.OrgIDs {
		orgs = append(orgs, arg(id))
	}
	where = append(where, "s.org_id IN ("+strings.Join(orgs, ", ")+")")
	if f.StackID != "" {
		where = append(where, "s.id = "+arg(f.StackID))
	}
	if f.Project != "" {
		where = append(where, "s.project = "+arg(f.Project))
	}
	if f.TagName != "" {
		cond := "EXISTS (SELECT 1 FROM stack_tags t WHERE t.stack_id = s.id AND t.name = " + arg(f.TagName)
		if f.TagValue != "" {
			cond += " AND t.value = " + arg(f.TagValue)
		}
		where = append(where, cond+")")
	}
	const key = "s.org_id || '/' || s.project || '/' || s.name"
	if f.After != "" {
		where = append(where, key+" > "+arg(f.After))
	}
	query := "SELECT " + strings.Replace(stackColumns, "s.config", "''", 1) + stackFrom + "WHERE " + strings.Join(where, " AND ") + " ORDER BY " + key
	if f.Limit > 0 {
		query += fmt.Sprintf(" LIMIT %d", f.Limit)
	}
	return collect(tx, readStack, query, args...)
}

// StackTags returns the tags of a stack.
func (tx *Tx) StackTags(stackID string) (map[string]string, error) {
	tags := map[string]string{}
	err := tx.queryEach("SELECT name, value FROM stack_tags WHERE stack_id = $1", []any{stackID}, func(scan scanFunc) error {
		var k, v string
		if err := scan(&k, &v); err != nil {
			return err
		}
		tags[k] = v
		return nil
	})
	return tags, err
}

// SetStackTags replaces all tags of a stack.
func (tx *Tx) SetStackTags(stackID string, tags map[string]string) error {
	if _, err := tx.exec("DELETE FROM stack_tags WHERE stack_id = $1", stackID); err != nil {
		return err
	}
	for k, v := range tags {
		if err := tx.SetStackTag(stackID, k, v); err != nil {
			return err
		}
	}
	return nil
}

// SetStackTag sets one tag of a stack.
func (tx *Tx) SetStackTag(stackID, name, value string) error {
	_, err := tx.exec(`INSERT INTO stack_tags (stack_id, name, value) VALUES ($1, $2, $3)
		ON CONFLICT (stack_id, name) DO UPDATE SET value = excluded.value`, stackID, name, value)
	return err
}

// DeleteStackTag removes a tag, or returns [ErrNotFound] if the stack does not have it.
func (tx *Tx) DeleteStackTag(stackID, name string) error {
	return tx.execOne("DELETE FROM stack_tags WHERE stack_id = $1 AND name = $2", stackID, name)
}

// NamedStates returns the keys that a stack or an update refers to as its state.
func (tx *Tx) NamedStates(keys []string) (map[string]bool, error) {
	marks, args := make([]string, len(keys)), make([]any, len(keys))
	for i, key := range keys {
		marks[i], args[i] = fmt.Sprintf("$%d", i+1), key
	}
	list := strings.Join(marks, ", ")
	named := map[string]bool{}
	err := tx.queryEach("SELECT state_blob FROM stacks WHERE state_blob IN ("+list+") AND state_blob <> ''"+
		" UNION SELECT state_blob FROM updates WHERE state_blob IN ("+list+") AND state_blob <> ''", args, func(scan scanFunc) error {
		var key string
		err := scan(&key)
		named[key] = true
		return err
	})
	return named, err
}
