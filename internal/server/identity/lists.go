package identity

import (
	"cmp"
	"context"
	"time"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
)

// ListedMember is a member of an organization with the teams there, and how the member reaches the server.
type ListedMember struct {
	store.Member
	Teams          []string
	Passkey, Token bool
	Issuers        []string  // of accounts at identity providers
	LastSeen       time.Time // of a session or a personal token; zero without one
}

// MemberList is a part of the members of an organization.
type MemberList struct {
	List []ListedMember
	More bool
	// All, Administrators and NoTeam are the numbers of members that the words of the filter find.
	All, Administrators, NoTeam int64
}

// ListMembers returns a part of the members that a filter selects.
func (s *Service) ListMembers(ctx context.Context, f store.MemberFilter) (l MemberList, err error) {
	err = s.db.Read(ctx, func(tx *store.Tx) error {
		l, err = listMembers(tx, f)
		return err
	})
	return l, fault.While(err, "listing members")
}

func listMembers(tx *store.Tx, f store.MemberFilter) (l MemberList, err error) {
	limit := f.Limit
	f.Limit++
	found, err := tx.FindMembers(f)
	if err != nil {
		return l, err
	}
	all := store.MemberFilter{OrgID: f.OrgID, Words: f.Words, Teams: f.Teams}
	admins, loose := all, all
	admins.Role, loose.NoTeam = RoleAdmin, true
	for to, filter := range map[*int64]store.MemberFilter{&l.All: all, &l.Administrators: admins, &l.NoTeam: loose} {
		if *to, err = tx.CountFound(filter); err != nil {
			return l, err
		}
	}
	if l.More = len(found) > limit; l.More {
		found = found[:limit]
	}
	l.List, err = describeMembers(tx, f.OrgID, found)
	return l, err
}

func describeMembers(tx *store.Tx, orgID string, found []store.Member) ([]ListedMember, error) {
	ids := make([]string, len(found))
	for i, m := range found {
		ids[i] = m.UserID
	}
	teams, err := tx.TeamsOf(orgID, ids)
	if err != nil {
		return nil, err
	}
	accounts, err := tx.IdentitiesAmong(ids)
	if err != nil {
		return nil, err
	}
	passkeys, err := tx.CountPasskeys(ids)
	if err != nil {
		return nil, err
	}
	tokens, err := tx.CountPersonalTokens(ids)
	if err != nil {
		return nil, err
	}
	seen, err := tx.LastSeen(ids)
	if err != nil {
		return nil, err
	}
	list := make([]ListedMember, len(found))
	at := map[string]*ListedMember{}
	for i, m := range found {
		list[i] = ListedMember{Member: m, Passkey: passkeys[m.UserID] > 0, Token: tokens[m.UserID] > 0, LastSeen: seen[m.UserID]}
		at[m.UserID] = &list[i]
	}
	for _, t := range teams {
		at[t.UserID].Teams = append(at[t.UserID].Teams, t.Name)
	}
	for _, a := range accounts {
		at[a.UserID].Issuers = append(at[a.UserID].Issuers, a.Issuer)
	}
	return list, nil
}

// CountSettings returns the numbers of what the pages with an organization's settings list, by the names of the pages.
func (s *Service) CountSettings(ctx context.Context, orgID string) (map[string]int64, error) {
	counts, err := store.Read(ctx, s.db, func(tx *store.Tx) (map[string]int64, error) { return tx.CountSettings(orgID) })
	return counts, fault.While(err, "counting settings")
}

// Logins returns the logins of users by their ids.
func (s *Service) Logins(ctx context.Context, userIDs []string) (map[string]string, error) {
	logins, err := store.Read(ctx, s.db, func(tx *store.Tx) (map[string]string, error) { return tx.Logins(userIDs) })
	return logins, fault.While(err, "looking up users")
}

// Called returns the name of a member, or the login of one without.
func (m ListedMember) Called() string { return cmp.Or(m.Name, m.Login) }
