package recovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// Name is the name of the installation's value that says that it was restored.
const Name = "restored"

// Restored says that an installation was restored and not released yet.
type Restored struct {
	Backup   time.Time `json:"backup"` // time of the backup
	Restored time.Time `json:"restored"`
	// Prepared is set when a server has paused the installation.
	Prepared bool `json:"prepared,omitempty"`
	// Organizations are those that were not released yet.
	Organizations []Organization `json:"organizations,omitempty"`
}

// Organization is an organization that waits for its release.
type Organization struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// WasPaused is set if the deployments were paused in the backup, so that the release does not resume them.
	WasPaused bool `json:"wasPaused,omitempty"`
}

// Mark returns the value of a newly restored installation.
func Mark(backup time.Time) ([]byte, error) {
	return json.Marshal(Restored{Backup: backup.UTC(), Restored: time.Now().UTC()})
}

func (r Restored) names() []string {
	names := make([]string, len(r.Organizations))
	for i, o := range r.Organizations {
		names[i] = o.Name
	}
	return names
}

// Read returns nil if the installation was not restored, or was released.
func (s *Service) Read(ctx context.Context) (*Restored, error) {
	return Read(ctx, s.db)
}

// Read returns nil if the installation in a database was not restored, or was released.
func Read(ctx context.Context, db *store.DB) (*Restored, error) {
	return store.ReadOne(ctx, db, load)
}

func load(tx *store.Tx) (*Restored, error) {
	value, err := tx.Installation(Name)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil //nolint:nilnil // not restored
	}
	if err != nil {
		return nil, err
	}
	var r Restored
	if err := json.Unmarshal(value, &r); err != nil {
		return nil, fmt.Errorf("reading whether the installation was restored: %w", err)
	}
	return &r, nil
}

func (s *Service) save(ctx context.Context, r *Restored) error {
	return s.db.Write(ctx, scope.Server(), func(tx *store.Tx) error { return put(tx, r) })
}

func put(tx *store.Tx, r *Restored) error {
	value, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encoding that the installation was restored: %w", err)
	}
	return tx.SetInstallation(Name, value)
}

// remove removes an organization from those that wait, and what says that the installation was restored after the last.
func (s *Service) remove(ctx context.Context, r *Restored, orgID string) error {
	return s.db.Write(ctx, scope.Server(), func(tx *store.Tx) error {
		now, err := load(tx) // another command can have released one
		if err != nil {
			return err
		}
		if now == nil {
			now = &Restored{}
		}
		now.Organizations = slices.DeleteFunc(now.Organizations, func(o Organization) bool { return o.ID == orgID })
		*r = *now
		if len(now.Organizations) == 0 {
			return tx.RemoveInstallation(Name)
		}
		return put(tx, now)
	})
}
