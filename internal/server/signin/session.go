// Package signin lets users sign in to the console, and manages the sessions of their browsers.
// Cookies only name sessions, which are rows in the database: the server can end them at any time.
package signin

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/termtext"
)

const (
	// idle is the time after which an unused session ends.
	idle = 24 * time.Hour
	// Longest is the time after which every session ends.
	Longest = 14 * 24 * time.Hour

	// freshFor is the time after a sign-in in which a session may do what requires a recent sign-in.
	freshFor = 15 * time.Minute
	// touchEvery is the minimum interval between updates of a session's last use.
	touchEvery = time.Minute

	maxAddress, maxAgent = 100, 300
)

// The ways to sign in.
const (
	WayToken = "token"
	WayLink  = "link"
)

// Session is a signed-in browser.
type Session struct {
	ID     string
	UserID string
	// Way is how the user signed in, such as "token" or "link".
	Way           string
	Created, Seen time.Time
	Address       string
	// Agent is the text with which the browser describes itself.
	Agent string
}

// Fresh reports whether the user signed in recently.
func (s Session) Fresh(now time.Time) bool { return now.Sub(s.Created) < freshFor }

// Service signs users in.
type Service struct {
	db     *store.DB
	log    *logrus.Entry
	tokens *identity.Service
	tries  attempts
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
	return &Service{db: db, log: o.Log, tokens: o.Identity, noTokens: o.NoTokens}
}

// errNoSession is the error of every invalid cookie.
var errNoSession = fault.New(fault.KindUnauthenticated, "Unauthorized: the session has ended; sign in again")

// Open creates a session for a user who has signed in. A session that was opened with an access
// token ends with the token; tokenID is "" for other ways. It returns the cookie's text, which is not
// stored.
func (s *Service) Open(ctx context.Context, userID, way, tokenID, address, agent string) (cookie string, _ Session, err error) {
	cookie, hash := identity.NewToken()
	row := store.Session{
		ID: identity.NewID(), Hash: hash, UserID: userID, Way: way, TokenID: tokenID, Address: termtext.OneLine(address, maxAddress), Agent: termtext.OneLine(agent, maxAgent),
	}
	err = s.db.Write(ctx, func(tx *store.Tx) error {
		row.CreatedAt, row.SeenAt = tx.Now(), tx.Now()
		if err := tx.InsertSession(row); err != nil {
			return err
		}
		u, err := tx.User(userID)
		if err != nil {
			return err
		}
		return audit.Record(ctx, tx, audit.Entry{
			Action: audit.SignedIn, Subject: audit.Subject{Kind: "user", ID: userID, Name: u.Login}, Detail: map[string]any{"with": way},
			Actor: &audit.Actor{Kind: string(identity.KindUser), ID: userID, Name: u.Login},
		})
	})
	if err != nil {
		return "", Session{}, fmt.Errorf("creating a session: %w", err)
	}
	s.log.WithFields(logrus.Fields{"user": userID, "way": way, "address": address}).Info("a user signed in")
	return cookie, sessionOf(row), nil
}

func sessionOf(r store.Session) Session {
	return Session{ID: r.ID, UserID: r.UserID, Way: r.Way, Created: r.CreatedAt, Seen: r.SeenAt, Address: r.Address, Agent: r.Agent}
}

// Resume returns the user of a session's cookie, with the user's current roles. It returns a
// [fault.KindUnauthenticated] error if the session has ended.
func (s *Service) Resume(ctx context.Context, cookie string) (identity.Principal, Session, error) {
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
	case subtle.ConstantTimeCompare(row.Hash, hash) != 1, now.Sub(row.SeenAt) > idle, now.Sub(row.CreatedAt) > Longest,
		!mayEnter(p):
		return identity.Principal{}, Session{}, errNoSession
	}
	if now.Sub(row.SeenAt) > touchEvery {
		if err := s.db.Write(ctx, func(tx *store.Tx) error { return tx.TouchSession(row.ID, now) }); err != nil {
			s.log.WithError(err).Warn("recording the last use of a session failed")
		}
	}
	return p, sessionOf(row), nil
}

// mayEnter reports whether a user has anything to see in the console.
func mayEnter(p identity.Principal) bool { return len(p.Roles) > 0 || p.User.SiteAdmin }

// End ends a session of a user.
func (s *Service) End(ctx context.Context, userID, id string) error {
	return s.db.Write(ctx, func(tx *store.Tx) error { return tx.DeleteSession(userID, id) })
}

// EndOthers ends all sessions of a user except one.
func (s *Service) EndOthers(ctx context.Context, userID, id string) error {
	return s.db.Write(ctx, func(tx *store.Tx) error { return tx.DeleteSessions(userID, id) })
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

// Sweep removes sessions and links that have ended.
func (s *Service) Sweep(ctx context.Context) error {
	err := s.db.WriteInPieces(ctx, func(tx *store.Tx, limit int) (int64, error) {
		return tx.DeleteOldSessions(tx.Now().Add(-idle), tx.Now().Add(-Longest), limit)
	})
	if err != nil {
		return err
	}
	return s.db.Write(ctx, func(tx *store.Tx) error { return tx.DeleteOldSignInLinks(tx.Now()) })
}
