package environments

import (
	"context"
	"strings"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// Listed is an environment in an overview, with what the caller may see of it. Without a permission, that is only the names.
type Listed struct {
	Item
	ChangedBy string                   // name of who made the newest revision
	Opening   store.EnvironmentOpening // the last one, to the minute; its zero value if none is known
}

// Overview selects environments of an organization.
type Overview struct {
	Words []string // parts of the name, or of a tag as name:value
	Order store.EnvironmentOrder
	After *store.EnvironmentPlace
	Limit int
	// Readable leaves out those of which the caller sees only the names.
	Readable bool
}

// maxWords and maxWord bound the words of a search, and their lengths in bytes.
const maxWords, maxWord = 8, 200

// bounded returns the words that a search uses.
func bounded(words []string) []string {
	out := make([]string, 0, maxWords)
	for _, w := range words[:min(len(words), maxWords)] {
		out = append(out, strings.ToValidUTF8(strings.ReplaceAll(w[:min(len(w), maxWord)], "\x00", ""), ""))
	}
	return out
}

// Overview returns the selected environments, and the place after which others follow, or nil.
func (s *Service) Overview(ctx context.Context, p identity.Principal, orgID string, o Overview) (list []Listed, next *store.EnvironmentPlace, err error) {
	err = s.db.Read(ctx, func(tx *store.Tx) error {
		list, next = nil, nil
		reach := p.EnvironmentReach(orgID)
		reach.Names = reach.Names && !o.Readable
		places, err := tx.FindEnvironments(store.EnvironmentFilter{
			OrgID: orgID, Reach: reach, Words: bounded(o.Words), Order: o.Order, After: o.After, Limit: o.Limit + 1,
		})
		if err != nil {
			return err
		}
		if len(places) > o.Limit {
			places = places[:o.Limit]
			next = &places[o.Limit-1].EnvironmentPlace
		}
		ids := make([]string, len(places))
		for i, place := range places {
			ids[i] = place.ID
		}
		list, err = listed(tx, p, ids)
		return err
	})
	return list, next, fault.While(err, "listing environments")
}

// listed returns environments of one organization with what a caller sees of them.
func listed(tx *store.Tx, p identity.Principal, ids []string) ([]Listed, error) {
	found, err := tx.ListEnvironments(ids, p.User.ID, p.TeamID)
	if err != nil {
		return nil, err
	}
	var counts map[string]store.ReferrerCounts
	if len(found) > 0 {
		orgID := found[0].OrgID
		if counts, err = tx.ReferrerCountsOf(orgID, ids, p.EnvironmentReach(orgID), p.Reach(orgID)); err != nil {
			return nil, err
		}
	}
	list, items := make([]Listed, len(found)), make([]Item, len(found))
	for i, e := range found {
		items[i] = Item{Environment: e.Environment, Permission: p.OnEnvironment(e.GrantedEnvironment), Managed: e.ManagedBy != ""}
		if items[i].Permission == store.NoEnvironment {
			continue
		}
		items[i].Referrers = counts[e.ID]
		list[i].ChangedBy, list[i].Opening = e.ChangedBy, e.Opening
	}
	if err := describe(tx, p, items, false); err != nil {
		return nil, err
	}
	for i := range list {
		list[i].Item = items[i]
	}
	return list, nil
}

// Get returns an environment, on which the caller must have a permission.
func (s *Service) Get(ctx context.Context, p identity.Principal, need store.EnvironmentPermission, org, project, name string) (Listed, error) {
	out, err := store.Read(ctx, s.db, func(tx *store.Tx) (l Listed, err error) {
		e, err := findIn(tx, p, need, org, project, name)
		if err != nil {
			return l, err
		}
		list, err := listed(tx, p, []string{e.ID})
		if err == nil && len(list) == 0 {
			err = p.NoEnvironment(org, project, name)
		}
		if err != nil {
			return l, err
		}
		return list[0], nil
	})
	return out, fault.While(err, "looking up an environment")
}
