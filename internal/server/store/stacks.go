package store

import (
	"fmt"
	"strings"
	"time"

	"workflowagent/internal/server/store/database"
	"workflowagent/internal/server/store/scope"
)

// Stack is an instance of a project, with its current state.
type Stack struct {
	ID, OrgID     string
	OrgName       string `db:"-" read:"o.name"`
	Project, Name string
	CreatedBy     string // id of a user, or of the organization if one of its tokens created the stack
	CreatedAt     time.Time
	Version       int64     // version of the newest started update; 0 before the first
	StateBlob     string    // key of the current state; "" without a state
	StateSchema   int64     // schema version of the current state
	ResourceCount int64     // number of resources in the current state
	ActiveUpdate  string    // id of the update that holds the stack; "" if none does
	LastUpdateAt  time.Time // start of the newest update; zero before the first
	Config        string    // stored stack configuration as JSON; "" if none is stored
	// OrgPermission is the permission that the organization's members have on every stack.
	OrgPermission Permission `db:"-" read:"o.stack_permission"`
}

// Ref returns the stack's name as org/project/stack.
func (s Stack) Ref() string { return s.OrgName + "/" + s.Project + "/" + s.Name }

// Scope names a stack that was read as the owner of what a write changes: if it has been removed or transferred
// since, the write fails.
func (s Stack) Scope() scope.Set {
	return scope.Set{{Level: scope.LevelStack, Key: s.ID, Org: s.OrgID, Known: true}}
}

var (
	stacks = database.NewTable[Stack]("live_stacks s JOIN organizations o ON o.id = s.org_id")
	// stackRows only writes.
	stackRows = database.NewTable[Stack]("stacks s")
)

// InsertStack adds a stack, or returns [ErrConflict] if its name is taken.
func (tx *Tx) InsertStack(s Stack) error {
	if err := stackRows.Insert(tx.Tx, s); err != nil {
		return err
	}
	return tx.addEstate(s)
}

// Stack returns a stack by its id.
func (tx *Tx) Stack(id string) (Stack, error) { return stacks.One(tx.Tx, "WHERE s.id = $1", id) }

// StackByName returns a stack by organization, project and stack name. The name of the organization can be
// a former one.
func (tx *Tx) StackByName(org, project, name string) (Stack, error) {
	return stacks.One(tx.Tx, "WHERE s.org_id = "+named("$1")+" AND s.project = $2 AND s.name = $3", org, project, name)
}

// StackID returns the id of a stack of an organization.
func (tx *Tx) StackID(orgID, project, name string) (string, error) {
	return database.Scalar[string](tx.Tx, "SELECT id FROM live_stacks WHERE org_id = $1 AND project = $2 AND name = $3", orgID, project, name)
}

// StacksNamed returns up to limit stacks of an organization with a name, by project.
func (tx *Tx) StacksNamed(orgID, name string, limit int) ([]Stack, error) {
	return stacks.All(tx.Tx, fmt.Sprintf("WHERE s.org_id = $1 AND s.name = $2 ORDER BY s.project LIMIT %d", limit), orgID, name)
}

// StackFor returns a stack by its names, with the highest permission on it that a user or a team has
// been granted; see [Tx.Granted]. It runs one statement.
func (tx *Tx) StackFor(org, project, name, userID, teamID string) (Stack, Permission, error) {
	var granted Permission
	st, err := database.One(tx.Tx, func(scan database.Scan) (st Stack, err error) {
		var own, byTeam int64
		err = scan(append(stacks.Fields(&st), &own, &byTeam)...)
		granted = Permission(max(own, byTeam))
		return st, err
	}, stackFor, org, project, name, userID, teamID)
	return st, granted, err
}

var stackFor = "SELECT " + stacks.Expressions() + `,
	COALESCE((SELECT MAX(c.permission) FROM collaborators c WHERE c.stack_id = s.id AND c.user_id = $4), 0),
	COALESCE((SELECT MAX(t.permission) FROM team_stacks t WHERE t.stack_id = s.id
		AND (t.team_id = $5 OR t.team_id IN (SELECT m.team_id FROM team_members m WHERE m.user_id = $4))), 0)
	FROM live_stacks s JOIN organizations o ON o.id = s.org_id WHERE s.org_id = ` + named("$1") + ` AND s.project = $2 AND s.name = $3`

// UpdateStack writes a stack's version, state and active update.
func (tx *Tx) UpdateStack(s Stack) error {
	if err := tx.recordResources("id", s.ID, s.ResourceCount); err != nil {
		return err
	}
	err := stackRows.Update(tx.Tx, s, "version", "state_blob", "state_schema", "resource_count", "active_update", "last_update_at")
	if err != nil {
		return err
	}
	return tx.stateOfEstate(s)
}

// RenameStack changes a stack's names, or returns [ErrConflict] if they are taken.
func (tx *Tx) RenameStack(id, project, name string) error {
	if err := stackRows.Update(tx.Tx, Stack{ID: id, Project: project, Name: name}, "project", "name"); err != nil {
		return err
	}
	return tx.nameOfEstate(id)
}

// SetStackConfig replaces a stack's stored configuration.
func (tx *Tx) SetStackConfig(id, config string) error {
	return stackRows.Update(tx.Tx, Stack{ID: id, Config: config}, "config")
}

// SetStackOwner records a user as the creator of a stack.
func (tx *Tx) SetStackOwner(id, userID string) error {
	return tx.ExecOne("UPDATE stacks SET created_by = $2 WHERE id = $1", id, userID)
}

// CountStacks returns the number of stacks within reach.
func (tx *Tx) CountStacks(reach Reach) (int64, error) {
	where, args := reach.query()
	if where == "" {
		return 0, nil
	}
	return database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM live_stacks s JOIN organizations o ON o.id = s.org_id WHERE "+where, args...)
}

// StackFilter selects stacks. An empty field selects all.
type StackFilter struct {
	Reach    Reach
	Project  string
	TagName  string
	TagValue string
	// Contains selects the stacks whose project/name contains this text in any case.
	Contains string
	// After selects the stacks that follow the stack with this sort key.
	After string
	// Limit is the maximum number of stacks; 0 means no limit.
	Limit int
}

// SortKey returns the key by which lists of stacks are sorted.
func (s Stack) SortKey() string { return s.OrgID + "/" + s.Project + "/" + s.Name }

// Stacks returns the selected stacks, without their configurations, ordered by [Stack.SortKey]. It
// reads one organization at a time, because an index can then find the stacks after f.After.
func (tx *Tx) Stacks(f StackFilter) ([]Stack, error) {
	last, _, _ := strings.Cut(f.After, "/")
	var out []Stack
	for _, org := range f.Reach.organizations() {
		if org < last {
			continue
		}
		found, err := tx.stacksOf(org, f, f.Limit-len(out))
		if err != nil {
			return nil, err
		}
		if out = append(out, found...); f.Limit > 0 && len(out) == f.Limit {
			break
		}
	}
	return out, nil
}

// stacksOf returns up to limit of the selected stacks of an organization. f.Limit decides whether
// there is a limit.
func (tx *Tx) stacksOf(org string, f StackFilter, limit int) ([]Stack, error) {
	var args []any
	arg := argumentsOf(&args)
	where := []string{"s.org_id = " + arg(org), f.Reach.where(arg)}
	if f.Project != "" {
		where = append(where, "s.project = "+arg(f.Project))
	}
	if f.Contains != "" {
		pattern := "%" + likeText.Replace(strings.ToLower(f.Contains)) + "%"
		where = append(where, "LOWER(s.project || '/' || s.name) LIKE "+arg(pattern)+` ESCAPE '\'`)
	}
	if f.TagName != "" {
		cond := "EXISTS (SELECT 1 FROM stack_tags t WHERE t.stack_id = s.id AND t.name = " + arg(f.TagName)
		if f.TagValue != "" {
			cond += " AND t.value = " + arg(f.TagValue)
		}
		where = append(where, cond+")")
	}
	if rest, ok := strings.CutPrefix(f.After, org+"/"); ok {
		project, name, _ := strings.Cut(rest, "/")
		if project == f.Project {
			where = append(where, "s.name > "+arg(name))
		} else {
			where = append(where, fmt.Sprintf("(s.project, s.name) > (%s, %s)", arg(project), arg(name)))
		}
	}
	order := " ORDER BY s.project, s.name"
	rest := "WHERE " + strings.Join(where, " AND ") + order
	if f.Limit > 0 {
		rest += fmt.Sprintf(" LIMIT %d", limit)
	}
	return tx.stacksWithoutConfig(rest, args...)
}

// StackTags returns the tags of a stack.
func (tx *Tx) StackTags(stackID string) (map[string]string, error) {
	return database.Pairs[string, string](tx.Tx, "SELECT name, value FROM stack_tags WHERE stack_id = $1", stackID)
}

// TagsOfStacks returns the tags of stacks, by the id of the stack.
func (tx *Tx) TagsOfStacks(stackIDs []string) (map[string]map[string]string, error) {
	where, args := among("stack_id", stackIDs, nil)
	out := map[string]map[string]string{}
	_, err := database.Collect(tx.Tx, func(scan database.Scan) (tag [3]string, err error) {
		if err = scan(&tag[0], &tag[1], &tag[2]); err == nil {
			if out[tag[0]] == nil {
				out[tag[0]] = map[string]string{}
			}
			out[tag[0]][tag[1]] = tag[2]
		}
		return tag, err
	}, "SELECT stack_id, name, value FROM stack_tags WHERE "+where, args...)
	return out, err
}

// SetStackTags replaces all tags of a stack.
func (tx *Tx) SetStackTags(stackID string, tags map[string]string) error {
	if _, err := tx.Exec("DELETE FROM stack_tags WHERE stack_id = $1", stackID); err != nil {
		return err
	}
	for k, v := range tags {
		if err := tx.saveStackTag(stackID, k, v); err != nil {
			return err
		}
	}
	return tx.tagsOfEstate(stackID, tags)
}

// SetStackTag sets one tag of a stack.
func (tx *Tx) SetStackTag(stackID, name, value string) error {
	if err := tx.saveStackTag(stackID, name, value); err != nil {
		return err
	}
	return tx.readTagsOfEstate(stackID)
}

func (tx *Tx) saveStackTag(stackID, name, value string) error {
	_, err := tx.Exec(`INSERT INTO stack_tags (stack_id, name, value) VALUES ($1, $2, $3)
		ON CONFLICT (stack_id, name) DO UPDATE SET value = excluded.value`, stackID, name, value)
	return err
}

// DeleteStackTag removes a tag, or returns [ErrNotFound] if the stack does not have the tag.
func (tx *Tx) DeleteStackTag(stackID, name string) error {
	if err := tx.ExecOne("DELETE FROM stack_tags WHERE stack_id = $1 AND name = $2", stackID, name); err != nil {
		return err
	}
	return tx.readTagsOfEstate(stackID)
}
