package opening

import (
	"context"
	"encoding/json"
	"time"

	"workflowagent/internal/esc/wire"
	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

const (
	// DefaultLifetime is the lifetime of sessions for which the client requests none.
	DefaultLifetime = 2 * time.Hour
	// MaxLifetime is the longest lifetime of sessions.
	MaxLifetime = 24 * time.Hour
	// maxValues is the limit on the size of the values of a session in bytes.
	maxValues = 4 << 20
	// keptSessions is the number of sessions of a token. The oldest ones end when it opens more.
	keptSessions = 100
	// maxSessions is the limit on the size of the values of a user's sessions in an organization, in bytes.
	maxSessions = 256 << 20
)

// Opened is a new session.
type Opened struct {
	ID          string           `json:"id"`
	Diagnostics wire.Diagnostics `json:"diagnostics,omitempty"`
}

// sealedFor is the scope of a session's values in the key ring. A row that is given to another token cannot be decrypted.
func sealedFor(id, tokenID string) string { return "environment-session/" + id + "/" + tokenID }

// Open evaluates, and keeps the values for the caller's token until the lifetime ends. The caller needs the permission to open
// all environments. Problems of the definition are an [environments.DiagnosticsError].
func (s *Service) Open(ctx context.Context, p identity.Principal, root Root, lifetime time.Duration) (Opened, error) {
	if lifetime <= 0 || lifetime > MaxLifetime {
		return Opened{}, fault.Invalid("an environment can be open for at most %d hours, and for more than no time", MaxLifetime/time.Hour)
	}
	h := s.hostFor(p, root, store.OpenEnvironment)
	result, err := s.run(ctx, h, h.request(wire.Open))
	if err != nil {
		return Opened{}, err
	}
	if result.Environment == nil { // of an empty definition
		result.Environment = &wire.Environment{}
	}
	values, err := json.Marshal(wire.Environment{Properties: result.Environment.Properties})
	if err != nil {
		return Opened{}, fault.Invalid("the values of the environment cannot be sent: %s", oneLine(err.Error()))
	}
	if len(values) > maxValues {
		return Opened{}, fault.Invalid("the values of the environment have %d bytes, and may have %d: open parts of it", len(values), maxValues)
	}
	row := store.EnvironmentSession{ID: identity.NewID(), OrgID: root.Org.ID, TokenID: p.TokenID, Environment: name(root.Environment)}
	// The values, their text and the ciphertext, while the row waits to be written.
	if err := budget.Of(ctx).Take(ctx, 8*int64(len(values))); err != nil {
		return Opened{}, err
	}
	if row.Sealed, err = s.opts.Secrets.Encrypt(ctx, sealedFor(row.ID, row.TokenID), values); err != nil {
		return Opened{}, err
	}
	err = s.account(ctx, h, result.Environment.Properties, func(tx *store.Tx) error {
		row.CreatedAt = tx.Now()
		row.ExpiresAt = row.CreatedAt.Add(lifetime)
		size, err := tx.EnvironmentSessionBytes(row.OrgID, row.TokenID)
		if err != nil {
			return err
		}
		if size > maxSessions {
			return fault.Invalid("your open environments have more than %d MiB of values in all: wait until some have ended, or delete tokens that opened them", maxSessions>>20)
		}
		return tx.InsertEnvironmentSession(row, keptSessions)
	})
	if err != nil {
		return Opened{}, err
	}
	return Opened{row.ID, result.Diagnostics}, nil
}

// Session returns the values of a session of the caller's token. environment is the one that was opened, as project/name, or
// "" for a definition without a name.
func (s *Service) Session(ctx context.Context, p identity.Principal, orgID, environment, id string) (*wire.Environment, error) {
	missing := fault.NotFound("the session does not exist, has ended, or belongs to another token; open the environment again")
	row, err := store.Read(ctx, s.db, func(tx *store.Tx) (store.EnvironmentSession, error) {
		row, err := tx.EnvironmentSession(orgID, environment, id, p.TokenID)
		if err == nil && !tx.Now().Before(row.ExpiresAt) {
			err = store.ErrNotFound
		}
		return row, err
	})
	if err != nil {
		return nil, fault.While(store.IfMissing(err, missing), "looking up an open environment")
	}
	// For the plaintext, the values and the response.
	if err := budget.Of(ctx).Take(ctx, 12*int64(len(row.Sealed))); err != nil {
		return nil, err
	}
	values, err := s.opts.Secrets.Decrypt(ctx, sealedFor(row.ID, row.TokenID), row.Sealed)
	if err != nil {
		return nil, missing // its key was lost
	}
	out := &wire.Environment{}
	return out, fault.While(json.Unmarshal(values, out), "reading an open environment")
}

// Sweep removes sessions that have ended, and masks that are no longer needed.
func (s *Service) Sweep(ctx context.Context) error {
	err := s.db.WriteInPieces(ctx, scope.Free, func(tx *store.Tx, limit int) (int64, error) {
		return tx.DeleteEndedEnvironmentSessions(tx.Now(), limit)
	})
	if err != nil {
		return err
	}
	return s.db.WriteInPieces(ctx, scope.Free, func(tx *store.Tx, limit int) (int64, error) {
		return tx.DeleteOldEnvironmentMasks(tx.Now().Add(-keepMasks), limit)
	})
}
