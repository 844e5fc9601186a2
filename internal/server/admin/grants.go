package admin

import (
	"context"
	"strings"
	"time"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/grants"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// The operations on grants, which let jobs of other stacks read the outputs of a stack.
var (
	ListGrants  = Operation[StackNamed, Grants]{"grant-list", (*Service).listGrants}
	AddGrant    = Operation[NewGrant, AddedGrant]{"grant-add", (*Service).addGrant}
	RemoveGrant = Operation[GrantOf, None]{"grant-remove", (*Service).removeGrant}
)

// StackNamed is a stack, as organization/project/stack.
type StackNamed struct {
	Stack string `json:"stack"`
}

// Grant lets jobs of the stacks that To names read the outputs of the stack From, or open the environment From.
type Grant struct {
	ID        string    `json:"id"`
	From      string    `json:"from"`
	To        string    `json:"to"` // in words
	Previews  bool      `json:"previews"`
	CreatedBy string    `json:"createdBy"`
	Created   time.Time `json:"created"`
	// Excluded is set in the grants that a stack reads through, if they do not cover it.
	Excluded bool `json:"excluded,omitempty"`
}

// Grants are the grants of a stack, and those that name it.
type Grants struct {
	ReadBy       []Grant `json:"readBy"`
	Reads        []Grant `json:"reads"`
	Opens        []Grant `json:"opens"` // of environments
	ProjectReads bool    `json:"projectReads"`
}

// NewGrant is a grant of a stack to one stack, to a project, or to a tag as NAME=VALUE.
type NewGrant struct {
	Stack     string `json:"stack"`
	ToStack   string `json:"toStack,omitempty"`
	ToProject string `json:"toProject,omitempty"`
	ToTag     string `json:"toTag,omitempty"`
	Previews  bool   `json:"previews,omitempty"`
}

// AddedGrant is a grant with the stacks that it covers now, at most 100.
type AddedGrant struct {
	Grant
	Readers []string `json:"readers"`
}

// GrantOf is a grant of a stack.
type GrantOf struct {
	Stack string `json:"stack"`
	ID    string `json:"id"`
}

func (s *Service) managed(ctx context.Context, name string) (identity.Principal, store.Stack, error) {
	parts := strings.Split(name, "/")
	if len(parts) != 3 {
		return identity.Principal{}, store.Stack{}, fault.Invalid("%q is not the name of a stack: write it as ORGANIZATION/PROJECT/STACK", name)
	}
	return s.Stacks.Find(ctx, operator, identity.Manage, parts[0], parts[1], parts[2])
}

func grantOf(g store.Grant) Grant {
	return Grant{ID: g.ID, From: g.From(), To: grants.TargetOf(g).String(), Previews: g.Previews, CreatedBy: g.CreatedBy, Created: g.CreatedAt, Excluded: g.Excluded}
}

func (s *Service) listGrants(ctx context.Context, q StackNamed) (Grants, error) {
	p, st, err := s.managed(ctx, q.Stack)
	if err != nil {
		return Grants{}, err
	}
	of, err := s.Grants.Of(ctx, p, st)
	out := Grants{ReadBy: []Grant{}, Reads: []Grant{}, Opens: []Grant{}, ProjectReads: of.ProjectReads}
	for _, g := range of.ReadBy {
		out.ReadBy = append(out.ReadBy, grantOf(g))
	}
	for _, g := range of.Reads {
		out.Reads = append(out.Reads, grantOf(g))
	}
	for _, g := range of.Opens {
		out.Opens = append(out.Opens, grantOf(g))
	}
	return out, err
}

// maxReaders bounds the stacks in the answer to a new grant.
const maxReaders = 100

func (s *Service) addGrant(ctx context.Context, q NewGrant) (AddedGrant, error) {
	p, st, err := s.managed(ctx, q.Stack)
	if err != nil {
		return AddedGrant{}, err
	}
	_, added, err := s.give(ctx, p, grants.OfStack(st), q)
	return added, err
}

// give makes a grant of a stack or an environment.
func (s *Service) give(ctx context.Context, p identity.Principal, from grants.Giver, q NewGrant) (store.Grant, AddedGrant, error) {
	to := grants.Target{Stack: q.ToStack, Project: q.ToProject}
	if q.ToTag != "" {
		tag, err := grants.ParseTag(q.ToTag)
		if err != nil {
			return store.Grant{}, AddedGrant{}, err
		}
		to.TagName, to.TagValue = tag.TagName, tag.TagValue
	}
	made, err := s.Grants.Add(ctx, p, from, to, q.Previews)
	if err != nil {
		return made, AddedGrant{}, err
	}
	readers, err := s.Grants.Readers(ctx, p, from, made.ID, maxReaders)
	out := AddedGrant{Grant: grantOf(made), Readers: []string{}}
	for _, r := range readers {
		out.Readers = append(out.Readers, r.Ref())
	}
	return made, out, err
}

func (s *Service) removeGrant(ctx context.Context, q GrantOf) (None, error) {
	_, st, err := s.managed(ctx, q.Stack)
	if err != nil {
		return None{}, err
	}
	return None{}, s.Grants.Remove(ctx, grants.OfStack(st), q.ID)
}
