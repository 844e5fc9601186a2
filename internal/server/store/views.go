package store

import (
	"time"

	"workflowagent/internal/server/store/database"
)

// View is a list of an organization's stacks as a user has saved it.
type View struct {
	UserID, OrgID, Name string
	Project             string // "" for all
	Query               string // of the list's URL
	CreatedAt           time.Time
}

var views = database.NewTable[View]("views")

// Views returns the views of a user in an organization, by name.
func (tx *Tx) Views(userID, orgID string) ([]View, error) {
	return views.All(tx.Tx, "WHERE user_id = $1 AND org_id = $2 ORDER BY name", userID, orgID)
}

// SaveView adds a view, or replaces the one with the same name.
func (tx *Tx) SaveView(v View) error {
	if err := tx.DeleteView(v.UserID, v.OrgID, v.Name); err != nil {
		return err
	}
	return views.Insert(tx.Tx, v)
}

// DeleteView removes a view, if it exists.
func (tx *Tx) DeleteView(userID, orgID, name string) error {
	_, err := tx.Exec("DELETE FROM views WHERE user_id = $1 AND org_id = $2 AND name = $3", userID, orgID, name)
	return err
}
