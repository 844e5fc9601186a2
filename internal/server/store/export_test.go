package store

// WithinDeleted returns the condition of [Tx.DeletedStacks], and its arguments.
func (tx *Tx) WithinDeleted(reach Reach, limit int) (where string, args []any, err error) {
	return tx.withinDeleted(reach, limit)
}
