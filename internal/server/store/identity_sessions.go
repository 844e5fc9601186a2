package store

import (
	"time"

	"workflowagent/internal/server/store/database"
)

// Session is a browser that is signed in to the console.
type Session struct {
	ID                string
	Hash              []byte // SHA-256 of the cookie
	UserID            string
	Way               string // how the user signed in
	CreatedAt, SeenAt time.Time
	Address, Agent    string
	TokenID           string    // the access token with which the user signed in; "" for other ways
	ConfirmedAt       time.Time // when the user proved who they are
	EndsAt            time.Time // at the latest
}

// SignInLink is a link that signs a user in once.
type SignInLink struct {
	ID                   string
	Hash                 []byte // SHA-256 of the link's secret
	UserID               string
	CreatedAt, ExpiresAt time.Time
}

var (
	sessions    = database.NewTable[Session]("sessions")
	signInLinks = database.NewTable[SignInLink]("sign_in_links")
)

// InsertSession adds a session.
func (tx *Tx) InsertSession(s Session) error { return sessions.Insert(tx.Tx, s) }

// SessionByHash returns a session by the hash of its cookie.
func (tx *Tx) SessionByHash(hash []byte) (Session, error) {
	return sessions.One(tx.Tx, "WHERE hash = $1", hash)
}

// SessionsOf returns a user's sessions, the last seen first.
func (tx *Tx) SessionsOf(userID string) ([]Session, error) {
	return sessions.All(tx.Tx, "WHERE user_id = $1 ORDER BY seen_at DESC, id", userID)
}

// TouchSession records that a session was used.
func (tx *Tx) TouchSession(id string, at time.Time) error {
	_, err := tx.Exec("UPDATE sessions SET seen_at = $1 WHERE id = $2 AND seen_at < $1", at, id)
	return err
}

// DeleteSession removes a session of a user, or returns [ErrNotFound].
func (tx *Tx) DeleteSession(userID, id string) error {
	return tx.ExecOne("DELETE FROM sessions WHERE user_id = $1 AND id = $2", userID, id)
}

// DeleteSessions removes the sessions of a user except one, and returns their number.
func (tx *Tx) DeleteSessions(userID, except string) (int64, error) {
	return tx.Exec("DELETE FROM sessions WHERE user_id = $1 AND id <> $2", userID, except)
}

// DeleteOldSessions removes up to limit sessions that were last used before seen or have ended.
func (tx *Tx) DeleteOldSessions(seen, ended time.Time, limit int) (int64, error) {
	return tx.Exec("DELETE FROM sessions WHERE id IN (SELECT id FROM sessions WHERE seen_at < $1 OR ends_at < $2 LIMIT $3"+tx.SkipLocked()+")",
		seen.UnixMicro(), ended.UnixMicro(), limit)
}

// InsertSignInLink adds a link.
func (tx *Tx) InsertSignInLink(l SignInLink) error { return signInLinks.Insert(tx.Tx, l) }

// SignInLink returns a link by its hash.
func (tx *Tx) SignInLink(hash []byte) (SignInLink, error) {
	return signInLinks.One(tx.Tx, "WHERE hash = $1", hash)
}

// TakeSignInLink removes a link by its hash and returns it.
func (tx *Tx) TakeSignInLink(hash []byte) (SignInLink, error) {
	return database.One(tx.Tx, signInLinks.Scan, "DELETE FROM sign_in_links WHERE hash = $1 RETURNING "+signInLinks.Expressions(), hash)
}

// DeleteSignInLinks removes the links of a user.
func (tx *Tx) DeleteSignInLinks(userID string) error {
	_, err := tx.Exec("DELETE FROM sign_in_links WHERE user_id = $1", userID)
	return err
}

// DeleteOldSignInLinks removes the links that expired before a time.
func (tx *Tx) DeleteOldSignInLinks(before time.Time) error {
	_, err := tx.Exec("DELETE FROM sign_in_links WHERE expires_at < $1", before.UnixMicro())
	return err
}

// AdministratorSeen reports whether a site administrator has signed in, which the audit log records with
// the action signedIn, or has used an access token.
func (tx *Tx) AdministratorSeen(signedIn string) (bool, error) {
	n, err := database.Scalar[int64](tx.Tx, `SELECT
		(SELECT COUNT(*) FROM (SELECT a.id FROM audit_entries a JOIN users u ON u.id = a.subject_id
			WHERE a.org_id = '' AND a.action = $1 AND u.site_admin <> 0 LIMIT 1) signed) +
		(SELECT COUNT(*) FROM (SELECT t.id FROM tokens t JOIN users u ON u.id = t.user_id
			WHERE t.last_used_at > 0 AND u.site_admin <> 0 LIMIT 1) used)`, signedIn)
	return n > 0, err
}
