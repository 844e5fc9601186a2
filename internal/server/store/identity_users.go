package store

import (
	"fmt"
	"strings"
	"time"

	"workflowagent/internal/server/store/database"
)

// Users returns up to limit users, ordered by login, whose login follows after. It omits deleted ones. If words is not
// "", their login, name or email address contains it.
func (tx *Tx) Users(words, after string, limit int) ([]User, error) {
	where, args := "WHERE users.deleted_at = 0 AND users.login > $1", []any{after}
	if words != "" {
		where += " AND " + userContains("users", "$2")
		args = append(args, containing(words))
	}
	return users.All(tx.Tx, fmt.Sprintf("%s ORDER BY users.login LIMIT %d", where, limit), args...)
}

// userContains returns a condition on a user: the login, name or email address contains a text, regardless of case.
// The database changes the case of both, because some of them know only the letters of ASCII.
func userContains(table, text string) string {
	var parts []string
	for _, column := range []string{"login", "name", "email"} {
		parts = append(parts, fmt.Sprintf(`LOWER(%s.%s) LIKE LOWER(%s) ESCAPE '\'`, table, column, text))
	}
	return "(" + strings.Join(parts, " OR ") + ")"
}

func containing(words string) string { return "%" + likeText.Replace(words) + "%" }

// Membership is a user's role in an organization.
type Membership struct {
	UserID       string
	Organization string `read:"o.name"`
	Role         string
}

var memberships = database.NewTable[Membership]("members m JOIN organizations o ON o.id = m.org_id")

// Memberships returns the memberships of users, ordered by the organization's name.
func (tx *Tx) Memberships(userIDs []string) ([]Membership, error) {
	where, args := among("m.user_id", userIDs, nil)
	return memberships.All(tx.Tx, "WHERE "+where+" ORDER BY o.name", args...)
}

// LastSeen returns the times at which users last used a session or a personal token, by the ids of the users.
func (tx *Tx) LastSeen(userIDs []string) (map[string]time.Time, error) {
	inSessions, args := among("user_id", userIDs, nil)
	inTokens, args := among("user_id", userIDs, args)
	micros, err := database.Pairs[string, int64](tx.Tx, "SELECT user_id, MAX(at) FROM (SELECT user_id, seen_at AS at FROM sessions WHERE "+inSessions+
		" UNION ALL SELECT user_id, last_used_at AS at FROM tokens WHERE kind = 'personal' AND "+inTokens+") used GROUP BY user_id", args...)
	seen := map[string]time.Time{}
	for id, at := range micros {
		if at > 0 {
			seen[id] = time.UnixMicro(at).UTC()
		}
	}
	return seen, err
}

// SetDisabled records when a user was disabled; the zero time means that the user may sign in.
func (tx *Tx) SetDisabled(id string, at time.Time) error {
	return users.Update(tx.Tx, User{ID: id, DisabledAt: at}, "disabled_at")
}

// EndAccess removes a user's sessions, sign-in links, invitations to organizations, and personal tokens, also exchanged
// ones. It returns the numbers of the sessions and of the tokens.
func (tx *Tx) EndAccess(userID string) (sessions, tokens int64, err error) {
	for _, query := range []string{"DELETE FROM sign_in_links WHERE user_id = $1", "DELETE FROM invitations WHERE created_by = $1"} {
		if _, err = tx.Exec(query, userID); err != nil {
			return 0, 0, err
		}
	}
	if sessions, err = tx.DeleteSessions(userID, ""); err != nil {
		return 0, 0, err
	}
	tokens, err = tx.Exec("DELETE FROM tokens WHERE user_id = $1 AND kind = 'personal'", userID)
	return sessions, tokens, err
}

// CountSiteAdmins returns the number of administrators of the server who are not disabled.
func (tx *Tx) CountSiteAdmins() (int64, error) {
	return database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM users WHERE site_admin <> 0 AND disabled_at = 0")
}

// OnlyAdminOf returns the names of the organizations in which a user is the only member with a role who is not
// disabled.
func (tx *Tx) OnlyAdminOf(userID, role string) ([]string, error) {
	return database.Scalars[string](tx.Tx, `SELECT o.name FROM members m JOIN organizations o ON o.id = m.org_id WHERE m.user_id = $1 AND m.role = $2
		AND NOT EXISTS (SELECT 1 FROM members other JOIN users u ON u.id = other.user_id
			WHERE other.org_id = m.org_id AND other.role = $2 AND other.user_id <> $1 AND u.disabled_at = 0)
		ORDER BY o.name`, userID, role)
}

// DeleteUser removes what belongs to a user, except the row with the login, which it changes to a free one. The
// caller removes the user's memberships before; see [Tx.DeleteMember].
func (tx *Tx) DeleteUser(id, login string, at time.Time) error {
	for _, table := range []string{"identities", "passkeys", "views"} {
		if _, err := tx.Exec("DELETE FROM "+table+" WHERE user_id = $1", id); err != nil {
			return err
		}
	}
	return users.Update(tx.Tx, User{ID: id, Login: login, Name: login, DisabledAt: at, DeletedAt: at},
		"login", "name", "email", "site_admin", "default_org", "disabled_at", "deleted_at", "zone", "density", "scheme")
}

// ListedToken is a token with the names of what it refers to.
type ListedToken struct {
	ID                               string
	Kind                             TokenKind
	Name, Description                string
	User                             string `read:"COALESCE(u.login, '')"` // as whom a personal token acts
	Organization                     string `read:"COALESCE(o.name, '')"`
	Team                             string `read:"COALESCE(m.name, '')"`
	Pool                             string `read:"COALESCE(p.name, '')"`
	Creator                          string `read:"COALESCE(c.login, '')"`
	Admin                            bool
	Exchanged                        bool `read:"CASE WHEN t.issuer_id = '' THEN 0 ELSE 1 END"` // for an identity token
	CreatedAt, ExpiresAt, LastUsedAt time.Time
}

var listedTokens = database.NewTable[ListedToken](`tokens t LEFT JOIN users u ON u.id = t.user_id LEFT JOIN organizations o ON o.id = t.org_id
	LEFT JOIN teams m ON m.id = t.team_id LEFT JOIN agent_pools p ON p.id = t.pool_id LEFT JOIN users c ON c.id = t.created_by`)

// TokenSelection selects tokens that people create: personal ones and those of organizations, teams and pools. An
// empty field selects all.
type TokenSelection struct {
	Kind                     TokenKind
	UserID, OrgID, CreatorID string
	// ValidAt selects the tokens that existed at this time and have not expired, and also exchanged ones.
	ValidAt time.Time
	// After selects the tokens that follow this one; only its time and id count.
	After ListedToken
	Limit int
}

// LimitTokenAges sets the creation of tokens that seem to be newer than a time to that time.
func (tx *Tx) LimitTokenAges(at time.Time) error {
	_, err := tx.Exec("UPDATE tokens SET created_at = $1 WHERE created_at > $1", at)
	return err
}

// ListTokens returns up to f.Limit of the selected tokens, newest first. It omits exchanged tokens, unless f.ValidAt is
// set.
func (tx *Tx) ListTokens(f TokenSelection) ([]ListedToken, error) {
	query, args := "WHERE t.kind IN ('personal', 'org', 'team', 'pool')", []any(nil)
	arg := argumentsOf(&args)
	if f.ValidAt.IsZero() {
		query += " AND t.issuer_id = ''"
	} else {
		query += fmt.Sprintf(" AND t.created_at <= %s AND (t.expires_at = 0 OR t.expires_at > %s)", arg(f.ValidAt), arg(tx.Now()))
	}
	for _, c := range []struct{ column, value string }{
		{"kind", string(f.Kind)}, {"user_id", f.UserID}, {"org_id", f.OrgID}, {"created_by", f.CreatorID},
	} {
		if c.value != "" {
			query += " AND t." + c.column + " = " + arg(c.value)
		}
	}
	if f.After.ID != "" {
		at, id := arg(f.After.CreatedAt), arg(f.After.ID)
		query += fmt.Sprintf(" AND (t.created_at < %s OR t.created_at = %s AND t.id > %s)", at, at, id)
	}
	return listedTokens.All(tx.Tx, fmt.Sprintf("%s ORDER BY t.created_at DESC, t.id LIMIT %d", query, f.Limit), args...)
}
