package store

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"workflowagent/internal/server/store/database"
)

// FeedKind is what an entry of an organization's activity is about.
type FeedKind string

// The kinds.
const (
	FeedDeployment FeedKind = "deployment" // one that writes, at the time of its request
	FeedDrift      FeedKind = "drift"      // a deployment that found drift, at its end
	FeedUpdate     FeedKind = "update"     // one that is part of no such deployment, at its start
	FeedAudit      FeedKind = "audit"
)

// FeedKey is an entry's place in the activity of an organization. Its time never changes.
type FeedKey struct {
	Kind FeedKind
	ID   string
	At   time.Time
}

// AuditPart is a part of the audit log.
type AuditPart int

// The parts.
const (
	NoAudit AuditPart = iota
	AuditedChanges
	WholeAudit
)

// FeedFilter selects entries of the activity of an organization.
type FeedFilter struct {
	OrgID string // required
	Reach Reach
	Runs  bool // whether deployments and updates count
	Audit AuditPart
	// Quiet are the actions that [AuditedChanges] leaves out.
	Quiet []string
	// Actor, Action and Way select entries of the audit log; "" selects all.
	Actor, Action, Way string
	// Stacks selects the entries of these stacks; nil selects all.
	Stacks []string
	// Since is the oldest time, inclusive, and Before the end, exclusive; the zero time is no bound.
	Since, Before time.Time
	// After is the entry before the selected ones, and Newer the one behind them. UpTo is the newest selected entry. Only
	// their times and ids count; the zero key is no bound.
	After, Newer, UpTo FeedKey
	Limit              int
}

// feedQuery builds a query for the keys of entries.
type feedQuery struct {
	f        FeedFilter
	all      bool // whether the caller sees all stacks
	args     []any
	with     string // the stacks that the caller sees, if these are not all
	branches []string
}

func (q *feedQuery) arg(v any) string { return argumentsOf(&q.args)(v) }

// add adds one kind of entries. Each contributes as many rows as the page could need, which an index finds and sorts.
func (q *feedQuery) add(kind FeedKind, from, where, at, id string) {
	f := q.f
	conditions := []string{where}
	bound := func(format string, values ...any) {
		marks := make([]any, len(values))
		for i, v := range values {
			marks[i] = q.arg(v)
		}
		conditions = append(conditions, fmt.Sprintf(strings.NewReplacer("AT", at, "ID", id).Replace(format), marks...))
	}
	if !f.Since.IsZero() {
		bound("AT >= %s", f.Since)
	}
	if !f.Before.IsZero() {
		bound("AT < %s", f.Before)
	}
	if k := f.After; k.ID != "" {
		bound("AT <= %[1]s AND (AT < %[1]s OR ID < %[2]s)", k.At, k.ID)
	}
	if k := f.UpTo; k.ID != "" {
		bound("AT <= %[1]s AND (AT < %[1]s OR ID <= %[2]s)", k.At, k.ID)
	}
	if k := f.Newer; k.ID != "" {
		bound("AT >= %[1]s AND (AT > %[1]s OR ID > %[2]s)", k.At, k.ID)
	}
	q.branches = append(q.branches, fmt.Sprintf("SELECT * FROM (SELECT '%s' AS kind, %s AS id, %s AS at FROM %s WHERE %s ORDER BY %[3]s DESC, %[2]s DESC LIMIT %[6]d) b%[7]d",
		kind, id, at, from, strings.Join(conditions, " AND "), f.Limit, len(q.branches)))
}

// visible returns a condition for the rows of stacks that the caller sees; "" means none. Callers who see all stacks
// also see the deployments of deleted ones.
func (q *feedQuery) visible(table string, deleted bool) string {
	switch {
	case slices.Contains(q.f.Reach.All, q.f.OrgID) && deleted:
		return "1 = 1"
	case q.all:
		return "EXISTS (SELECT 1 FROM live_stacks s WHERE s.id = " + table + ".stack_id)"
	}
	if q.with == "" {
		sees := q.f.Reach.where(q.arg)
		if sees == "" {
			return ""
		}
		q.with = "WITH seen AS MATERIALIZED (SELECT s.id FROM live_stacks s JOIN organizations o ON o.id = s.org_id WHERE s.org_id = " + q.arg(q.f.OrgID) + " AND (" + sees + ")) "
	}
	return table + ".stack_id IN (SELECT id FROM seen)"
}

// ofStacks returns the condition of f.Stacks on a column.
func (q *feedQuery) ofStacks(column string) string {
	in, args := among(column, q.f.Stacks, q.args)
	q.args = args
	return in
}

func (q *feedQuery) addRuns() {
	sees := q.visible("j", true)
	if sees == "" {
		return
	}
	drift := "j.org_id = " + q.arg(q.f.OrgID) + " AND j.drift_found = 1 AND j.ended_at > 0 AND " + sees
	updates := "u.listed_in = " + q.arg(q.f.OrgID) + " AND u.listed_in <> '' AND u.started_at > 0 AND " + q.visible("u", false)
	if q.f.Stacks == nil {
		q.add(FeedDeployment, "jobs j", "j.org_id = "+q.arg(q.f.OrgID)+" AND j.operation IN "+writingOperations+" AND j.queued_at > 0 AND "+sees, "j.queued_at", "j.deployment_id")
	} else {
		// SQLite then chooses the index deployments_by_stack.
		q.add(FeedDeployment, "deployments d", "d.org_id || '' = "+q.arg(q.f.OrgID)+" AND d.operation IN "+writingOperations+" AND d.created_at > 0 AND "+
			q.ofStacks("d.stack_id")+" AND "+q.visible("d", true), "d.created_at", "d.id")
		drift += " AND " + q.ofStacks("j.stack_id")
		updates = strings.Replace(updates, "u.listed_in =", "u.listed_in || '' =", 1) + " AND " + q.ofStacks("u.stack_id")
	}
	q.add(FeedDrift, "jobs j", drift, "j.ended_at", "j.deployment_id")
	q.add(FeedUpdate, "updates u", updates, "u.started_at", "u.id")
}

func (q *feedQuery) addAudit() {
	where := "a.org_id = " + q.arg(q.f.OrgID)
	if q.f.Audit == AuditedChanges {
		where += " AND a.reads = 0"
		if len(q.f.Quiet) > 0 {
			var quiet string
			quiet, q.args = among("a.action NOT", q.f.Quiet, q.args)
			where += " AND " + quiet
		}
	}
	for _, c := range []struct{ column, value string }{{"a.actor", q.f.Actor}, {"a.action", q.f.Action}, {"a.way", q.f.Way}} {
		if c.value != "" {
			where = strings.Join([]string{where, c.column + " = " + q.arg(c.value)}, " AND ")
		}
	}
	if q.f.Stacks != nil {
		where += " AND a.subject_kind = 'stack' AND " + q.ofStacks("a.subject_id")
	}
	q.add(FeedAudit, "audit_entries a", where, "a.at", "a.id")
}

// FeedKeys returns the places of the selected entries, newest first. It is one query over jobs, updates and the audit
// log.
func (tx *Tx) FeedKeys(f FeedFilter) ([]FeedKey, error) {
	all, err := tx.reachesAll(f.OrgID, f.Reach)
	if err != nil {
		return nil, err
	}
	q := &feedQuery{f: f, all: all}
	if f.Runs {
		q.addRuns()
	}
	if f.Audit != NoAudit {
		q.addAudit()
	}
	if len(q.branches) == 0 {
		return nil, nil
	}
	return database.Collect(tx.Tx, func(scan database.Scan) (k FeedKey, err error) {
		var at int64
		err = scan(&k.Kind, &k.ID, &at)
		k.At = micro(at)
		return k, err
	}, q.with+"SELECT kind, id, at FROM ("+strings.Join(q.branches, " UNION ALL ")+fmt.Sprintf(") f ORDER BY at DESC, id DESC LIMIT %d", f.Limit), q.args...)
}

// FeedStacks returns the ids of the stacks of a project, or with a name, or of all that the caller of a filter sees. It
// returns nil if they are all of the organization, or more than limit.
func (tx *Tx) FeedStacks(f FeedFilter, project, name string, limit int) ([]string, error) {
	if all, err := tx.reachesAll(f.OrgID, f.Reach); err != nil || all && project == "" {
		return nil, err
	}
	visible, args := f.Reach.query(f.OrgID, project, name)
	if visible == "" {
		return []string{}, nil
	}
	ids, err := database.Scalars[string](tx.Tx, fmt.Sprintf(`SELECT s.id FROM live_stacks s JOIN organizations o ON o.id = s.org_id
		WHERE s.org_id = $1 AND ($2 = '' OR s.project = $2) AND ($3 = '' OR s.name = $3) AND (%s) LIMIT %d`, visible, limit+1), args...)
	if len(ids) > limit {
		return nil, err
	}
	return append([]string{}, ids...), err
}

// listUpdate adds the entry of an update that has started, unless the entry of its deployment stands for it.
func (tx *Tx) listUpdate(u Update) error {
	_, err := tx.Exec("UPDATE updates SET listed_in = (SELECT k.org_id FROM stack_owners k WHERE k.id = updates.stack_id) WHERE id = $1", u.ID)
	return err
}

// listUpdatesOf adds the entries of a stack's updates that programs of earlier versions have started.
func (tx *Tx) listUpdatesOf(stackID string) error {
	_, err := tx.Exec(`UPDATE updates SET listed_in = (SELECT k.org_id FROM stack_owners k WHERE k.id = updates.stack_id)
		WHERE stack_id = $1 AND deployment_id = '' AND started_at > 0 AND preview = 0 AND listed_in = ''`, stackID)
	return err
}

// ActivityVisit is when a user has opened the activity of an organization.
type ActivityVisit struct {
	UserID, OrgID string
	OpenedAt      time.Time // last
	BeforeAt      time.Time // last in the visit before; zero without one
}

var activityVisits = database.NewTable[ActivityVisit]("activity_visits")

// ActivityVisit returns when a user has opened the activity of an organization.
func (tx *Tx) ActivityVisit(userID, orgID string) (ActivityVisit, error) {
	return activityVisits.One(tx.Tx, "WHERE user_id = $1 AND org_id = $2", userID, orgID)
}

// SaveActivityVisit adds or replaces when a user has opened the activity of an organization.
func (tx *Tx) SaveActivityVisit(v ActivityVisit) error {
	return activityVisits.Save(tx.Tx, v, "user_id, org_id")
}
