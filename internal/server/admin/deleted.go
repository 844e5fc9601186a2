package admin

import (
	"context"
	"fmt"
	"strings"
	"time"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
)

// DeletedIn selects the deleted stacks of an organization, or all if it is "".
type DeletedIn struct {
	Organization string `json:"organization,omitempty"`
}

// DeletedStack is a deleted stack in a list.
type DeletedStack struct {
	Organization string    `json:"organization"`
	Project      string    `json:"project"`
	Name         string    `json:"name"`
	ID           string    `json:"id"`
	Version      int64     `json:"version"`
	Resources    int64     `json:"resources"`
	Deleted      time.Time `json:"deleted"`
	DeletedBy    string    `json:"deletedBy"`
	PurgedAfter  time.Time `json:"purgedAfter"`
}

// Ref returns the stack's last name as organization/project/stack.
func (d DeletedStack) Ref() string { return d.Organization + "/" + d.Project + "/" + d.Name }

// DeletedStackOf names a deleted stack by its id, or by its last name as organization/project/stack.
type DeletedStackOf struct {
	Stack string `json:"stack"`
}

// Restoration is a deleted stack to restore, named as in [DeletedStackOf], with a new name or "".
type Restoration struct {
	Stack string `json:"stack"`
	Name  string `json:"name,omitempty"`
}

// Restored is the name of a restored stack, as organization/project/stack.
type Restored struct {
	Stack string `json:"stack"`
}

func (s *Service) deletedStacks(ctx context.Context, q DeletedIn) ([]DeletedStack, error) {
	orgs, err := s.organizations(ctx, q.Organization)
	if err != nil {
		return nil, err
	}
	list := []DeletedStack{}
	for _, o := range orgs {
		found, err := s.Stacks.ListDeleted(ctx, operator, o.ID)
		if err != nil {
			return nil, err
		}
		for _, d := range found {
			list = append(list, DeletedStack{
				Organization: d.OrgName, Project: d.Project, Name: d.Name, ID: d.StackID, Version: d.Version, Resources: d.ResourceCount,
				Deleted: d.DeletedAt, DeletedBy: d.DeletedBy, PurgedAfter: d.PurgedAfter,
			})
		}
	}
	return list, nil
}

func (s *Service) restoreStack(ctx context.Context, q Restoration) (Restored, error) {
	d, err := s.deletedStack(ctx, q.Stack)
	if err != nil {
		return Restored{}, err
	}
	st, err := s.Stacks.Restore(ctx, operator, d.OrgID, d.StackID, q.Name)
	return Restored{st.Ref()}, err
}

func (s *Service) purgeStack(ctx context.Context, q DeletedStackOf) (None, error) {
	d, err := s.deletedStack(ctx, q.Stack)
	if err != nil {
		return None{}, err
	}
	return None{}, s.Stacks.Purge(ctx, operator, d.OrgID, d.StackID)
}

// deletedStack returns the deleted stack with an id, or the only one with a name.
func (s *Service) deletedStack(ctx context.Context, stack string) (store.DeletedStack, error) {
	org, name, named := strings.Cut(stack, "/")
	if !named {
		d, err := store.Read(ctx, s.db, func(tx *store.Tx) (store.DeletedStack, error) { return tx.DeletedStack(stack) })
		return d, store.IfMissing(err, fault.NotFound("no deleted stack has the id %q: it has been restored or purged; \"workflow-server stack deleted\" lists the deleted stacks", stack))
	}
	o, err := s.organization(ctx, org)
	if err != nil {
		return store.DeletedStack{}, err
	}
	project, name, _ := strings.Cut(name, "/")
	found, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]store.DeletedStack, error) {
		return tx.DeletedStacksNamed(o.ID, project, name, sameName+1)
	})
	if err != nil {
		return store.DeletedStack{}, err
	}
	switch len(found) {
	case 0:
		return store.DeletedStack{}, fault.NotFound("no deleted stack has the name %s; \"workflow-server stack deleted\" lists the deleted stacks", stack)
	case 1:
		return found[0], nil
	}
	count, ids := fmt.Sprint(len(found)), []string{}
	if len(found) > sameName {
		count, found = fmt.Sprintf("more than %d", sameName), found[:sameName]
	}
	for _, d := range found {
		ids = append(ids, fmt.Sprintf("%s, deleted at %s", d.StackID, d.DeletedAt.UTC().Format(time.RFC3339)))
	}
	return store.DeletedStack{}, fault.Conflict("%s deleted stacks have the name %s: use the id of one instead of the name: %s", count, stack, strings.Join(ids, "; "))
}

// sameName is the maximum number of deleted stacks with the same name that an error lists.
const sameName = 10
