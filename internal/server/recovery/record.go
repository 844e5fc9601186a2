package recovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// Name is the name of the installation's value that says that it was restored.
const Name = "restored"

// Restored says that an installation was restored. It remains after the release, because states are as old as the backup
// until each is refreshed.
type Restored struct {
	Backup   time.Time `json:"backup"` // time of the backup
	Restored time.Time `json:"restored"`
	// Prepared is set when a server has paused the installation.
	Prepared bool `json:"prepared,omitempty"`
	// Organizations are those of the backup that still exist, the oldest first.
	Organizations []Organization `json:"organizations,omitempty"`
}

// Organization is an organization of the backup.
type Organization struct {
	ID   string `json:"id"`
	Name string `json:"-"` // its present name
	// WasPaused is set if the deployments were paused in the backup, so that the release does not resume them.
	WasPaused bool      `json:"wasPaused,omitempty"`
	Released  time.Time `json:"released,omitzero"`
}

// Mark returns the value of a newly restored installation.
func Mark(backup time.Time) ([]byte, error) {
	return json.Marshal(Restored{Backup: backup.UTC(), Restored: time.Now().UTC()})
}

// Paused reports whether schedules, forges, webhooks and reports wait for a release.
func (r Restored) Paused() bool { return !r.Prepared || len(r.Waiting()) > 0 }

// Waiting returns the organizations that were not released yet.
func (r Restored) Waiting() []Organization {
	return slices.DeleteFunc(slices.Clone(r.Organizations), func(o Organization) bool { return !o.Released.IsZero() })
}

// Waits reports whether an organization was not released yet.
func (r Restored) Waits(orgID string) bool {
	return slices.ContainsFunc(r.Waiting(), func(o Organization) bool { return o.ID == orgID })
}

// Has reports whether an organization was restored.
func (r Restored) Has(orgID string) bool { return r.organization(orgID) != nil }

func (r Restored) organization(id string) *Organization {
	for i := range r.Organizations {
		if r.Organizations[i].ID == id {
			return &r.Organizations[i]
		}
	}
	return nil
}

func names(list []Organization) []string {
	out := make([]string, len(list))
	for i, o := range list {
		out[i] = o.Name
	}
	return out
}

// Read returns nil if the installation was not restored.
func (s *Service) Read(ctx context.Context) (*Restored, error) { return Read(ctx, s.db) }

// Read returns nil if the installation in a database was not restored.
func Read(ctx context.Context, db *store.DB) (*Restored, error) {
	return store.Read(ctx, db, load)
}

// BackupOf returns the time of the backup from which the installation was restored while an organization waits for its
// release, and the zero time otherwise.
func (s *Service) BackupOf(ctx context.Context, orgID string) (time.Time, error) {
	r, err := s.Read(ctx)
	if err != nil || r == nil || !r.Waits(orgID) {
		return time.Time{}, err
	}
	return r.Backup, nil
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
	orgs, err := tx.Organizations()
	if err != nil {
		return nil, err
	}
	kept := r.Organizations[:0]
	for _, o := range r.Organizations {
		i := slices.IndexFunc(orgs, func(found store.Organization) bool { return found.ID == o.ID })
		if i < 0 {
			continue // deleted since
		}
		o.Name = orgs[i].Name
		kept = append(kept, o)
	}
	r.Organizations = kept
	return &r, nil
}

// change lets fn change and save the record in one transaction, which holds everything, and returns the record.
func (s *Service) change(ctx context.Context, fn func(tx *store.Tx, r *Restored) error) (*Restored, error) {
	return store.Write(ctx, s.db, scope.Server(), func(tx *store.Tx) (*Restored, error) {
		r, err := load(tx)
		if err == nil && r == nil {
			err = errors.New("the installation no longer says that it was restored")
		}
		if err != nil {
			return nil, err
		}
		return r, fn(tx, r)
	})
}

func (r Restored) save(tx *store.Tx) error {
	value, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encoding that the installation was restored: %w", err)
	}
	return tx.SetInstallation(Name, value)
}

// CheckResume returns an error if an organization waits for its release, which alone resumes its deployments.
func CheckResume(tx *store.Tx, orgID string) error {
	r, err := load(tx)
	if err != nil || r == nil {
		return err
	}
	if o := r.organization(orgID); o != nil && o.Released.IsZero() {
		return fault.Conflict("the organization is paused, because the server was restored from a backup: release it, on its page \"Restore\" or with: workflow-server restore release %s", o.Name)
	}
	return nil
}

// CheckTransfer returns an error if a stack would move between an organization that waits for its release and one that
// does not: it could be deployed before the release, or escape from what is checked before it.
func CheckTransfer(tx *store.Tx, from, to string) error {
	r, err := load(tx)
	if err != nil || r == nil || r.Waits(from) == r.Waits(to) {
		return err
	}
	waiting := r.organization(from)
	if r.Waits(to) {
		waiting = r.organization(to)
	}
	return fault.Conflict("the organization %s is paused, because the server was restored from a backup: release it before you transfer stacks, on its page \"Restore\" or with: workflow-server restore release %s", waiting.Name, waiting.Name)
}
