package store

import (
	"time"

	"workflowagent/internal/server/store/database"
)

// Identity is a user's account at an identity provider. Only Issuer and Subject identify it.
type Identity struct {
	Issuer, Subject   string
	UserID            string
	Name              string // how the provider names the user, for display
	CreatedAt, UsedAt time.Time
}

// Passkey is the public half of a key with which a user signs in.
type Passkey struct {
	ID                string
	Credential        []byte // the id that the user's device gave to the key
	UserID, Name      string
	PublicKey         []byte
	Flags, SignCount  int64
	CreatedAt, UsedAt time.Time // UsedAt is zero before the first sign-in
}

var (
	identities = database.NewTable[Identity]("identities")
	passkeys   = database.NewTable[Passkey]("passkeys")
)

// InsertIdentity adds an identity, or returns [ErrConflict] if a user has it.
func (tx *Tx) InsertIdentity(i Identity) error { return identities.Insert(tx.Tx, i) }

// Identity returns an identity by its issuer and subject.
func (tx *Tx) Identity(issuer, subject string) (Identity, error) {
	return identities.One(tx.Tx, "WHERE issuer = $1 AND subject = $2", issuer, subject)
}

// IdentitiesOf returns a user's identities, oldest first.
func (tx *Tx) IdentitiesOf(userID string) ([]Identity, error) {
	return identities.All(tx.Tx, "WHERE user_id = $1 ORDER BY created_at, issuer, subject", userID)
}

// TouchIdentity records the last use and the display name of an identity.
func (tx *Tx) TouchIdentity(i Identity) error {
	_, err := tx.Exec("UPDATE identities SET name = $1, used_at = $2 WHERE issuer = $3 AND subject = $4", i.Name, i.UsedAt.UnixMicro(), i.Issuer, i.Subject)
	return err
}

// DeleteIdentity removes an identity of a user, or returns [ErrNotFound].
func (tx *Tx) DeleteIdentity(userID, issuer, subject string) error {
	return tx.ExecOne("DELETE FROM identities WHERE user_id = $1 AND issuer = $2 AND subject = $3", userID, issuer, subject)
}

// InsertPasskey adds a passkey, or returns [ErrConflict] if its credential exists.
func (tx *Tx) InsertPasskey(p Passkey) error { return passkeys.Insert(tx.Tx, p) }

// PasskeyByCredential returns a passkey by the id that the user's device gave to it.
func (tx *Tx) PasskeyByCredential(credential []byte) (Passkey, error) {
	return passkeys.One(tx.Tx, "WHERE credential = $1", credential)
}

// PasskeysOf returns a user's passkeys, oldest first.
func (tx *Tx) PasskeysOf(userID string) ([]Passkey, error) {
	return passkeys.All(tx.Tx, "WHERE user_id = $1 ORDER BY created_at, id", userID)
}

// UsePasskey records a sign-in with a passkey, unless the counter has changed since p was read. Then
// it returns [ErrNotFound].
func (tx *Tx) UsePasskey(p Passkey, flags, count int64, at time.Time) error {
	return tx.ExecOne("UPDATE passkeys SET flags = $1, sign_count = $2, used_at = $3 WHERE id = $4 AND sign_count = $5",
		flags, count, at.UnixMicro(), p.ID, p.SignCount)
}

// RenamePasskey names a passkey of a user, or returns [ErrNotFound].
func (tx *Tx) RenamePasskey(userID, id, name string) error {
	return tx.ExecOne("UPDATE passkeys SET name = $1 WHERE user_id = $2 AND id = $3", name, userID, id)
}

// DeletePasskey removes a passkey of a user and returns it, or returns [ErrNotFound].
func (tx *Tx) DeletePasskey(userID, id string) (Passkey, error) {
	p, err := passkeys.One(tx.Tx, "WHERE user_id = $1 AND id = $2", userID, id)
	if err == nil {
		err = tx.ExecOne("DELETE FROM passkeys WHERE id = $1", id)
	}
	return p, err
}

// UseChallenge records that a challenge was used, or returns [ErrConflict] if it was used before.
func (tx *Tx) UseChallenge(hash []byte, expires time.Time) error {
	_, err := tx.Exec("INSERT INTO used_challenges (hash, expires_at) VALUES ($1, $2)", hash, expires.UnixMicro())
	return err
}

// DeleteOldChallenges removes up to limit used challenges that expired before a time.
func (tx *Tx) DeleteOldChallenges(before time.Time, limit int) (int64, error) {
	return tx.Exec("DELETE FROM used_challenges WHERE hash IN (SELECT hash FROM used_challenges WHERE expires_at < $1 LIMIT $2"+tx.SkipLocked()+")",
		before.UnixMicro(), limit)
}

// NameUser sets how a user is called, and the user's address.
func (tx *Tx) NameUser(id, name, email string) error {
	return users.Update(tx.Tx, User{ID: id, Name: name, Email: email}, "name", "email")
}

// LoginTaken reports whether a user has a login, in any case of its letters.
func (tx *Tx) LoginTaken(login string) (bool, error) {
	n, err := database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM users WHERE LOWER(login) = LOWER($1)", login)
	return n > 0, err
}
