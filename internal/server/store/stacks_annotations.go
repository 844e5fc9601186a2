package store

import (
	"time"

	"workflowagent/internal/server/store/database"
)

// Annotation is a JSON object that clients attached to a stack.
type Annotation struct {
	StackID, Kind, Source string
	Version               int64 // increases with each change
	Document              string
	ModifiedAt            time.Time
}

var annotations = database.NewTable[Annotation]("stack_annotations")

// Annotation returns an annotation, or [ErrNotFound].
func (tx *Tx) Annotation(stackID, kind, source string) (Annotation, error) {
	return annotations.One(tx.Tx, "WHERE stack_id = $1 AND kind = $2 AND source = $3", stackID, kind, source)
}

// SaveAnnotation adds or replaces an annotation.
func (tx *Tx) SaveAnnotation(a Annotation) error {
	return annotations.Save(tx.Tx, a, "stack_id, kind, source")
}

// CountAnnotations returns the number of a stack's annotations.
func (tx *Tx) CountAnnotations(stackID string) (int64, error) {
	return database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM stack_annotations WHERE stack_id = $1", stackID)
}
