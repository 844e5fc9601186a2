package admin

import (
	"context"
	"strings"
	"time"

	"workflowagent/internal/server/store"
)

// The operations on stacks.
var (
	ListStacks    = Operation[StacksOf, Page[Stack]]{"stack-list", (*Service).listStacks}
	TransferStack = Operation[Transfer, None]{"stack-transfer", (*Service).transferStack}
	DeletedStacks = Operation[DeletedIn, []DeletedStack]{"stack-deleted", (*Service).deletedStacks}
	RestoreStack  = Operation[Restoration, Restored]{"stack-restore", (*Service).restoreStack}
	PurgeStack    = Operation[DeletedStackOf, None]{"stack-purge", (*Service).purgeStack}
)

// StacksOf selects the stacks of an organization, or all if it is "".
type StacksOf struct {
	Organization string `json:"organization,omitempty"`
	// After is the last entry of the page before, as organization/project/stack.
	After string `json:"after,omitempty"`
}

// Next returns the request for the stacks after st.
func (q StacksOf) Next(st Stack) StacksOf {
	q.After = st.Ref()
	return q
}

// Stack is a stack in a list.
type Stack struct {
	Organization string     `json:"organization"`
	Project      string     `json:"project"`
	Name         string     `json:"name"`
	ID           string     `json:"id"`
	Version      int64      `json:"version"`
	Resources    int64      `json:"resources"`
	Updating     bool       `json:"updating"`
	Created      time.Time  `json:"created"`
	LastUpdate   *time.Time `json:"lastUpdate,omitempty"`
}

// Ref returns the stack's name as organization/project/stack.
func (st Stack) Ref() string { return st.Organization + "/" + st.Project + "/" + st.Name }

// Transfer is a stack, as organization/project/stack, to move to another organization.
type Transfer struct {
	Stack string `json:"stack"`
	To    string `json:"to"`
}

func (s *Service) listStacks(ctx context.Context, q StacksOf) (Page[Stack], error) {
	orgs, err := s.organizations(ctx, q.Organization)
	if err != nil {
		return Page[Stack]{}, err
	}
	f := store.StackFilter{Limit: page + 1}
	for _, o := range orgs {
		f.Reach.All = append(f.Reach.All, o.ID)
	}
	if q.After != "" {
		org, rest, _ := strings.Cut(q.After, "/")
		o, err := s.organization(ctx, org)
		if err != nil {
			return Page[Stack]{}, err
		}
		f.After = o.ID + "/" + rest
	}
	found, err := s.Stacks.List(ctx, f)
	if err != nil {
		return Page[Stack]{}, err
	}
	p := Page[Stack]{Entries: []Stack{}, More: len(found) > page}
	for _, st := range found[:min(page, len(found))] {
		p.Entries = append(p.Entries, Stack{
			Organization: st.OrgName, Project: st.Project, Name: st.Name, ID: st.ID, Version: st.Version, Resources: st.ResourceCount,
			Updating: st.ActiveUpdate != "", Created: st.CreatedAt, LastUpdate: known(st.LastUpdateAt),
		})
	}
	return p, nil
}

func (s *Service) transferStack(ctx context.Context, q Transfer) (None, error) {
	p, st, err := s.managed(ctx, q.Stack)
	if err != nil {
		return None{}, err
	}
	to, err := s.organization(ctx, q.To)
	if err != nil {
		return None{}, err
	}
	return None{}, s.Stacks.Transfer(ctx, p, st, to)
}
