package store

import (
	"slices"
	"strings"

	"workflowagent/internal/server/store/database"
	"workflowagent/internal/workflow"
)

// FeedEntry is an entry of the activity of an organization.
type FeedEntry struct {
	FeedKey
	// Run is the deployment or update, and Audit the entry of the audit log. One of them is nil.
	Run   *FeedRun
	Audit *AuditEntry
	// Name is the name of the user who made an audited change; "" if no user did, or the user has none or is gone.
	Name string
}

// FeedRun is a deployment or an update.
type FeedRun struct {
	StackID, Project, Stack string
	Kind                    string // operation of the deployment, or kind of the update
	Number                  int64  // of the deployment; 0 for an update
	Version                 int64  // of the stack that its update created; 0 without one
	Status                  string // of the job, or of the update
	Reason                  workflow.Reason
	Initiator               string // of the deployment
	ByID, By, ByLogin       string // user who requested it; "" without one
	Requester               string // name at the time of the request
	Message                 string // of the update
	Branch, Commit          string // of the deployment
	Changes                 string // JSON object from operations to counts; "" while unknown
	Production              bool   // the stack's tags say that it is in production
	Deleted                 bool   // the stack does not exist anymore
}

// FeedEntries returns the entries at places, in their order. Entries that were removed meanwhile are missing.
func (tx *Tx) FeedEntries(keys []FeedKey) ([]FeedEntry, error) {
	ids := map[FeedKind][]string{}
	for _, k := range keys {
		ids[k.Kind] = append(ids[k.Kind], k.ID)
	}
	runs := map[string]*FeedRun{}
	if err := tx.feedDeployments(slices.Concat(ids[FeedDeployment], ids[FeedDrift]), ids[FeedDrift], runs); err != nil {
		return nil, err
	}
	if err := tx.feedUpdates(ids[FeedUpdate], runs); err != nil {
		return nil, err
	}
	if err := tx.markProduction(runs); err != nil {
		return nil, err
	}
	entries := map[string]*AuditEntry{}
	if list := ids[FeedAudit]; len(list) > 0 {
		where, args := among("a.id", list, nil)
		found, err := auditEntries.All(tx.Tx, "WHERE "+where, args...)
		if err != nil {
			return nil, err
		}
		for _, e := range found {
			entries[e.ID] = &e
		}
	}
	names, err := tx.namesOf(entries)
	if err != nil {
		return nil, err
	}
	out := make([]FeedEntry, 0, len(keys))
	for _, k := range keys {
		e := FeedEntry{FeedKey: k}
		if k.Kind == FeedAudit {
			if e.Audit = entries[k.ID]; e.Audit != nil {
				e.Name = names[e.Audit.ActorID]
			}
		} else {
			e.Run = runs[k.ID]
		}
		if e.Run != nil || e.Audit != nil {
			out = append(out, e)
		}
	}
	return out, nil
}

// namesOf returns the names of the users who made changes, by their ids.
func (tx *Tx) namesOf(entries map[string]*AuditEntry) (map[string]string, error) {
	var ids []string
	for _, e := range entries {
		if e.ActorKind == "user" && e.ActorID != "" && !slices.Contains(ids, e.ActorID) {
			ids = append(ids, e.ActorID)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	where, args := among("id", ids, nil)
	return database.Pairs[string, string](tx.Tx, "SELECT id, name FROM users WHERE "+where, args...)
}

// feedDeployments adds deployments to runs. Their changes are those of the updates that write, or for those that found
// drift, of the detections.
func (tx *Tx) feedDeployments(ids, drifts []string, runs map[string]*FeedRun) error {
	if len(ids) == 0 {
		return nil
	}
	where, args := among("d.id", ids, nil)
	_, err := database.Collect(tx.Tx, func(scan database.Scan) (struct{}, error) {
		var id string
		r := &FeedRun{}
		err := scan(&id, &r.StackID, &r.Project, &r.Stack, &r.Deleted, &r.Kind, &r.Number, &r.Status, &r.Reason, &r.Initiator, &r.ByID, &r.By, &r.ByLogin, &r.Requester, &r.Branch, &r.Commit)
		runs[id] = r
		return struct{}{}, err
	}, `SELECT d.id, d.stack_id, COALESCE(s.project, d.project), COALESCE(s.name, d.stack), CASE WHEN s.id IS NULL THEN 1 ELSE 0 END, d.operation, d.version, j.status, j.reason, d.initiator,
		d.requested_by, COALESCE(w.name, ''), COALESCE(w.login, ''), d.requester, COALESCE(b.branch, ''), COALESCE(b.commit_id, '')
		FROM deployments d JOIN jobs j ON j.deployment_id = d.id LEFT JOIN live_stacks s ON s.id = d.stack_id LEFT JOIN users w ON w.id = d.requested_by
		LEFT JOIN deployment_briefs b ON b.deployment_id = d.id WHERE `+where, args...)
	if err != nil {
		return err
	}
	where, args = among("u.deployment_id", ids, nil)
	_, err = database.Collect(tx.Tx, func(scan database.Scan) (struct{}, error) {
		var id, message, changes string
		var preview bool
		var version int64
		err := scan(&id, &preview, &version, &message, &changes)
		r := runs[id]
		if err != nil || r == nil {
			return struct{}{}, err
		}
		if message != "" {
			r.Message = message
		}
		if preview != slices.Contains(drifts, id) {
			return struct{}{}, nil
		}
		if r.Changes = changes; !preview {
			r.Version = version
		}
		return struct{}{}, nil
	}, "SELECT u.deployment_id, u.preview, u.version, u.message, u.resource_changes FROM updates u WHERE "+where+" AND u.started_at > 0 ORDER BY u.created_at, u.id", args...)
	return err
}

func (tx *Tx) feedUpdates(ids []string, runs map[string]*FeedRun) error {
	if len(ids) == 0 {
		return nil
	}
	where, args := among("u.id", ids, nil)
	_, err := database.Collect(tx.Tx, func(scan database.Scan) (struct{}, error) {
		var id string
		r := &FeedRun{}
		err := scan(&id, &r.StackID, &r.Project, &r.Stack, &r.Kind, &r.Number, &r.Initiator, &r.Version, &r.Status, &r.ByID, &r.By, &r.ByLogin, &r.Requester, &r.Message, &r.Changes)
		runs[id] = r
		return struct{}{}, err
	}, `SELECT u.id, u.stack_id, s.project, s.name, CASE WHEN d.operation IS NULL THEN u.kind ELSE d.operation END, COALESCE(d.version, 0), COALESCE(d.initiator, ''), u.version, u.status,
		u.requested_by, COALESCE(w.name, ''), COALESCE(w.login, ''), COALESCE(d.requester, ''), u.message, u.resource_changes
		FROM updates u JOIN live_stacks s ON s.id = u.stack_id LEFT JOIN users w ON w.id = u.requested_by
		LEFT JOIN deployments d ON u.deployment_id <> '' AND d.id = u.deployment_id WHERE `+where, args...)
	return err
}

// productionTags are the tags of stacks in production, in the form of [Estate].Tags.
var productionTags = []string{"env:prod", "env:production", "environment:prod", "environment:production"}

// markProduction marks the runs of stacks whose tags say that they are in production.
func (tx *Tx) markProduction(runs map[string]*FeedRun) error {
	var stacks []string
	for _, r := range runs {
		stacks = append(stacks, r.StackID)
	}
	if len(stacks) == 0 {
		return nil
	}
	slices.Sort(stacks)
	where, args := among("e.stack_id", slices.Compact(stacks), nil)
	likes := make([]string, len(productionTags))
	for i, tag := range productionTags {
		likes[i] = "'\n' || e.tags || '\n' LIKE '%\n" + tag + "\n%'"
	}
	found, err := database.Scalars[string](tx.Tx, "SELECT e.stack_id FROM estate e WHERE ("+strings.Join(likes, " OR ")+") AND "+where, args...)
	for _, r := range runs {
		r.Production = slices.Contains(found, r.StackID)
	}
	return err
}
