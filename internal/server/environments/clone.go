package environments

import (
	"context"
	"fmt"

	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/words"
)

// Bounds of the history that a clone gets. Each revision is encrypted anew.
const (
	maxClonedRevisions = 200
	maxClonedBytes     = 16 << 20
)

// Clone says what a new environment gets of another one.
type Clone struct {
	Project, Name string // "" is the project of the other one
	Version       int64  // number of the revision whose definition it gets; 0 for the newest one
	// History, Access, Tags and VersionTags are set to get all revisions, the permissions of teams, the tags, and the
	// names of the revisions.
	History, Access, Tags, VersionTags bool
}

// Clone creates an environment with the definition of another one. Its secrets are encrypted with its own key, so that
// the caller must have the permission to open the other one.
func (s *Service) Clone(ctx context.Context, p identity.Principal, from store.Environment, c Clone) (store.Environment, error) {
	if c.Project == "" {
		c.Project = from.Project
	}
	if c.Access && !p.CanGrant() {
		return store.Environment{}, fault.Forbidden("a token obtained in exchange for an identity token cannot grant permissions; clone the environment without the access of teams")
	}
	e, err := s.newEnvironment(ctx, p, store.Organization{ID: from.OrgID, Name: from.OrgName}, c.Project, c.Name)
	if err != nil {
		return e, err
	}
	revisions, err := s.copies(ctx, from, e, c)
	if err != nil {
		return e, fault.During(err, "cloning an environment")
	}
	err = s.db.Write(ctx, scope.Organization(from.OrgID), func(tx *store.Tx) error {
		now, err := findIn(tx, p, store.OpenEnvironment, from.OrgName, from.Project, from.Name)
		if err == nil && now.ID != from.ID {
			err = p.NoEnvironment(from.OrgName, from.Project, from.Name)
		}
		if err != nil {
			return err
		}
		return s.insertClone(ctx, tx, p, from, &e, c, revisions)
	})
	return e, fault.During(err, "cloning an environment")
}

// revisionCopy is a revision of a new environment, and the number that it has in the other one.
type revisionCopy struct {
	store.EnvironmentRevision
	from int64
}

// copies returns the revisions that a clone gets, with their secrets encrypted for it.
func (s *Service) copies(ctx context.Context, from, to store.Environment, c Clone) ([]revisionCopy, error) {
	most := int64(MaxDefinition)
	if c.History {
		most = maxClonedBytes
	}
	// The definitions, and what they become. Before they are read, because a transaction must not wait for memory.
	if err := budget.Of(ctx).Take(ctx, 2*most); err != nil {
		return nil, err
	}
	var list []revisionCopy
	err := s.db.Read(ctx, func(tx *store.Tx) error {
		list = nil
		if !c.History {
			version := store.LatestVersion
			if c.Version != 0 {
				version = fmt.Sprint(c.Version)
			}
			r, err := revisionOf(tx, from, version)
			list = append(list, revisionCopy{store.EnvironmentRevision{Number: 1, Definition: r.Definition}, r.Number})
			return err
		}
		if c.Version > from.LastNumber {
			return noVersion(from, fmt.Sprint(c.Version))
		}
		size := 0
		for number := int64(1); number <= from.LastNumber; number++ {
			if c.Version != 0 && number > c.Version {
				break
			}
			if number > maxClonedRevisions {
				return fault.Invalid("environment %s has more than %d revisions: clone it without its history", from.Ref(), maxClonedRevisions)
			}
			r, err := tx.Revision(from.ID, number)
			if err != nil {
				return store.IfMissing(err, noVersion(from, fmt.Sprint(number)))
			}
			if size += len(r.Definition); size > maxClonedBytes {
				return fault.Invalid("the revisions of environment %s have more than %s: clone it without its history", from.Ref(), words.Bytes(int64(maxClonedBytes)))
			}
			list = append(list, revisionCopy{r, number})
		}
		if last := list[len(list)-1]; last.Replacement != 0 { // it would be the newest one, which is never retracted
			return fault.Invalid("revision %d of environment %s is retracted; clone revision %d", last.Number, from.Ref(), last.Replacement)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	old, err := s.Key(ctx, from)
	if err != nil {
		return nil, err
	}
	key, err := s.Key(ctx, to)
	if err != nil {
		return nil, err
	}
	for i := range list {
		r := &list[i]
		r.EnvironmentID = to.ID
		if r.Definition == "" {
			continue
		}
		plain, err := s.evaluator.Decrypt(ctx, from, old, r.Definition)
		if err != nil {
			return nil, err
		}
		if r.Definition, err = s.evaluator.Encrypt(ctx, to, key, plain); err != nil {
			return nil, err
		}
		if err := checkResult(plain, Checked{Definition: r.Definition}); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (s *Service) insertClone(ctx context.Context, tx *store.Tx, p identity.Principal, from store.Environment, e *store.Environment, c Clone, revisions []revisionCopy) error {
	e.LastNumber = revisions[len(revisions)-1].Number
	if err := s.insert(ctx, tx, p, e, map[string]any{"from": from.Ref()}); err != nil {
		return err
	}
	size := 0
	numbers := map[int64]int64{} // by the number in the other environment
	for _, r := range revisions {
		if !c.History {
			r.CreatedBy, r.CreatedAt = p.Name(), e.CreatedAt
		}
		if r.Replacement > e.LastNumber { // not copied
			r.Replacement = e.LastNumber
		}
		size += len(r.Definition)
		numbers[r.from] = r.Number
		if err := tx.InsertRevision(r.EnvironmentRevision); err != nil {
			return err
		}
		imports, err := tx.EnvironmentImports(from.ID, r.from)
		if err != nil {
			return err
		}
		for _, i := range imports {
			i.EnvironmentID, i.Number = e.ID, r.Number
			if err := tx.InsertEnvironmentImport(i); err != nil {
				return err
			}
		}
	}
	if err := s.quota.AdmitText(tx, e.OrgID, int64(size)); err != nil {
		return err
	}
	if c.Access {
		if err := tx.CopyTeamEnvironments(from.ID, e.ID); err != nil {
			return err
		}
	}
	if c.Tags {
		if err := copyTags(tx, p, from, *e); err != nil {
			return err
		}
	}
	if !c.VersionTags {
		return nil
	}
	tags, err := tx.RevisionTags(from.ID, 0, "", maxVersionTags)
	if err != nil {
		return err
	}
	for _, t := range tags {
		if t.Number = numbers[t.Number]; t.Number == 0 {
			continue
		}
		t.EnvironmentID, t.EditedBy, t.CreatedAt, t.ModifiedAt = e.ID, p.Name(), e.CreatedAt, e.CreatedAt
		if err := tx.SaveRevisionTag(t); err != nil {
			return err
		}
	}
	return nil
}

func copyTags(tx *store.Tx, p identity.Principal, from, to store.Environment) error {
	tags, err := tx.EnvironmentTags(from.ID)
	if err != nil {
		return err
	}
	for _, t := range tags {
		t.EnvironmentID, t.EditedBy, t.CreatedAt, t.ModifiedAt = to.ID, p.Name(), to.CreatedAt, to.CreatedAt
		if err := tx.SaveEnvironmentTag(t); err != nil {
			return err
		}
	}
	return nil
}
