package signin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// linkFor is the time for which a link is valid.
const linkFor = 10 * time.Minute

// errToken and errLink do not reveal which part of a sign-in was wrong.
var (
	errToken  = fault.New(fault.KindUnauthenticated, "The token is not a valid personal access token.")
	errLink   = fault.New(fault.KindUnauthenticated, "The link is unknown, was used, or is older than 10 minutes.")
	errTries  = fault.New(fault.KindUnavailable, "Too many failed sign-ins from this address. Wait a minute, then try again.")
	errNoWay  = fault.Forbidden("The sign-in with access tokens is turned off on this server.")
	errNoRole = fault.New(fault.KindUnauthenticated, "The user is not a member of any organization.")
)

// Tokens reports whether users can sign in with access tokens.
func (s *Service) Tokens() bool { return !s.noTokens }

// UseToken returns the user of a personal access token, and the token's id. Tokens from an exchange do not count,
// because a session could outlive them.
func (s *Service) UseToken(ctx context.Context, text, address string) (u store.User, tokenID string, err error) {
	if s.noTokens {
		return store.User{}, "", errNoWay
	}
	p, err := s.tokens.Authenticate(ctx, text)
	if err != nil && fault.KindOf(err) != fault.KindUnauthenticated {
		return store.User{}, "", err
	}
	if err != nil || p.Kind != identity.KindUser || p.Exchanged {
		return store.User{}, "", s.refuse(address, errToken)
	}
	if !mayEnter(p) {
		return store.User{}, "", errNoRole
	}
	return p.User, p.TokenID, nil
}

// refuse records a failed sign-in. It returns the error for it, or that the address has failed too
// often. Valid credentials are never refused, so that a client cannot keep the users behind a proxy out.
func (s *Service) refuse(address string, err error) error {
	if !s.tries.allow(address, time.Now()) {
		return errTries
	}
	s.tries.failed(address, time.Now())
	return err
}

// MakeLink returns the secret of a new link that signs a user in once.
func (s *Service) MakeLink(ctx context.Context, userID string) (string, error) {
	text, hash := identity.NewToken()
	err := s.db.Write(ctx, func(tx *store.Tx) error {
		return tx.InsertSignInLink(store.SignInLink{ID: identity.NewID(), Hash: hash, UserID: userID, CreatedAt: tx.Now(), ExpiresAt: tx.Now().Add(linkFor)})
	})
	if err != nil {
		return "", fmt.Errorf("creating a sign-in link: %w", err)
	}
	return text, nil
}

// UseLink uses a link up and returns its user.
func (s *Service) UseLink(ctx context.Context, text, address string) (u store.User, err error) {
	err = s.db.Write(ctx, func(tx *store.Tx) error {
		link, err := tx.TakeSignInLink(identity.HashToken(text))
		if err == nil && tx.Now().After(link.ExpiresAt) {
			err = store.ErrNotFound
		}
		if err != nil {
			return err
		}
		p, err := identity.OfUser(tx, link.UserID)
		if err == nil && !mayEnter(p) {
			err = errNoRole // the link stays, because the membership can follow
		}
		u = p.User
		return err
	})
	if fault.KindOf(err) == fault.KindUnauthenticated {
		return store.User{}, err
	}
	if errors.Is(err, store.ErrNotFound) {
		return store.User{}, s.refuse(address, errLink)
	}
	if err != nil {
		return store.User{}, fmt.Errorf("using a sign-in link: %w", err)
	}
	return u, nil
}
