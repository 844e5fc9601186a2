// Package grants lets the jobs of stacks read the outputs of other stacks: by grants of administrators, and by the rule of
// an organization for stacks of one project. With the same kind of grants, it lets them open environments.
package grants

import (
	"context"
	"slices"
	"strings"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/workflow"
)

// Service manages grants. [store.Tx.StackForJob] and [store.Tx.EnvironmentForJob] apply them at each call of a job.
type Service struct{ db *store.DB }

// New returns a service that uses a database.
func New(db *store.DB) *Service { return &Service{db} }

// Target names the stacks whose jobs may read or open. Exactly one of Stack, Project and TagName is not "".
type Target struct {
	Stack             string // as organization/project/stack
	Project           string
	TagName, TagValue string
}

// TargetOf returns the target of a grant. It is zero if that is a stack that was deleted.
func TargetOf(g store.Grant) Target {
	return Target{Stack: g.Reader(), Project: g.Project, TagName: g.TagName, TagValue: g.TagValue}
}

// String returns the target in words.
func (t Target) String() string {
	switch {
	case t.Project != "":
		return "all stacks of the project " + t.Project
	case t.TagName != "":
		return "all stacks with the tag " + t.TagName + "=" + t.TagValue
	case t.Stack != "":
		return t.Stack
	default:
		return "a deleted stack"
	}
}

// Of are the grants of a stack, and those that let its jobs read and open.
type Of struct {
	// ReadBy are the grants that the stack gives.
	ReadBy []store.Grant
	// Reads are the grants of other stacks that name this one, at most [mostShown], and Opens those of environments.
	Reads, Opens []store.Grant
	// ProjectReads reports whether updates of all stacks of the project may read each other's outputs.
	ProjectReads bool
}

const (
	mostGrants = 100 // of a stack or an environment
	mostShown  = 1000
)

// Of returns the grants of a stack and to it, for callers who may read the stack. A caller who may not see a granting
// stack must not learn by a guessed project or tag that it exists: then its grants are only returned if they cover the stack.
func (s *Service) Of(ctx context.Context, p identity.Principal, st store.Stack) (Of, error) {
	out, err := store.Read(ctx, s.db, func(tx *store.Tx) (of Of, err error) {
		org, err := tx.Organization(st.OrgID)
		if err != nil {
			return of, err
		}
		of.ProjectReads = ruleOf(org)
		if of.ReadBy, err = tx.Grants(store.OutputGrants, st.ID); err != nil {
			return of, err
		}
		if of.Reads, err = tx.GrantsFor(st.ID, p.Reach(st.OrgID), mostShown); err != nil {
			return of, err
		}
		of.Opens, err = tx.EnvironmentGrantsFor(st.ID, p.SeesEnvironments(st.OrgID), mostShown)
		return of, err
	})
	return out, fault.While(err, "reading the grants of %s", st.Ref())
}

// ruleOf reports whether updates of the stacks of one project may read each other's outputs. The rule gives no more than
// all members have; see [store.Tx.StackForJob].
func ruleOf(o store.Organization) bool {
	return o.ProjectReads && o.StackPermission >= store.ReadPermission
}

// Given returns the grants that a stack or an environment gives.
func (s *Service) Given(ctx context.Context, from Giver) ([]store.Grant, error) {
	out, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]store.Grant, error) { return tx.Grants(from.kind, from.id) })
	return out, fault.While(err, "reading the grants of %s", from.ref)
}

// Readers returns up to limit stacks that a grant covers now and that the caller may see.
func (s *Service) Readers(ctx context.Context, p identity.Principal, from Giver, grantID string, limit int) ([]store.Stack, error) {
	out, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]store.Stack, error) {
		return tx.Readers(from.kind, grantID, store.StackFilter{Reach: p.Reach(from.orgID), Limit: limit})
	})
	return out, fault.While(err, "searching the stacks that a grant covers")
}

// Add lets jobs of stacks read the outputs of another stack, or open an environment, on behalf of an administrator of it. A
// grant that the target has already is changed.
func (s *Service) Add(ctx context.Context, p identity.Principal, from Giver, to Target, previews bool) (store.Grant, error) {
	if err := check(to, from); err != nil {
		return store.Grant{}, err
	}
	// The lock of the organization: no stack gets the project or the tag at the same time; see [Admit].
	return store.Write(ctx, s.db, from.scope.And(scope.Organization(from.orgID)), func(tx *store.Tx) (store.Grant, error) {
		g := store.Grant{
			ID: identity.NewID(), FromID: from.id, Project: to.Project, TagName: to.TagName, TagValue: to.TagValue,
			Previews: previews, CreatedBy: p.Name(), CreatedAt: tx.Now(),
		}
		if to.Stack != "" {
			reader, err := readerIn(tx, p, from, to.Stack)
			if err != nil {
				return g, err
			}
			g.ReaderID, to.Stack = reader.ID, reader.Ref()
		}
		changed, added, err := save(tx, from, &g)
		if err != nil || !changed {
			return g, err
		}
		action := from.changed
		if added {
			action = from.added
		}
		return g, audit.Record(ctx, tx, audit.Entry{
			OrgID: from.orgID, Action: action, Subject: from.subject, Detail: map[string]any{"to": to.String(), "previews": previews},
		})
	})
}

// save stores a grant, or changes the one that its target has.
func save(tx *store.Tx, from Giver, g *store.Grant) (changed, added bool, err error) {
	list, err := tx.Grants(from.kind, from.id)
	if err != nil {
		return false, false, err
	}
	at := slices.IndexFunc(list, func(o store.Grant) bool {
		return o.ReaderID == g.ReaderID && o.Project == g.Project && o.TagName == g.TagName && o.TagValue == g.TagValue
	})
	switch {
	case at < 0 && len(list) >= mostGrants:
		return false, false, fault.Invalid("%s has %d grants already: remove some, or grant to a project or a tag", from.ref, len(list))
	case at < 0:
		added = true
		err = tx.InsertGrant(from.kind, *g)
	case list[at].Previews == g.Previews:
		*g = list[at]
		return false, false, nil
	default:
		g.ID = list[at].ID
		err = tx.SetGrantPreviews(from.kind, g.ID, g.Previews)
	}
	if err != nil {
		return false, false, err
	}
	if list, err = tx.Grants(from.kind, from.id); err != nil {
		return false, false, err
	}
	*g = list[slices.IndexFunc(list, func(o store.Grant) bool { return o.ID == g.ID })]
	return true, added, nil
}

// readerIn returns a stack of the same organization, which the caller must be able to see. Its name may lack the
// organization.
func readerIn(tx *store.Tx, p identity.Principal, from Giver, name string) (store.Stack, error) {
	parts := strings.Split(name, "/")
	if len(parts) == 2 {
		parts = append([]string{from.orgName}, parts...)
	}
	if len(parts) != 3 {
		return store.Stack{}, fault.Invalid("%q is not the name of a stack: write it as PROJECT/STACK", name)
	}
	missing := p.NoStack(parts[0], parts[1], parts[2])
	reader, err := tx.StackByName(parts[0], parts[1], parts[2])
	if err != nil {
		return reader, store.IfMissing(err, missing)
	}
	on, err := p.On(tx, reader)
	switch {
	case err != nil:
		return reader, err
	case !on.Can(reader, identity.StateRead):
		return reader, missing
	case reader.ID == from.id:
		return reader, fault.Invalid("jobs of %s may read its outputs already", from.ref)
	case reader.OrgID != from.orgID:
		return reader, fault.Invalid("%s belongs to another organization than %s, and grants do not reach other organizations", reader.Ref(), from.ref)
	default:
		return reader, nil
	}
}

// Remove ends a grant of a stack or an environment. The next call of a job is refused.
func (s *Service) Remove(ctx context.Context, from Giver, id string) error {
	return s.db.Write(ctx, from.scope, func(tx *store.Tx) error {
		list, err := tx.Grants(from.kind, from.id)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(list, func(g store.Grant) bool { return g.ID == id })
		if at < 0 {
			return fault.NotFound("%s '%s' has no grant with the id %q", from.subject.Kind, from.ref, id)
		}
		if err := tx.DeleteGrant(from.kind, id); err != nil {
			return err
		}
		detail := map[string]any{"to": TargetOf(list[at]).String(), "previews": list[at].Previews}
		return audit.Record(ctx, tx, audit.Entry{OrgID: from.orgID, Action: from.removed, Subject: from.subject, Detail: detail})
	})
}

// maxTagValue is the maximum size of a tag value in bytes.
const maxTagValue = 256

// check returns an error unless a grant can have a target.
func check(t Target, from Giver) error {
	given := 0
	for _, v := range []string{t.Stack, t.Project, t.TagName} {
		if v != "" {
			given++
		}
	}
	switch {
	case given != 1 || t.TagName == "" && t.TagValue != "":
		return fault.Invalid("name one stack, one project or one tag whose stacks may %s", from.may)
	case t.Project != "" && !workflow.IsName(t.Project):
		return fault.Invalid("the project name %q is not valid; use 1 to 100 letters, digits, '-', '_' and '.'", t.Project)
	case t.TagName == "":
		return nil
	case !workflow.IsTagName(t.TagName):
		return fault.Invalid("the tag name %q is not valid; use 1 to 40 letters, digits, '-', '_', '.' and ':'", t.TagName)
	case len(t.TagValue) > maxTagValue || strings.ContainsRune(t.TagValue, 0):
		return fault.Invalid("the value of tag %q has more than %d bytes, or contains a NUL character", t.TagName, maxTagValue)
	}
	for _, prefix := range []string{"pulumi:", "vcs:", "gitHub:"} {
		if strings.HasPrefix(t.TagName, prefix) {
			return fault.Invalid("the tag %q cannot be granted to, because the pulumi CLI sets it with every update; choose another tag", t.TagName)
		}
	}
	return nil
}

// ParseTag parses a tag as NAME=VALUE.
func ParseTag(text string) (Target, error) {
	name, value, ok := strings.Cut(text, "=")
	if !ok || name == "" {
		return Target{}, fault.Invalid("%q is not a tag: write it as NAME=VALUE", text)
	}
	return Target{TagName: name, TagValue: value}, nil
}
