package store

import (
	"fmt"
	"time"

	"workflowagent/internal/server/store/database"
)

// EnvironmentSession is an opened environment. It ends with the token that opened it.
type EnvironmentSession struct {
	ID, OrgID, TokenID   string
	Environment          string // as project/name; "" for a definition without a name
	Sealed               []byte // the values, encrypted
	CreatedAt, ExpiresAt time.Time
}

var environmentSessions = database.NewTable[EnvironmentSession]("environment_sessions")

// InsertEnvironmentSession adds a session, and removes the oldest ones of its token but for keep.
func (tx *Tx) InsertEnvironmentSession(s EnvironmentSession, keep int) error {
	_, err := tx.Exec(fmt.Sprintf(`DELETE FROM environment_sessions WHERE token_id = $1 AND id IN (
		SELECT id FROM environment_sessions WHERE token_id = $1 ORDER BY created_at DESC, id LIMIT %d OFFSET %d)`, 1000, keep-1), s.TokenID)
	if err != nil {
		return err
	}
	return environmentSessions.Insert(tx.Tx, s)
}

// EnvironmentSessionBytes returns the size of the values of the sessions that the tokens of a token's user have opened in an
// organization, or of the token's own if no user owns it.
func (tx *Tx) EnvironmentSessionBytes(orgID, tokenID string) (int64, error) {
	return database.Scalar[int64](tx.Tx, `SELECT CAST(COALESCE(SUM(octet_length(s.sealed)), 0) AS BIGINT) FROM environment_sessions s
		JOIN tokens t ON t.id = s.token_id JOIN tokens mine ON mine.id = $2
		WHERE s.org_id = $1 AND (t.id = mine.id OR t.user_id = mine.user_id AND mine.user_id <> '')`, orgID, tokenID)
}

// EnvironmentSession returns a session that a token has opened, or [ErrNotFound].
func (tx *Tx) EnvironmentSession(orgID, environment, id, tokenID string) (EnvironmentSession, error) {
	return environmentSessions.One(tx.Tx, "WHERE id = $1 AND org_id = $2 AND environment = $3 AND token_id = $4", id, orgID, environment, tokenID)
}

// DeleteEndedEnvironmentSessions removes up to limit sessions that expired before a time, and returns their number.
func (tx *Tx) DeleteEndedEnvironmentSessions(before time.Time, limit int) (int64, error) {
	return tx.Exec(fmt.Sprintf("DELETE FROM environment_sessions WHERE id IN (SELECT id FROM environment_sessions WHERE expires_at < $1 LIMIT %d%s)", limit, tx.SkipLocked()), before)
}
