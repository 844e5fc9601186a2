package database

// SkipLocked returns the end of a query that selects rows to delete: rows that other transactions are
// changing are not selected. SQLite runs one write at a time and needs no such end.
func (tx *Tx) SkipLocked() string {
	if tx.db.Shared() {
		return " FOR UPDATE SKIP LOCKED"
	}
	return ""
}
