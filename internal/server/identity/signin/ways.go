package signin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/attempts"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// linkFor is the time for which a link is valid.
const linkFor = 10 * time.Minute

// errToken and errLink do not reveal which part of a sign-in was wrong.
var (
	errToken = fault.New(fault.KindUnauthenticated, "The token is not a valid personal access token.")
	errLink  = fault.New(fault.KindUnauthenticated, "The link is unknown, was used, or is older than 10 minutes.")
	// errTries does not ask for a pause, because the failures of others can cause it, and the right
	// credentials are accepted at any time.
	errTries = fault.Forbidden("Too many sign-ins from this address failed in this minute, and this one did too. Check what you entered, then try again.")
	// errAskProvider tells what to do, because the passkey was right.
	errAskProvider = fault.Forbidden("Sign in with your identity provider this time: a passkey works for 7 days after that. If you cannot, ask the operator for a link.")
	errNoWay       = fault.Forbidden("The sign-in with access tokens is turned off on this server.")
	errDisabled    = fault.Forbidden("Your user is disabled. Ask the operator of this server.")
	errNoRole      = fault.New(fault.KindUnauthenticated, "The user is not a member of any organization.")
)

// Tokens reports whether users can sign in with access tokens.
func (s *Service) Tokens() bool { return !s.noTokens }

// UseToken checks a personal access token. Tokens from an exchange do not count, because a session
// could outlive them. The session ends with the token.
func (s *Service) UseToken(ctx context.Context, text, address string) (Proof, error) {
	if s.noTokens {
		return Proof{}, errNoWay
	}
	var p identity.Principal
	err := s.tokens.Guard(ctx, address, text, func() (err error) {
		p, err = s.tokens.Authenticate(ctx, text)
		return err
	})
	if err != nil && fault.KindOf(err) != fault.KindUnauthenticated {
		return Proof{}, err
	}
	if err != nil || p.Kind != identity.KindUser || p.Exchanged {
		return Proof{}, s.Refuse(ctx, WayToken, "", address, errToken)
	}
	if !mayEnter(p) {
		return Proof{}, s.Refuse(ctx, WayToken, p.User.Login, address, errNoRole)
	}
	return Proof{User: p.User, Way: WayToken, TokenID: p.TokenID}, nil
}

// Vouch returns the proof of a user whom a provider or a passkey has confirmed. It refuses users who
// have nothing to see in the console. name describes the way to people.
func (s *Service) Vouch(ctx context.Context, userID, way, name, address string) (Proof, error) {
	var p identity.Principal
	askProvider := false
	err := s.db.Read(ctx, func(tx *store.Tx) (err error) {
		if way == WayPasskey {
			if askProvider, err = providerMustDecide(tx, userID); err != nil {
				return err
			}
		}
		p, err = identity.OfUser(tx, userID)
		return err
	})
	if err != nil {
		return Proof{}, fmt.Errorf("finding the user of a sign-in: %w", err)
	}
	if askProvider {
		return Proof{}, s.Refuse(ctx, way, p.User.Login, address, errAskProvider)
	}
	if p.User.Disabled() {
		return Proof{}, s.Refuse(ctx, way, p.User.Login, address, errDisabled)
	}
	if !mayEnter(p) {
		return Proof{}, s.Refuse(ctx, way, p.User.Login, address, fault.Forbidden(
			"You signed in as %s, who is not a member of any organization. Ask an administrator to add %s.", p.User.Login, p.User.Login,
		))
	}
	return Proof{User: p.User, Way: way, Name: name}, nil
}

// providerMustDecide reports whether a user with accounts at identity providers has signed in at none of
// them recently: the user can have left, and only the provider knows.
func providerMustDecide(tx *store.Tx, userID string) (bool, error) {
	accounts, err := tx.IdentitiesOf(userID)
	return len(accounts) > 0 && !slices.ContainsFunc(accounts, func(a store.Identity) bool {
		return tx.Now().Sub(a.UsedAt) < askProviderEvery
	}), err
}

// Refuse records that a visitor failed to sign in on a way. who is the account that the visitor has
// proved to own, or "". It returns the cause, or that the address has failed too often. Clients cannot
// keep the users behind the same proxy out: valid credentials are never refused, and who has proved an
// account learns the cause.
func (s *Service) Refuse(ctx context.Context, way, who, address string, cause error) error {
	now := time.Now()
	if !s.failures.Fail(attempts.Source(address), 1, now) {
		if who != "" {
			return cause
		}
		return errTries
	}
	if s.records.Fail("", 1, now) {
		err := s.db.Write(ctx, scope.Free, func(tx *store.Tx) error {
			return audit.Record(ctx, tx, audit.Entry{
				Action: audit.SignInFailed, Subject: audit.Subject{Kind: "user", Name: who}, Detail: map[string]any{"with": way, "because": cause.Error()},
				Actor: &audit.Actor{Kind: audit.ActorVisitor, Name: audit.ActorVisitor},
			})
		})
		if err != nil {
			s.log.WithError(err).Warn("recording a failed sign-in failed")
		}
	}
	return cause
}

// MakeLink returns the secret of a new link that signs a user in once.
func (s *Service) MakeLink(ctx context.Context, u store.User) (string, error) {
	text, hash := identity.NewToken()
	err := s.db.Write(ctx, scope.User(u.ID), func(tx *store.Tx) error {
		if cur, err := tx.User(u.ID); err != nil || cur.Disabled() {
			return cmp.Or(err, fault.Conflict("%s is disabled; to let %s sign in again, use \"workflow-server user enable %s\"", u.Login, u.Login, u.Login))
		}
		link := store.SignInLink{ID: identity.NewID(), Hash: hash, UserID: u.ID, CreatedAt: tx.Now(), ExpiresAt: tx.Now().Add(linkFor)}
		if err := tx.InsertSignInLink(link); err != nil {
			return err
		}
		return audit.Record(ctx, tx, audit.Entry{Action: audit.SignInLinkMade, Subject: subjectOf(u)})
	})
	if err != nil && fault.KindOf(err) == "" {
		err = fmt.Errorf("creating a sign-in link: %w", err)
	}
	if err != nil {
		return "", err
	}
	return text, nil
}

// FirstLink returns the secret of a new link that signs the first administrator in. It returns "" if an
// administrator has signed in to the console or used an access token, or if the first one was removed.
func (s *Service) FirstLink(ctx context.Context) (string, error) {
	var admin store.User
	err := s.db.Read(ctx, func(tx *store.Tx) error {
		seen, err := tx.AdministratorSeen(string(audit.SignedIn))
		if err == nil && !seen {
			admin, err = tx.UserByLogin(identity.AdminLogin)
		}
		return store.IgnoreMissing(err)
	})
	if err != nil {
		return "", fmt.Errorf("asking whether an administrator has signed in: %w", err)
	}
	if !admin.SiteAdmin {
		return "", nil
	}
	return s.MakeLink(ctx, admin)
}

// UseLink uses a link up, and all others of its user: another one can be in the log of an earlier start.
func (s *Service) UseLink(ctx context.Context, text, address string) (Proof, error) {
	var p identity.Principal
	hash := identity.HashToken(text)
	link, err := store.Read(ctx, s.db, func(tx *store.Tx) (store.SignInLink, error) { return tx.SignInLink(hash) })
	if err == nil {
		err = s.db.Write(ctx, scope.User(link.UserID), func(tx *store.Tx) error {
			link, err := tx.TakeSignInLink(hash)
			if err == nil && tx.Now().After(link.ExpiresAt) {
				err = store.ErrNotFound
			}
			if err != nil {
				return err
			}
			if p, err = identity.OfUser(tx, link.UserID); err == nil && !mayEnter(p) {
				err = errNoRole // the link stays, because the membership can follow
			}
			if err != nil {
				return err
			}
			return tx.DeleteSignInLinks(link.UserID)
		})
	}
	switch {
	case fault.KindOf(err) == fault.KindUnauthenticated:
		return Proof{}, s.Refuse(ctx, WayLink, p.User.Login, address, err)
	case errors.Is(err, store.ErrNotFound):
		return Proof{}, s.Refuse(ctx, WayLink, "", address, errLink)
	case err != nil:
		return Proof{}, fmt.Errorf("using a sign-in link: %w", err)
	}
	return Proof{User: p.User, Way: WayLink}, nil
}
