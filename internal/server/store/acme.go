package store

import (
	"time"

	"workflowagent/internal/server/store/database"
)

// ACMEValue is a value that the servers keep for ACME under a name with slashes, like a file.
type ACMEValue struct {
	Name      string
	Sealed    []byte // encrypted
	ChangedAt time.Time
}

var acmeValues = database.NewTable[ACMEValue]("acme_values")

// SaveACMEValue adds or replaces a value.
func (tx *Tx) SaveACMEValue(v ACMEValue) error { return acmeValues.Save(tx.Tx, v, "name") }

// ACMEValue returns a value, or [ErrNotFound].
func (tx *Tx) ACMEValue(name string) (ACMEValue, error) {
	return acmeValues.One(tx.Tx, "WHERE name = $1", name)
}

// ACMEValues returns the values whose names begin with dir and a slash.
func (tx *Tx) ACMEValues(dir string) ([]ACMEValue, error) {
	return acmeValues.All(tx.Tx, "WHERE SUBSTR(name, 1, $1) = $2", int64(len(dir)+1), dir+"/")
}

// DeleteACMEValues removes the value with a name and all whose names begin with it and a slash.
func (tx *Tx) DeleteACMEValues(name string) error {
	_, err := tx.Exec("DELETE FROM acme_values WHERE name = $1 OR SUBSTR(name, 1, $2) = $3", name, int64(len(name)+1), name+"/")
	return err
}
