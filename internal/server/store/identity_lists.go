package store

import (
	"fmt"
	"strings"

	"workflowagent/internal/server/store/database"
)

// MemberFilter selects members of an organization.
type MemberFilter struct {
	OrgID string
	// Words is a part of the login, name or email address, and with Teams also of the name of a team; "" selects all.
	Words string
	Teams bool
	// Role is the role; "" selects all.
	Role string
	// NoTeam selects members of no team.
	NoTeam bool
	// After is the login behind which a part of the list begins, and Limit its length.
	After string
	Limit int
}

// ofTeams finds the teams of a member.
const ofTeams = "SELECT 1 FROM team_members tm JOIN teams t ON t.id = tm.team_id WHERE tm.user_id = m.user_id AND t.org_id = m.org_id"

// where returns the condition of a filter, without After.
func (f MemberFilter) where() (string, []any) {
	where, args := []string{"m.org_id = $1"}, []any{f.OrgID}
	if f.Role != "" {
		args = append(args, f.Role)
		where = append(where, fmt.Sprintf("m.role = $%d", len(args)))
	}
	if f.NoTeam {
		where = append(where, "NOT EXISTS ("+ofTeams+")")
	}
	if f.Words != "" {
		args = append(args, containing(f.Words))
		text := fmt.Sprintf("$%d", len(args))
		words := userContains("u", text)
		if f.Teams {
			words = "(" + words + " OR EXISTS (" + ofTeams + fmt.Sprintf(` AND LOWER(t.name) LIKE LOWER(%s) ESCAPE '\'))`, text)
		}
		where = append(where, words)
	}
	return strings.Join(where, " AND "), args
}

// FindMembers returns members of an organization, ordered by login.
func (tx *Tx) FindMembers(f MemberFilter) ([]Member, error) {
	where, args := f.where()
	args = append(args, f.After)
	return members.All(tx.Tx, fmt.Sprintf("WHERE %s AND u.login > $%d ORDER BY u.login LIMIT %d", where, len(args), f.Limit), args...)
}

// CountFound returns the number of members that a filter selects, on all parts of the list.
func (tx *Tx) CountFound(f MemberFilter) (int64, error) {
	where, args := f.where()
	return database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM members m JOIN users u ON u.id = m.user_id WHERE "+where, args...)
}

// TeamOf is a team of a user.
type TeamOf struct {
	UserID string
	Name   string `db:"-" read:"t.name"`
}

var teamsOf = database.NewTable[TeamOf]("team_members m JOIN teams t ON t.id = m.team_id")

// TeamsOf returns the teams of users in an organization, ordered by name.
func (tx *Tx) TeamsOf(orgID string, userIDs []string) ([]TeamOf, error) {
	where, args := among("m.user_id", userIDs, []any{orgID})
	return teamsOf.All(tx.Tx, "WHERE t.org_id = $1 AND "+where+" ORDER BY t.name", args...)
}

// IdentitiesAmong returns the accounts of users at identity providers.
func (tx *Tx) IdentitiesAmong(userIDs []string) ([]Identity, error) {
	where, args := among("user_id", userIDs, nil)
	return identities.All(tx.Tx, "WHERE "+where+" ORDER BY issuer, subject", args...)
}

// CountPasskeys returns the numbers of the passkeys of users, by their ids.
func (tx *Tx) CountPasskeys(userIDs []string) (map[string]int64, error) {
	where, args := among("user_id", userIDs, nil)
	return database.Pairs[string, int64](tx.Tx, "SELECT user_id, COUNT(*) FROM passkeys WHERE "+where+" GROUP BY user_id", args...)
}

// CountPersonalTokens returns the numbers of the lasting personal tokens of users, by their ids.
func (tx *Tx) CountPersonalTokens(userIDs []string) (map[string]int64, error) {
	where, args := among("user_id", userIDs, nil)
	return database.Pairs[string, int64](tx.Tx, "SELECT user_id, COUNT(*) FROM tokens WHERE kind = 'personal' AND issuer_id = '' AND "+where+" GROUP BY user_id", args...)
}

// CountSettings returns the numbers of what the pages with an organization's settings list, by the names of the pages.
func (tx *Tx) CountSettings(orgID string) (map[string]int64, error) {
	return database.Pairs[string, int64](tx.Tx, `SELECT 'members', COUNT(*) FROM members WHERE org_id = $1
		UNION ALL SELECT 'teams', COUNT(*) FROM teams WHERE org_id = $1
		UNION ALL SELECT 'tokens', COUNT(*) FROM tokens WHERE org_id = $1 AND kind = 'org' AND issuer_id = ''
		UNION ALL SELECT 'issuers', COUNT(*) FROM oidc_issuers WHERE org_id = $1
		UNION ALL SELECT 'webhooks', COUNT(*) FROM webhooks WHERE org_id = $1 AND stack_id = ''
		UNION ALL SELECT 'integrations', COUNT(*) FROM vcs_integrations WHERE org_id = $1`, orgID)
}

// Logins returns the logins of users by their ids.
func (tx *Tx) Logins(userIDs []string) (map[string]string, error) {
	where, args := among("id", userIDs, nil)
	return database.Pairs[string, string](tx.Tx, "SELECT id, login FROM users WHERE "+where, args...)
}
