package environments

import (
	"context"
	"maps"
	"slices"

	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// atOnce is the number of environments that one statement reads.
const atOnce = 500

// tagMemory is the memory of a value of a tag besides its text, in bytes.
const tagMemory = 64

// Item is an environment in a list.
type Item struct {
	store.Environment
	// Permission is that of the caller. Without one, the caller sees only the names.
	Permission store.EnvironmentPermission
	// Managed is set if a stack manages the environment.
	Managed bool
	Tags    map[string]string
	// Referrers are the numbers of those that the caller sees, if they were asked for.
	Referrers store.ReferrerCounts
}

// List returns up to limit environments that follow a name, of an organization or of all organizations of the caller if
// orgID is "". more reports whether others follow.
func (s *Service) List(ctx context.Context, p identity.Principal, orgID string, after store.EnvironmentName, limit int, referrers bool) (list []Item, more bool, err error) {
	orgs := []string{orgID}
	if orgID == "" {
		orgs = p.Organizations()
	}
	err = s.db.Read(ctx, func(tx *store.Tx) error {
		list, more = nil, false
		err := eachPage(tx, p, orgs, after, func(page []store.GrantedEnvironment) (bool, error) {
			for _, e := range page {
				if !p.SeesEnvironment(e) {
					continue
				}
				if more = len(list) == limit; more {
					return false, nil
				}
				list = append(list, Item{Environment: e.Environment, Permission: p.OnEnvironment(e), Managed: e.ManagedBy != ""})
			}
			return true, nil
		})
		if err != nil {
			return err
		}
		return describe(tx, p, list, referrers)
	})
	return list, more, fault.While(err, "listing environments")
}

// describe adds what callers see who have a permission.
func describe(tx *store.Tx, p identity.Principal, list []Item, referrers bool) error {
	for part := range slices.Chunk(list, 100) {
		var ids []string
		at := map[string]*Item{}
		for i := range part {
			if item := &part[i]; item.Permission > store.NoEnvironment {
				item.Tags = map[string]string{}
				ids, at[item.ID] = append(ids, item.ID), item
			}
		}
		tags, err := tx.EnvironmentTags(ids...)
		if err != nil {
			return err
		}
		for _, t := range tags {
			at[t.EnvironmentID].Tags[t.Name] = t.Value
		}
		if !referrers {
			continue
		}
		of := map[string][]string{} // by organization
		for id, item := range at {
			of[item.OrgID] = append(of[item.OrgID], id)
		}
		for orgID, ids := range of {
			counts, err := tx.ReferrerCountsOf(orgID, ids, p.EnvironmentReach(orgID), p.Reach(orgID))
			if err != nil {
				return err
			}
			for id, n := range counts {
				at[id].Referrers = n
			}
		}
	}
	return nil
}

// AllTags returns the names of the tags of an organization's environments that the caller may read, with their values.
func (s *Service) AllTags(ctx context.Context, p identity.Principal, orgID string) (map[string][]string, error) {
	var values map[string]map[string]struct{} // by name
	size := int64(0)                          // of the values in memory
	err := s.db.Read(ctx, func(tx *store.Tx) error {
		values = map[string]map[string]struct{}{}
		return eachPage(tx, p, []string{orgID}, store.EnvironmentName{}, func(page []store.GrantedEnvironment) (bool, error) {
			var ids []string
			for _, e := range page {
				if p.OnEnvironment(e) > store.NoEnvironment {
					ids = append(ids, e.ID)
				}
			}
			for part := range slices.Chunk(ids, 100) {
				tags, err := tx.EnvironmentTags(part...)
				if err != nil {
					return false, err
				}
				before := size
				for _, t := range tags {
					if values[t.Name] == nil {
						values[t.Name] = map[string]struct{}{}
					}
					if _, known := values[t.Name][t.Value]; !known {
						values[t.Name][t.Value] = struct{}{}
						size += tagMemory + int64(len(t.Value))
					}
				}
				if err := budget.Of(ctx).Take(ctx, size-before); err != nil {
					return false, err
				}
			}
			return true, nil
		})
	})
	out := map[string][]string{}
	for name, set := range values {
		out[name] = slices.Sorted(maps.Keys(set))
	}
	return out, fault.While(err, "listing the tags of environments")
}

// eachPage passes environments of organizations to visit, those that follow a name, in pages, until it returns false.
func eachPage(tx *store.Tx, p identity.Principal, orgs []string, after store.EnvironmentName, visit func(page []store.GrantedEnvironment) (bool, error)) error {
	for {
		page, err := tx.Environments(orgs, p.User.ID, p.TeamID, after, atOnce)
		if err != nil || len(page) == 0 {
			return err
		}
		if more, err := visit(page); err != nil || !more || len(page) < atOnce {
			return err
		}
		last := page[len(page)-1]
		after = store.EnvironmentName{Org: last.OrgName, Project: last.Project, Name: last.Name}
	}
}
