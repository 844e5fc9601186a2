package stacks

import (
	"context"
	"maps"
	"slices"
	"strings"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/grants"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// builtInTags are set by clients together with the stack and cannot be changed individually.
var builtInTags = []string{
	"pulumi:project", "pulumi:runtime", "pulumi:description", "pulumi:template",
	"vcs:owner", "vcs:repo", "vcs:kind", "vcs:root", "gitHub:owner", "gitHub:repo",
}

// maxTagValue is the maximum size of a tag value in bytes.
const maxTagValue = 256

// maxTags is the maximum number of a stack's tags. One transaction, which blocks other writers,
// replaces them all.
const maxTags = 500

var errTooManyTags = fault.Invalid("a stack has at most %d tags", maxTags)

// CheckTag returns an error if no stack can have a tag.
func CheckTag(name, value string) error {
	if slices.Contains(builtInTags, name) {
		return fault.Invalid("the built-in tag %q cannot be changed", name)
	}
	return checkTag(name, value)
}

func checkTag(name, value string) error {
	if !workflow.IsTagName(name) {
		return fault.Invalid("the tag name %q is not valid; use 1 to 40 letters, digits, '-', '_', '.' and ':'", name)
	}
	if len(value) > maxTagValue {
		return fault.Invalid("the value of tag %q has more than %d bytes", name, maxTagValue)
	}
	if strings.ContainsRune(value, 0) {
		return fault.Invalid("the value of tag %q contains a NUL character; remove it", name)
	}
	return nil
}

func checkTags(tags map[string]string) error {
	if len(tags) > maxTags {
		return errTooManyTags
	}
	for k, v := range tags {
		if err := checkTag(k, v); err != nil {
			return err
		}
	}
	return nil
}

// Tags returns a stack's tags.
func (s *Service) Tags(ctx context.Context, st store.Stack) (map[string]string, error) {
	tags, err := store.Read(ctx, s.db, func(tx *store.Tx) (map[string]string, error) { return tx.StackTags(st.ID) })
	return tags, fault.While(err, "reading the tags of %s", st.Ref())
}

// ReplaceTags replaces all tags of a stack. It rejects a change of the stack's project.
func (s *Service) ReplaceTags(ctx context.Context, p identity.Principal, st store.Stack, tags map[string]string) error {
	return s.db.Write(ctx, st.Scope(), func(tx *store.Tx) error {
		if err := s.mayWrite(tx, p.DeploymentID); err != nil {
			return err
		}
		return replaceTags(ctx, tx, p, st, tags)
	})
}

func (s *Service) writeTags(ctx context.Context, p identity.Principal, st store.Stack, change func(tx *store.Tx) error) error {
	return s.db.Write(ctx, st.Scope(), func(tx *store.Tx) error {
		if err := s.mayWrite(tx, p.DeploymentID); err != nil {
			return err
		}
		before, err := tx.StackTags(st.ID)
		if err != nil {
			return err
		}
		if err := change(tx); err != nil {
			return err
		}
		after, err := tx.StackTags(st.ID)
		if err != nil {
			return err
		}
		return tagsChanged(ctx, tx, p, st, before, after)
	})
}

// tagsChanged must be called by every change of the tags of an existing stack, in its transaction.
func tagsChanged(ctx context.Context, tx *store.Tx, p identity.Principal, st store.Stack, before, after map[string]string) error {
	if maps.Equal(before, after) {
		return nil
	}
	if err := grants.AdmitTags(tx, p, st, before, after); err != nil {
		return err
	}
	return audit.Record(ctx, tx, audit.Entry{OrgID: st.OrgID, Action: audit.StackTagsChanged, Subject: audit.Stack(st), Detail: tagDiff(before, after)})
}

// tagDiff returns the names of the tags that differ, with what happened to each.
func tagDiff(before, after map[string]string) map[string]any {
	diff := map[string]any{}
	for name, v := range after {
		if old, ok := before[name]; !ok {
			diff[name] = "added"
		} else if old != v {
			diff[name] = audit.Changed
		}
	}
	for name := range before {
		if _, ok := after[name]; !ok {
			diff[name] = "removed"
		}
	}
	return diff
}

// replaceTags replaces all tags of a stack. It runs one statement if they remain, as in most updates.
func replaceTags(ctx context.Context, tx *store.Tx, p identity.Principal, st store.Stack, tags map[string]string) error {
	if err := checkTags(tags); err != nil {
		return err
	}
	if p, ok := tags["pulumi:project"]; ok && p != st.Project {
		return fault.Invalid("the tag pulumi:project cannot be changed; rename the stack instead")
	}
	tags = maps.Clone(tags)
	if tags == nil {
		tags = map[string]string{}
	}
	tags["pulumi:project"] = st.Project
	before, err := tx.StackTags(st.ID)
	if err != nil || maps.Equal(before, tags) {
		return err
	}
	changed(tx, st)
	if err := tx.SetStackTags(st.ID, tags); err != nil {
		return err
	}
	return tagsChanged(ctx, tx, p, st, before, tags)
}

// AddTag adds a new tag. It returns a conflict if the stack already has the tag.
func (s *Service) AddTag(ctx context.Context, p identity.Principal, st store.Stack, name, value string) error {
	if err := checkTag(name, value); err != nil {
		return err
	}
	return s.writeTags(ctx, p, st, func(tx *store.Tx) error {
		tags, err := tx.StackTags(st.ID)
		if err != nil {
			return err
		}
		if _, ok := tags[name]; ok {
			return fault.Invalid("the stack already has a tag %q", name)
		}
		if len(tags) >= maxTags {
			return errTooManyTags
		}
		return tx.SetStackTag(st.ID, name, value)
	})
}

// ChangeTag changes the value of an existing tag.
func (s *Service) ChangeTag(ctx context.Context, p identity.Principal, st store.Stack, name, value string) error {
	if slices.Contains(builtInTags, name) {
		return fault.Invalid("the built-in tag %q cannot be updated", name)
	}
	if err := checkTag(name, value); err != nil {
		return err
	}
	return s.writeTags(ctx, p, st, func(tx *store.Tx) error {
		tags, err := tx.StackTags(st.ID)
		if err != nil {
			return err
		}
		if _, ok := tags[name]; !ok {
			return fault.NotFound("the stack has no tag %q", name)
		}
		return tx.SetStackTag(st.ID, name, value)
	})
}

// RemoveTag removes a tag from a stack.
func (s *Service) RemoveTag(ctx context.Context, p identity.Principal, st store.Stack, name string) error {
	if slices.Contains(builtInTags, name) {
		return fault.Invalid("the built-in tag %q cannot be deleted", name)
	}
	err := s.writeTags(ctx, p, st, func(tx *store.Tx) error { return tx.DeleteStackTag(st.ID, name) })
	return store.IfMissing(err, fault.NotFound("the stack has no tag %q", name))
}

// SetTag sets a tag of a stack, or removes it if to is nil. It returns the former value, or nil without one.
func (s *Service) SetTag(ctx context.Context, p identity.Principal, st store.Stack, name string, to *string) (was *string, err error) {
	if to != nil {
		if err := checkTag(name, *to); err != nil {
			return nil, err
		}
	}
	err = s.writeTags(ctx, p, st, func(tx *store.Tx) error {
		tags, err := tx.StackTags(st.ID)
		if err != nil {
			return err
		}
		was = nil
		old, exists := tags[name]
		if exists {
			was = &old
		}
		switch {
		case exists && slices.Contains(builtInTags, name):
			return fault.Invalid("the built-in tag %q cannot be changed", name)
		case to == nil && !exists:
			return fault.NotFound("the stack has no tag %q", name)
		case to == nil:
			return tx.DeleteStackTag(st.ID, name)
		case !exists && len(tags) >= maxTags:
			return errTooManyTags
		default:
			return tx.SetStackTag(st.ID, name, *to)
		}
	})
	return was, err
}
