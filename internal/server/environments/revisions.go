package environments

import (
	"context"
	"errors"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/webhooks"
	"workflowagent/internal/termtext"
	"workflowagent/internal/workflow"
)

const (
	maxVersionTags = 500
	maxReason      = 1000 // bytes
)

// reservedVersion is no tag of a revision, because paths of the API contain it in the place of one.
const reservedVersion = "tags"

// RevisionInfo is a revision with its names.
type RevisionInfo struct {
	store.RevisionInfo
	Tags []string
}

// History returns up to limit revisions of an environment with lower numbers than before, or the newest ones if before is
// 0, the newest first.
func (s *Service) History(ctx context.Context, e store.Environment, before int64, limit int) ([]RevisionInfo, error) {
	if before <= 0 {
		before = e.LastNumber + 1
	}
	out, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]RevisionInfo, error) {
		list, err := tx.RevisionInfos(e.ID, before, limit)
		if err != nil || len(list) == 0 {
			return nil, err
		}
		tags, err := tx.TagsOfRevisions(e.ID, list[len(list)-1].Number, list[0].Number)
		if err != nil {
			return nil, err
		}
		out := make([]RevisionInfo, len(list))
		for i, r := range list {
			out[i].RevisionInfo = r
			if r.Number == e.LastNumber {
				out[i].Tags = append(out[i].Tags, store.LatestVersion)
			}
			for _, t := range tags {
				if t.Number == r.Number {
					out[i].Tags = append(out[i].Tags, t.Name)
				}
			}
		}
		return out, nil
	})
	return out, fault.While(err, "listing the revisions of an environment")
}

// Retraction says why a revision is retracted, and by which other one it is replaced.
type Retraction struct {
	Replacement int64 // 0 means the newest earlier revision that is not retracted
	Reason      string
}

// Retract replaces a revision by another one, so that it can be neither read nor opened any more.
func (s *Service) Retract(ctx context.Context, p identity.Principal, e store.Environment, version string, how Retraction) error {
	if len(how.Reason) > maxReason {
		return fault.Invalid("the reason of a retraction can have at most %d bytes", maxReason)
	}
	return s.change(ctx, p, e, store.WriteEnvironment, "retracting a revision", func(tx *store.Tx, now *store.Environment) error {
		number, err := numberOf(tx, *now, version)
		if err != nil {
			return err
		}
		r, err := tx.RevisionInfo(now.ID, number)
		switch {
		case err != nil:
			return store.IfMissing(err, noVersion(*now, version))
		case r.Number == now.LastNumber:
			return fault.Invalid("revision %d is the newest one of environment %s and cannot be retracted; first change the definition", r.Number, now.Ref())
		case r.Replacement != 0:
			return fault.Conflict("revision %d is already retracted", r.Number)
		}
		if r.Replacement, err = replacement(tx, *now, r.Number, how.Replacement); err != nil {
			return err
		}
		r.RetractedBy, r.RetractedAt, r.Reason = p.Name(), tx.Now(), termtext.OneLine(how.Reason, maxReason)
		affected, err := versionsOf(tx, *now, []int64{r.Number})
		if err != nil {
			return err
		}
		if err := tx.RetractRevision(r); err != nil {
			return err
		}
		if err := revisionEvent(tx, authorOf(p), *now, webhooks.RevisionRetracted, "retracted", r.Number); err != nil {
			return err
		}
		if err := importersEvent(tx, authorOf(p), *now, r.Replacement, affected); err != nil {
			return err
		}
		return record(ctx, tx, audit.EnvironmentRetracted, *now, map[string]any{"revision": r.Number, "replacement": r.Replacement, "because": r.Reason})
	})
}

// replacement returns the revision that replaces a retracted one. It is not retracted itself.
func replacement(tx *store.Tx, e store.Environment, number, wanted int64) (int64, error) {
	if wanted == 0 {
		earlier, err := tx.LastRevisionBefore(e.ID, number)
		return earlier, store.IfMissing(err, fault.Invalid("no earlier revision can replace revision %d; name another one, with --replace-with", number))
	}
	r, err := tx.RevisionInfo(e.ID, wanted)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return 0, fault.Invalid("environment %s has no revision %d, which is to replace revision %d", e.Ref(), wanted, number)
	case err != nil:
		return 0, err
	case wanted == number:
		return 0, fault.Invalid("revision %d cannot replace itself; name another one", number)
	case r.Replacement != 0:
		return 0, fault.Invalid("revision %d is retracted and cannot replace revision %d; name another one", wanted, number)
	}
	return wanted, nil
}

// VersionTag returns a name of a revision, also the built-in one of the newest.
func (s *Service) VersionTag(ctx context.Context, e store.Environment, name string) (store.RevisionTag, error) {
	return store.Read(ctx, s.db, func(tx *store.Tx) (store.RevisionTag, error) {
		if name == store.LatestVersion {
			return latestTag(tx, e)
		}
		t, err := tx.RevisionTag(e.ID, name)
		return t, store.IfMissing(err, noTag(e, name))
	})
}

func latestTag(tx *store.Tx, e store.Environment) (store.RevisionTag, error) {
	r, err := tx.RevisionInfo(e.ID, e.LastNumber)
	return store.RevisionTag{
		EnvironmentID: e.ID, Name: store.LatestVersion, Number: r.Number, EditedBy: r.CreatedBy, CreatedAt: e.CreatedAt, ModifiedAt: r.CreatedAt,
	}, err
}

func noTag(e store.Environment, name string) error {
	return fault.NotFound("environment %s has no version tag %q; run pulumi env version tag ls %s", e.Ref(), name, e.Ref())
}

// VersionTags returns up to limit names of an environment's revisions that follow a name, by name; only those of one
// revision if version is not "". The first page begins with the built-in name of the newest revision.
func (s *Service) VersionTags(ctx context.Context, e store.Environment, version, after string, limit int) ([]store.RevisionTag, error) {
	return store.Read(ctx, s.db, func(tx *store.Tx) (list []store.RevisionTag, err error) {
		number := int64(0)
		if version != "" {
			r, err := revisionOf(tx, e, version)
			if err != nil {
				return nil, err
			}
			number = r.Number
		}
		if after == "" && (number == 0 || number == e.LastNumber) {
			latest, err := latestTag(tx, e)
			if err != nil {
				return nil, err
			}
			list = append(list, latest)
		}
		if after == store.LatestVersion { // the last name of the first page, if that page has only one
			after = ""
		}
		more, err := tx.RevisionTags(e.ID, number, after, limit-len(list))
		return append(list, more...), err
	})
}

// SetVersionTag lets a name name a revision; the newest one if number is 0. With add, the name must be new, and otherwise
// it must exist.
func (s *Service) SetVersionTag(ctx context.Context, p identity.Principal, e store.Environment, name string, number int64, add bool) error {
	if !workflow.IsName(name) || isNumber(name) || name == "." || name == ".." || name == reservedVersion {
		return fault.Invalid("the version tag %q is not valid; use 1 to 100 letters, digits, '-', '_' and '.', with no digit at the beginning", name)
	}
	if name == store.LatestVersion {
		return fault.Invalid("the version tag latest always names the newest revision and cannot be changed")
	}
	return s.change(ctx, p, e, store.WriteEnvironment, "changing a version tag", func(tx *store.Tx, now *store.Environment) error {
		t, err := tx.RevisionTag(now.ID, name)
		switch {
		case store.IgnoreMissing(err) != nil:
			return err
		case add && err == nil:
			return fault.Conflict("environment %s already has a version tag %q", now.Ref(), name)
		case !add && err != nil:
			return noTag(*now, name)
		}
		if add {
			if err := checkRoom(tx, *now); err != nil {
				return err
			}
			t = store.RevisionTag{EnvironmentID: now.ID, Name: name, CreatedAt: tx.Now()}
		}
		before := t.Number
		if t.Number = number; number == 0 {
			t.Number = now.LastNumber
		}
		r, err := tx.RevisionInfo(now.ID, t.Number)
		switch {
		case errors.Is(err, store.ErrNotFound):
			return fault.Invalid("environment %s has no revision %d", now.Ref(), t.Number)
		case err != nil:
			return err
		case r.Replacement != 0:
			return fault.Invalid("revision %d is retracted; revision %d replaces it", r.Number, r.Replacement)
		}
		t.EditedBy, t.ModifiedAt = p.Name(), tx.Now()
		if err := tx.SaveRevisionTag(t); err != nil {
			return err
		}
		what, action := webhooks.RevisionTagUpdated, "updated"
		if add {
			what, action = webhooks.RevisionTagCreated, "created"
		}
		if err := versionTagEvent(tx, authorOf(p), *now, what, action, t); err != nil {
			return err
		}
		if t.Number != before {
			if err := importersEvent(tx, authorOf(p), *now, t.Number, []string{name}); err != nil {
				return err
			}
		}
		return record(ctx, tx, audit.EnvironmentVersionSet, *now, map[string]any{"tag": name, "revision": t.Number})
	})
}

func checkRoom(tx *store.Tx, e store.Environment) error {
	n, err := tx.CountRevisionTags(e.ID)
	if err == nil && n >= maxVersionTags {
		err = fault.Invalid("an environment can have at most %d version tags", maxVersionTags)
	}
	return err
}

// RemoveVersionTag removes a name of a revision.
func (s *Service) RemoveVersionTag(ctx context.Context, p identity.Principal, e store.Environment, name string) error {
	if name == store.LatestVersion {
		return fault.Invalid("the version tag latest always names the newest revision and cannot be removed")
	}
	return s.change(ctx, p, e, store.WriteEnvironment, "removing a version tag", func(tx *store.Tx, now *store.Environment) error {
		t, err := tx.RevisionTag(now.ID, name)
		if err != nil {
			return store.IfMissing(err, noTag(*now, name))
		}
		if err := tx.DeleteRevisionTag(now.ID, name); err != nil {
			return err
		}
		if err := versionTagEvent(tx, authorOf(p), *now, webhooks.RevisionTagDeleted, "deleted", t); err != nil {
			return err
		}
		return record(ctx, tx, audit.EnvironmentVersionSet, *now, map[string]any{"tag": name, "removed": true})
	})
}
