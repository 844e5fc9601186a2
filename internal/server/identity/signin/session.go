// Package signin lets users sign in to the console, and manages the sessions of their browsers.
// Cookies only name sessions, which are rows in the database: the server can end them at any time.
package signin

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/attempts"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/termtext"
)

const (
	// idle is the time after which an unused session ends.
	idle = 24 * time.Hour
	// Longest is the time after which every session ends.
	Longest = 14 * 24 * time.Hour
	// longestOfProvider is the time after which a session ends of a user with an account at an identity
	// provider, unless it began with a link or a token. Then the provider decides again, so that users
	// who have left it cannot stay.
	longestOfProvider = 24 * time.Hour
	// askProviderEvery is the time after a sign-in at a provider for which such a user can sign in with
	// a passkey instead.
	askProviderEvery = 7 * 24 * time.Hour

	// freshFor is the time after a sign-in in which a session may do what requires a recent sign-in.
	freshFor = 15 * time.Minute
	// touchEvery is the minimum interval between updates of a session's last use.
	touchEvery = time.Minute
	// maxSessions is the number of sessions of a user. A further one ends the one that was used the
	// longest time ago.
	maxSessions = 20

	// failuresPerMinute is the number of failed sign-ins of one source, and recordsPerMinute that of
	// all sources that the audit log contains.
	failuresPerMinute, recordsPerMinute = 10, 60

	maxAddress, maxAgent = 100, 300
)

// The ways to sign in.
const (
	WayToken      = "token"
	WayLink       = "link"
	WayProvider   = "provider"
	WayPasskey    = "passkey"
	WayInvitation = "invitation" // of a user whom the invitation has created
)

// Session is a signed-in browser.
type Session struct {
	ID string
	// Way is how the user signed in, such as "token" or "link".
	Way           string
	Created, Seen time.Time
	// Ends is when the session ends at the latest.
	Ends time.Time
	// Confirmed is when the user proved who they are. With an identity provider, it can be before Created.
	Confirmed time.Time
	Address   string
	// Agent is the text with which the browser describes itself.
	Agent string
}

// Fresh reports whether the user signed in recently.
func (s Session) Fresh(now time.Time) bool { return now.Sub(s.Confirmed) < freshFor }

// Service signs users in.
type Service struct {
	db     *store.DB
	log    *logrus.Entry
	tokens *identity.Service
	// failures are failed sign-ins, and records those that the audit log contains, of all sources
	// together.
	failures, records *attempts.Counter
	// noTokens turns off the sign-in with access tokens.
	noTokens bool
}

// Options are the options of [New].
type Options struct {
	Log *logrus.Entry
	// Identity checks access tokens.
	Identity *identity.Service
	// NoTokens turns off the sign-in with access tokens.
	NoTokens bool
}

// New returns a service that uses a database.
func New(db *store.DB, o Options) *Service {
	return &Service{
		db: db, log: o.Log, tokens: o.Identity, noTokens: o.NoTokens,
		failures: attempts.New(failuresPerMinute), records: attempts.New(recordsPerMinute),
	}
}

// errNoSession is the error of every invalid cookie.
var errNoSession = fault.New(fault.KindUnauthenticated, "the session has ended; sign in again")

// Proof is how a user has proved who they are.
type Proof struct {
	User store.User
	Way  string
	// Name describes the way to people, such as the name of the identity provider; it can be "".
	Name string
	// TokenID is the access token with which the session ends, or "".
	TokenID string
	// Confirmed is the time of the proof; zero means now.
	Confirmed time.Time
}

// Open creates a session for a user who has signed in. It returns the cookie's text, which is not
// stored.
func (s *Service) Open(ctx context.Context, proof Proof, address, agent string) (cookie string, _ Session, err error) {
	cookie, hash := identity.NewToken()
	u := proof.User
	row := store.Session{
		ID: identity.NewID(), Hash: hash, UserID: u.ID, Way: proof.Way, TokenID: proof.TokenID,
		Address: termtext.OneLine(address, maxAddress), Agent: termtext.OneLine(agent, maxAgent),
	}
	err = s.db.Write(ctx, scope.User(u.ID), func(tx *store.Tx) error {
		row.CreatedAt, row.SeenAt, row.ConfirmedAt = tx.Now(), tx.Now(), tx.Now()
		if !proof.Confirmed.IsZero() && proof.Confirmed.Before(row.ConfirmedAt) {
			row.ConfirmedAt = proof.Confirmed
		}
		longest, err := longestOf(tx, proof)
		if err != nil {
			return err
		}
		// The user can have been disabled since the proof.
		if cur, err := tx.User(u.ID); err != nil || cur.Disabled() {
			return cmp.Or(err, errDisabled)
		}
		if err := tx.DeleteSignInLinks(u.ID); err != nil { // the user no longer needs them
			return err
		}
		row.EndsAt = row.CreatedAt.Add(longest)
		if err := tx.InsertSession(row); err != nil {
			return err
		}
		actor := audit.Actor{Kind: string(identity.KindUser), ID: u.ID, Name: u.Login}
		detail := map[string]any{"with": proof.Way}
		if proof.Name != "" {
			detail["name"] = proof.Name
		}
		if err := audit.Record(ctx, tx, audit.Entry{Action: audit.SignedIn, Subject: subjectOf(u), Detail: detail, Actor: &actor}); err != nil {
			return err
		}
		return bound(audit.As(ctx, actor), tx, u)
	})
	if fault.KindOf(err) != "" {
		return "", Session{}, err
	}
	if err != nil {
		return "", Session{}, fmt.Errorf("creating a session: %w", err)
	}
	s.log.WithFields(logrus.Fields{"user": u.ID, "way": proof.Way, "address": address}).Info("a user signed in")
	return cookie, sessionOf(row), nil
}

// longestOf returns the time after which a session ends at the latest.
func longestOf(tx *store.Tx, proof Proof) (time.Duration, error) {
	switch proof.Way {
	case WayProvider:
		return longestOfProvider, nil
	case WayPasskey:
		if accounts, err := tx.IdentitiesOf(proof.User.ID); err != nil || len(accounts) > 0 {
			return longestOfProvider, err
		}
	}
	return Longest, nil
}

// bound ends the sessions of a user that exceed the limit.
func bound(ctx context.Context, tx *store.Tx, u store.User) error {
	list, err := tx.SessionsOf(u.ID)
	if err != nil || len(list) <= maxSessions {
		return err
	}
	for _, old := range list[maxSessions:] {
		if err := tx.DeleteSession(u.ID, old.ID); err != nil {
			return err
		}
	}
	return recordEnd(ctx, tx, u, EndedByLimit, int64(len(list)-maxSessions))
}

func subjectOf(u store.User) audit.Subject {
	return audit.Subject{Kind: "user", ID: u.ID, Name: u.Login}
}

// The reasons for which sessions end before their time.
const (
	EndedByLimit = "too many sessions"
	SignedOut    = "signed out"
	Replaced     = "signed in again"
	Ended        = "ended by the user"
	EndedByHost  = "ended by the operator"
)

func recordEnd(ctx context.Context, tx *store.Tx, u store.User, reason string, n int64) error {
	tx.Notify(identity.SessionTopic, u.ID)
	return audit.Record(ctx, tx, audit.Entry{Action: audit.SessionEnded, Subject: subjectOf(u), Detail: map[string]any{"because": reason, "sessions": n}})
}

func sessionOf(r store.Session) Session {
	return Session{
		ID: r.ID, Way: r.Way, Created: r.CreatedAt, Seen: r.SeenAt, Ends: r.EndsAt, Confirmed: r.ConfirmedAt, Address: r.Address,
		Agent: r.Agent,
	}
}

// Resume returns the user of a session's cookie, with the user's current roles. If use is true, it
// records that the user has used the session; requests of an open page by itself do not count. It
// returns a [fault.KindUnauthenticated] error if the session has ended.
func (s *Service) Resume(ctx context.Context, cookie string, use bool) (identity.Principal, Session, error) {
	hash := identity.HashToken(cookie)
	var p identity.Principal
	var row store.Session
	var now time.Time
	err := s.db.Read(ctx, func(tx *store.Tx) (err error) {
		now = tx.Now()
		if row, err = tx.SessionByHash(hash); err != nil {
			return err
		}
		if row.TokenID != "" {
			if err := identity.CheckLive(tx, row.TokenID, now); err != nil {
				return err
			}
		}
		p, err = identity.OfUser(tx, row.UserID)
		return err
	})
	switch {
	case errors.Is(err, store.ErrNotFound), fault.KindOf(err) == fault.KindUnauthenticated:
		return identity.Principal{}, Session{}, errNoSession
	case err != nil:
		return identity.Principal{}, Session{}, fmt.Errorf("checking a session: %w", err)
	case subtle.ConstantTimeCompare(row.Hash, hash) != 1, now.Sub(row.SeenAt) > idle, now.After(row.EndsAt),
		!mayEnter(p):
		return identity.Principal{}, Session{}, errNoSession
	}
	if use && now.Sub(row.SeenAt) > touchEvery {
		if err := s.db.Write(ctx, scope.Free, func(tx *store.Tx) error { return tx.TouchSession(row.ID, now) }); err != nil {
			s.log.WithError(err).Warn("recording the last use of a session failed")
		}
	}
	return p, sessionOf(row), nil
}

// mayEnter reports whether a user has anything to see in the console. A disabled user has nothing.
func mayEnter(p identity.Principal) bool { return len(p.Roles) > 0 || p.User.SiteAdmin }

// End ends a session of a user for a reason. A session that has ended is no error.
func (s *Service) End(ctx context.Context, u store.User, id, reason string) error {
	return s.db.Write(ctx, scope.User(u.ID), func(tx *store.Tx) error {
		err := tx.DeleteSession(u.ID, id)
		if err != nil {
			return store.IgnoreMissing(err)
		}
		return recordEnd(ctx, tx, u, reason, 1)
	})
}

// EndOthers ends all sessions of a user except one.
func (s *Service) EndOthers(ctx context.Context, u store.User, id string) error {
	_, err := s.endExcept(ctx, u, id, Ended)
	return err
}

// EndAll ends all sessions of a user, and returns their number.
func (s *Service) EndAll(ctx context.Context, u store.User) (int64, error) {
	return s.endExcept(ctx, u, "", EndedByHost)
}

func (s *Service) endExcept(ctx context.Context, u store.User, id, reason string) (n int64, err error) {
	err = s.db.Write(ctx, scope.User(u.ID), func(tx *store.Tx) error {
		if n, err = tx.DeleteSessions(u.ID, id); err != nil || n == 0 {
			return err
		}
		return recordEnd(ctx, tx, u, reason, n)
	})
	return n, err
}

// Sessions returns a user's sessions, the last seen first.
func (s *Service) Sessions(ctx context.Context, userID string) ([]Session, error) {
	rows, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]store.Session, error) { return tx.SessionsOf(userID) })
	if err != nil {
		return nil, fmt.Errorf("listing sessions: %w", err)
	}
	out := make([]Session, 0, len(rows))
	for _, r := range rows {
		out = append(out, sessionOf(r))
	}
	return out, nil
}

// Sweep removes sessions, links and used challenges that have ended.
func (s *Service) Sweep(ctx context.Context) error {
	err := s.db.WriteInPieces(ctx, scope.Free, func(tx *store.Tx, limit int) (int64, error) {
		return tx.DeleteOldSessions(tx.Now().Add(-idle), tx.Now(), limit)
	})
	if err != nil {
		return err
	}
	err = s.db.WriteInPieces(ctx, scope.Free, func(tx *store.Tx, limit int) (int64, error) { return tx.DeleteOldChallenges(tx.Now(), limit) })
	if err != nil {
		return err
	}
	return s.db.Write(ctx, scope.Free, func(tx *store.Tx) error { return tx.DeleteOldSignInLinks(tx.Now()) })
}
