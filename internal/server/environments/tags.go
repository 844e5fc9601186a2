package environments

import (
	"cmp"
	"context"
	"strings"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/webhooks"
	"workflowagent/internal/workflow"
)

const (
	maxTags     = 100
	maxTagValue = 256 // bytes
)

func checkTag(name, value string) error {
	switch {
	case !workflow.IsTagName(name) || name == "." || name == "..":
		return fault.Invalid("the tag name %q is not valid; use 1 to 40 letters, digits, '-', '_', '.' and ':'", name)
	case value == "" || len(value) > maxTagValue || strings.ContainsRune(value, 0):
		return fault.Invalid("the value of tag %q must have 1 to %d bytes", name, maxTagValue)
	}
	return nil
}

// Tags returns the tags of an environment, by name.
func (s *Service) Tags(ctx context.Context, e store.Environment) ([]store.EnvironmentTag, error) {
	list, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]store.EnvironmentTag, error) { return tx.EnvironmentTags(e.ID) })
	return list, fault.While(err, "reading the tags of an environment")
}

// Tag returns a tag of an environment.
func (s *Service) Tag(ctx context.Context, e store.Environment, name string) (store.EnvironmentTag, error) {
	t, err := store.ReadOne(ctx, s.db, func(tx *store.Tx) (store.EnvironmentTag, error) { return tx.EnvironmentTag(e.ID, name) })
	return t, store.IfMissing(err, missingTag(e, name))
}

func missingTag(e store.Environment, name string) error {
	return fault.NotFound("environment %s has no tag %q", e.Ref(), name)
}

// AddTag adds a tag to an environment.
func (s *Service) AddTag(ctx context.Context, p identity.Principal, e store.Environment, name, value string) (store.EnvironmentTag, error) {
	if err := checkTag(name, value); err != nil {
		return store.EnvironmentTag{}, err
	}
	var t store.EnvironmentTag
	err := s.change(ctx, p, e, store.WriteEnvironment, "adding a tag to an environment", func(tx *store.Tx, now *store.Environment) error {
		list, err := tx.EnvironmentTags(now.ID)
		if err != nil {
			return err
		}
		if len(list) >= maxTags {
			return fault.Invalid("an environment can have at most %d tags", maxTags)
		}
		for _, other := range list {
			if other.Name == name {
				return fault.Conflict("environment %s already has a tag %q", now.Ref(), name)
			}
		}
		t = store.EnvironmentTag{EnvironmentID: now.ID, Name: name, Value: value, EditedBy: p.Name(), CreatedAt: tx.Now(), ModifiedAt: tx.Now()}
		if err := tx.SaveEnvironmentTag(t); err != nil {
			return err
		}
		if err := tagEvent(tx, authorOf(p), *now, webhooks.EnvironmentTagCreated, "created", name); err != nil {
			return err
		}
		return record(ctx, tx, audit.EnvironmentTagsChanged, *now, map[string]any{name: "added"})
	})
	return t, err
}

// TagChange is a change of a tag.
type TagChange struct {
	Current        string // value that the caller has read
	NewName, Value string // "" keeps the name or the value
}

// ChangeTag changes the name or the value of a tag.
func (s *Service) ChangeTag(ctx context.Context, p identity.Principal, e store.Environment, name string, c TagChange) (store.EnvironmentTag, error) {
	var t store.EnvironmentTag
	err := s.change(ctx, p, e, store.WriteEnvironment, "changing a tag of an environment", func(tx *store.Tx, now *store.Environment) (err error) {
		if t, err = tx.EnvironmentTag(now.ID, name); err != nil {
			return store.IfMissing(err, missingTag(*now, name))
		}
		if t.Value != c.Current {
			return fault.Conflict("the value of tag %q has changed since you read it; read it again, and repeat your change", name)
		}
		if c.NewName != "" && c.NewName != name {
			if _, err := tx.EnvironmentTag(now.ID, c.NewName); err == nil {
				return fault.Conflict("environment %s already has a tag %q", now.Ref(), c.NewName)
			} else if store.IgnoreMissing(err) != nil {
				return err
			}
			if err := tx.DeleteEnvironmentTag(now.ID, name); err != nil {
				return err
			}
			t.Name = c.NewName
		}
		if c.Value != "" {
			t.Value = c.Value
		}
		if err := checkTag(t.Name, t.Value); err != nil {
			return err
		}
		t.EditedBy, t.ModifiedAt = p.Name(), tx.Now()
		if err := tx.SaveEnvironmentTag(t); err != nil {
			return err
		}
		by := authorOf(p)
		if t.Name == name {
			if err := tagEvent(tx, by, *now, webhooks.EnvironmentTagUpdated, "updated", name); err != nil {
				return err
			}
			return record(ctx, tx, audit.EnvironmentTagsChanged, *now, map[string]any{name: "changed"})
		}
		err1 := tagEvent(tx, by, *now, webhooks.EnvironmentTagDeleted, "deleted", name)
		err2 := tagEvent(tx, by, *now, webhooks.EnvironmentTagCreated, "created", t.Name)
		if err := cmp.Or(err1, err2); err != nil {
			return err
		}
		detail := map[string]any{name: "removed", t.Name: "added"}
		return record(ctx, tx, audit.EnvironmentTagsChanged, *now, detail)
	})
	return t, err
}

// RemoveTag removes a tag of an environment.
func (s *Service) RemoveTag(ctx context.Context, p identity.Principal, e store.Environment, name string) error {
	return s.change(ctx, p, e, store.WriteEnvironment, "removing a tag of an environment", func(tx *store.Tx, now *store.Environment) error {
		if err := tx.DeleteEnvironmentTag(now.ID, name); err != nil {
			return store.IfMissing(err, missingTag(*now, name))
		}
		if err := tagEvent(tx, authorOf(p), *now, webhooks.EnvironmentTagDeleted, "deleted", name); err != nil {
			return err
		}
		return record(ctx, tx, audit.EnvironmentTagsChanged, *now, map[string]any{name: "removed"})
	})
}
