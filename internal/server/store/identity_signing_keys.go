package store

import (
	"time"

	"workflowagent/internal/server/store/database"
)

// SigningKey signs the identity tokens of jobs. Its public key is published from its creation to
// its removal.
type SigningKey struct {
	ID         string // key id in the tokens' headers
	PublicKey  string // JSON web key
	PrivateKey []byte // encrypted
	CreatedAt  time.Time
	UseFrom    time.Time // the key signs from then on, until the next key's time; shifted by server downtime
}

var signingKeys = database.NewTable[SigningKey]("signing_keys")

// InsertSigningKey adds a key.
func (tx *Tx) InsertSigningKey(k SigningKey) error { return signingKeys.Insert(tx.Tx, k) }

// SigningKeys returns all keys in the order in which they sign.
func (tx *Tx) SigningKeys() ([]SigningKey, error) {
	return signingKeys.All(tx.Tx, "ORDER BY use_from, created_at, id")
}

// DeleteSealedKeys removes the signing keys, and the keys and certificates of ACME: what the server makes anew if nothing
// can decrypt it.
func (tx *Tx) DeleteSealedKeys() error {
	for _, table := range []string{"signing_keys", "acme_values"} {
		if _, err := tx.Exec("DELETE FROM " + table); err != nil {
			return err
		}
	}
	return nil
}

// DeleteSigningKey removes a key.
func (tx *Tx) DeleteSigningKey(id string) error {
	return tx.ExecOne("DELETE FROM signing_keys WHERE id = $1", id)
}
