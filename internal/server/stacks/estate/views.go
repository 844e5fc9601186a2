package estate

import (
	"context"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// Bounds of the views of a user in an organization.
const (
	maxViews     = 30
	maxViewName  = 60 // characters
	maxViewQuery = 4000
)

// Views returns the views of an organization's stacks that the caller has saved, by name.
func (s *Service) Views(ctx context.Context, p identity.Principal, orgID string) ([]store.View, error) {
	if p.User.ID == "" {
		return nil, nil
	}
	list, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]store.View, error) { return tx.Views(p.User.ID, orgID) })
	return list, fault.While(err, "listing saved views")
}

// SaveView saves a view for the caller, who must be a user. It replaces the one with the same name.
func (s *Service) SaveView(ctx context.Context, p identity.Principal, v store.View) error {
	v.UserID, v.Name = p.User.ID, strings.TrimSpace(v.Name)
	switch {
	case v.UserID == "":
		return fault.Forbidden("only users can save views")
	case v.Name == "":
		return fault.Invalid("the view needs a name")
	case utf8.RuneCountInString(v.Name) > maxViewName || !utf8.ValidString(v.Name) || strings.ContainsFunc(v.Name, unicode.IsControl):
		return fault.Invalid("the name of the view has more than %d characters, or control characters", maxViewName)
	case len(v.Project) > maxText || len(v.Query) > maxViewQuery:
		return fault.Invalid("the view is longer than %d bytes: remove filters, or unfold groups", maxViewQuery)
	}
	err := s.db.Write(ctx, scope.User(v.UserID).And(scope.Organization(v.OrgID).Shared()), func(tx *store.Tx) error {
		list, err := tx.Views(v.UserID, v.OrgID)
		if err != nil {
			return err
		}
		if len(list) >= maxViews && !slices.ContainsFunc(list, func(o store.View) bool { return o.Name == v.Name }) {
			return fault.Conflict("you have %d saved views in this organization: delete one first", maxViews)
		}
		v.CreatedAt = tx.Now()
		return tx.SaveView(v)
	})
	return fault.While(err, "saving a view")
}

// DeleteView removes a view of the caller, if it exists.
func (s *Service) DeleteView(ctx context.Context, p identity.Principal, orgID, name string) error {
	err := s.db.Write(ctx, scope.User(p.User.ID), func(tx *store.Tx) error { return tx.DeleteView(p.User.ID, orgID, name) })
	return fault.While(err, "deleting a saved view")
}
