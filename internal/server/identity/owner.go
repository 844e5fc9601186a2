package identity

import (
	"context"
	"errors"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
)

// SetOwner makes a member the owner of a stack, who administers it. It returns the previous owner,
// which is zero if no user owned the stack. The previous owner keeps only granted permissions.
func (s *Service) SetOwner(ctx context.Context, p Principal, st store.Stack, login string) (previous store.User, err error) {
	if login == "" {
		return previous, fault.Invalid("member \"githubLogin\" must name the new owner")
	}
	err = s.db.Write(ctx, st.Scope(), func(tx *store.Tx) error {
		m, err := member(tx, store.Organization{ID: st.OrgID, Name: st.OrgName}, login)
		if err != nil {
			return err
		}
		cur, err := tx.Stack(st.ID)
		if err != nil {
			return err
		}
		previous, err = tx.User(cur.CreatedBy)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		if err := tx.SetStackOwner(st.ID, m.UserID); err != nil {
			return err
		}
		return audit.Record(ctx, tx, audit.Entry{
			OrgID: st.OrgID, Action: audit.StackOwnerChanged, Subject: audit.Stack(st),
			Detail: map[string]any{"from": previous.Login, "to": login},
		})
	})
	if err == nil {
		s.log.WithFields(map[string]any{"stack": st.Ref(), "from": previous.Login, "to": login, "by": p.Name()}).Info("changed the owner of a stack")
	}
	return previous, err
}
