package environments

import (
	"context"
	"fmt"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// ReferrerFilter selects referrers.
type ReferrerFilter struct {
	// Version is the number or the tag of the revision to which they refer. With "", it is the newest one.
	Version string
	// AllRevisions selects those of all revisions.
	AllRevisions bool
	// Newest selects of each stack only the newest update that refers to the environment.
	Newest        bool
	Offset, Limit int
}

// Referrers returns the referrers of an environment that the caller may see, and the offset of the next page, or 0.
func (s *Service) Referrers(ctx context.Context, p identity.Principal, e store.Environment, f ReferrerFilter) (list []store.Referrer, next int, err error) {
	err = s.db.Read(ctx, func(tx *store.Tx) error {
		list, next = nil, 0
		wanted := int64(0)
		if !f.AllRevisions {
			r, err := revisionOf(tx, e, f.Version)
			if err != nil {
				return err
			}
			wanted = r.Number
		}
		found, err := tx.Referrers(e, f.Newest, f.Offset, f.Limit)
		if err != nil {
			return err
		}
		if len(found) == f.Limit {
			next = f.Offset + f.Limit
		}
		sees := map[string]bool{} // by id
		numbers := map[string]int64{}
		for _, r := range found {
			number, known := numbers[r.Version]
			if !known {
				if revision, err := revisionOf(tx, e, r.Version); err == nil {
					number = revision.Number
				} else if fault.KindOf(err) != fault.KindNotFound {
					return err
				}
				numbers[r.Version] = number
			}
			if wanted != 0 && number != wanted {
				continue
			}
			may, known := sees[r.ID]
			if !known {
				if may, err = mayRead(tx, p, e, r); err != nil {
					return err
				}
				sees[r.ID] = may
			}
			if may {
				list = append(list, r)
			}
		}
		return nil
	})
	return list, next, fault.During(err, "listing the referrers of an environment")
}

// mayRead reports whether a caller may see a referrer of an environment.
func mayRead(tx *store.Tx, p identity.Principal, e store.Environment, r store.Referrer) (bool, error) {
	if !r.Stack {
		other, err := tx.EnvironmentFor(e.OrgName, r.Project, r.Name, p.User.ID, p.TeamID)
		return err == nil && p.SeesEnvironment(other), store.IgnoreMissing(err)
	}
	st, err := tx.Stack(r.ID)
	if err != nil {
		return false, store.IgnoreMissing(err)
	}
	on, err := p.On(tx, st)
	if err != nil {
		return false, fmt.Errorf("reading a permission: %w", err)
	}
	return on.Can(st, identity.StateRead), nil
}
