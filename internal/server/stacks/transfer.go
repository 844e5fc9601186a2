package stacks

import (
	"cmp"
	"context"
	"errors"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/recovery"
	"workflowagent/internal/server/stacks/states"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// Transfer moves a stack, its history and its secrets to another organization. It rewrites the
// organization's name in the stack's state, because clients decrypt the state's secrets by that
// name. Permissions remain only for members of the new organization. Transfer refuses to move a
// stack while something depends on the old organization: running updates and deployments, an agent
// pool, webhooks.
func (s *Service) Transfer(ctx context.Context, p identity.Principal, st store.Stack, to store.Organization) error {
	if !p.CanTransfer(st, to.ID) {
		return fault.Forbidden("only an administrator of both %s and %s may transfer stack %s", st.OrgName, to.Name, st.Ref())
	}
	if to.ID == st.OrgID {
		return fault.Invalid("stack '%s' already belongs to %s", st.Ref(), to.Name)
	}
	if err := s.requireFree(ctx, st); err != nil {
		return err
	}
	old, err := s.Export(ctx, st.ID)
	if err != nil {
		return err
	}
	var state *states.State
	if !old.Empty() {
		if err := budget.Of(ctx).Take(ctx, renameMemory(old)); err != nil {
			return err
		}
		r := renamer{oldStack: st.Name, oldProject: st.Project, newStack: st.Name, newProject: st.Project, org: to.Name}
		if state, err = r.state(old); err != nil {
			return malformed(st, err)
		}
	}
	owners := scope.Organization(st.OrgID).And(scope.Organization(to.ID), st.Scope())
	_, err = s.replaceState(ctx, p, st.ID, owners, KindRename, state, func(tx *store.Tx, cur *store.Stack) error {
		if cur.Version != st.Version+1 || cur.OrgID != st.OrgID || cur.Name != st.Name || cur.Project != st.Project {
			return fault.Conflict("the stack changed while it was being transferred; try again")
		}
		for _, o := range []store.Organization{{ID: st.OrgID, Name: st.OrgName}, to} {
			// The caller can lose its rights while a large state is rewritten.
			if may, err := p.StillAdministers(tx, o.ID); err != nil || !may {
				return cmp.Or(err, fault.Forbidden("%s may no longer transfer stack %s: only an administrator of %s may do this", p.Name(), st.Ref(), o.Name))
			}
		}
		if err := recovery.CheckTransfer(tx, st.OrgID, to.ID); err != nil {
			return err
		}
		held, err := tx.HeldInOrganization(cur.ID)
		if err != nil {
			return err
		}
		if held != "" {
			return fault.Conflict("stack '%s' cannot be transferred: it %s", st.Ref(), held)
		}
		if err := s.quota.Admit(tx, to.ID); err != nil {
			return err
		}
		changed(tx, st) // in the organization that the stack leaves
		cur.OrgID, cur.OrgName = to.ID, to.Name
		if err := tx.MoveStack(cur.ID, to.ID); err != nil {
			return err
		}
		for _, orgID := range []string{st.OrgID, to.ID} {
			detail := map[string]any{"from": st.OrgName, "to": to.Name}
			if err := audit.Record(ctx, tx, audit.Entry{OrgID: orgID, Action: audit.StackTransferred, Subject: audit.Stack(st), Detail: detail}); err != nil {
				return err
			}
		}
		return nil
	})
	if errors.Is(err, store.ErrConflict) {
		return fault.Conflict("stack '%s/%s/%s' already exists", to.Name, st.Project, st.Name)
	}
	if err == nil {
		s.log.WithFields(map[string]any{"stack": st.Ref(), "to": to.Name, "by": p.Name()}).Info("transferred a stack")
	}
	return err
}
