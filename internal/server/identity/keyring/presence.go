package keyring

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"workflowagent/internal/retry"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

const (
	// PresencePrefix begins the names of the installation's values that say which servers run, and with which master key.
	PresencePrefix = "running-server-"
	// PresentEvery is the interval at which a running server repeats that it runs.
	PresentEvery = time.Minute
	// presentFor is the time after which a server that has not repeated it is not running.
	presentFor = 3 * PresentEvery
)

// presence is a value with the prefix [PresencePrefix].
type presence struct {
	Server string    `json:"server"` // as messages name it
	Master string    `json:"master"` // see [Ring.masterID]
	SeenAt time.Time `json:"seenAt"` // database time
}

func (p presence) runs(now time.Time) bool { return now.Sub(p.SeenAt).Abs() < presentFor }

// masterID tells master keys apart, and reveals nothing about the random key.
func (s *Ring) masterID() string {
	sum := sha256.Sum256(append([]byte("workflow-server master key id\x00"), s.masterKey...))
	return hex.EncodeToString(sum[:8])
}

// Present records that a server uses the ring with its master key. id distinguishes the servers that share the database.
// Until [Ring.Absent], the server repeats it after [PresentEvery].
func (s *Ring) Present(ctx context.Context, id, server string) error {
	err := s.db.Write(ctx, scope.Free, func(tx *store.Tx) error {
		now := tx.Now()
		all, err := presences(tx)
		if err != nil {
			return err
		}
		for name, p := range all {
			if !p.runs(now) {
				if err := tx.DeleteInstallation(name); err != nil {
					return err
				}
			}
		}
		value, err := json.Marshal(presence{Server: server, Master: s.masterID(), SeenAt: now})
		if err != nil {
			return err
		}
		return tx.SetInstallation(PresencePrefix+id, value)
	})
	return fault.While(err, "recording that the server uses the key ring")
}

// Absent records that a server has stopped.
func (s *Ring) Absent(ctx context.Context, id string) error {
	err := s.db.Write(ctx, scope.Free, func(tx *store.Tx) error { return tx.DeleteInstallation(PresencePrefix + id) })
	return fault.While(err, "recording that the server no longer uses the key ring")
}

// StayPresent calls [Ring.Present] at the interval until ctx is canceled, and then [Ring.Absent]. failed gets errors.
func (s *Ring) StayPresent(ctx context.Context, id, server string, failed func(error)) {
	for {
		if err := s.Present(ctx, id, server); err != nil && ctx.Err() == nil {
			failed(err)
		}
		if retry.Sleep(ctx, PresentEvery) != nil {
			break
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), absentTimeout)
	defer cancel()
	if err := s.Absent(ctx, id); err != nil {
		failed(err)
	}
}

// absentTimeout limits a write while the server stops.
const absentTimeout = 5 * time.Second

// checkAlone returns an error that names the servers which run with another master key.
func (s *Ring) checkAlone(tx *store.Tx) error {
	all, err := presences(tx)
	if err != nil {
		return err
	}
	var others []string
	var wait time.Duration
	now, own := tx.Now(), s.masterID()
	for _, p := range all {
		if p.runs(now) && p.Master != own {
			others = append(others, p.Server)
			wait = max(wait, presentFor-now.Sub(p.SeenAt).Abs())
		}
	}
	if len(others) == 0 {
		return nil
	}
	slices.Sort(others)
	return fault.Conflict("servers still use another master key: %s. Name the new key in their settings, and restart them; one that was killed counts for another %s",
		strings.Join(others, ", "), wait.Round(time.Second))
}

func presences(tx *store.Tx) (map[string]presence, error) {
	values, err := tx.InstallationsWith(PresencePrefix)
	if err != nil {
		return nil, fmt.Errorf("reading which servers run: %w", err)
	}
	all := map[string]presence{}
	for name, value := range values {
		var p presence
		if err := json.Unmarshal(value, &p); err != nil {
			return nil, errors.New("the database's record of running servers is damaged")
		}
		all[name] = p
	}
	return all, nil
}
