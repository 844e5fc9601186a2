package database

// SkipLocked returns the end of a query that selects rows to delete: rows that other transactions are
// changing are not selected. SQLite runs one write at a time and needs no such end.
func (tx *Tx) SkipLocked() string {
	if tx.db.Shared() {
		return " FOR UPDATE SKIP LOCKED"
	}
	return ""
}

// InOrder returns the end of an ordered query, which locks the selected rows of a table in the order of the
// query. A statement that changes several rows locks them in any order otherwise, so that two such statements
// can wait for each other. SQLite runs one write at a time and needs no such end.
func (tx *Tx) InOrder(table string) string {
	if tx.db.Shared() {
		return " FOR NO KEY UPDATE OF " + table
	}
	return ""
}
