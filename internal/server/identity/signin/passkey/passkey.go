// Package passkey lets users sign in with passkeys: keys that their devices keep, and unlock with a
// PIN or a finger. Passkeys work only for a console at a domain, over https or on localhost.
package passkey

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"
	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/signin"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/termtext"
)

const (
	// answerWithin is the time that a user has to unlock a passkey.
	answerWithin = 5 * time.Minute
	maxPasskeys  = 20
	maxName      = 100
	maxAnswer    = 64 << 10
)

// Service adds passkeys and signs users in with them.
type Service struct {
	db     *store.DB
	log    *logrus.Entry
	origin string
	party  *webauthn.WebAuthn
	signIn signin.Box
	add    signin.Box
}

// Options are the options of [New].
type Options struct {
	Log     *logrus.Entry
	Secrets signin.Secrets
	// URL is the console's address for browsers, without a trailing slash.
	URL string
}

// New returns a service that uses a database. It offers nothing if browsers refuse passkeys at the
// console's address.
func New(db *store.DB, o Options) (*Service, error) {
	s := &Service{
		db: db, log: o.Log,
		signIn: signin.Box{Secrets: o.Secrets, Purpose: "passkey"}, add: signin.Box{Secrets: o.Secrets, Purpose: "new-passkey"},
	}
	domain, ok := domainOf(o.URL)
	if !ok {
		return s, nil
	}
	timeout := webauthn.TimeoutConfig{Enforce: true, Timeout: answerWithin, TimeoutUVD: answerWithin}
	party, err := webauthn.New(&webauthn.Config{
		RPID: domain, RPDisplayName: domain, RPOrigins: []string{o.URL},
		AttestationPreference: protocol.PreferNoAttestation,
		AuthenticatorSelection: protocol.AuthenticatorSelection{
			ResidentKey: protocol.ResidentKeyRequirementRequired, RequireResidentKey: protocol.ResidentKeyRequired(),
			UserVerification: protocol.VerificationRequired,
		},
		Timeouts: webauthn.TimeoutsConfig{Login: timeout, Registration: timeout},
	})
	if err != nil {
		return nil, fmt.Errorf("setting up passkeys for %s: %w", o.URL, err)
	}
	s.origin, s.party = o.URL, party
	return s, nil
}

// domainOf returns the domain of an address at which browsers offer passkeys.
func domainOf(address string) (string, bool) {
	u, err := url.Parse(address)
	if err != nil {
		return "", false
	}
	host := u.Hostname()
	if _, err := netip.ParseAddr(host); err == nil || host == "" {
		return "", false
	}
	local := host == "localhost" || strings.HasSuffix(host, ".localhost")
	return host, u.Scheme == "https" || local
}

// Origin returns the origin of the pages at which browsers offer passkeys, or "" for none.
func (s *Service) Origin() string { return s.origin }

var (
	errOff    = fault.Invalid("Passkeys do not work at this server's address. They need a domain with https.")
	errAnswer = fault.New(fault.KindUnauthenticated, "The passkey was not accepted. Try again, or sign in in another way.")
	errCloned = fault.New(fault.KindUnauthenticated, "The passkey was refused because its counter went back: a copy of it may exist. Sign in in another way, and replace it.")
	errMany   = fault.Conflict("You have %d passkeys. Remove one before you add another.", maxPasskeys)
	errKnown  = fault.Conflict("This passkey exists already.")
)

// Question is what a browser needs to ask for a passkey.
type Question struct {
	// Options are for the browser.
	Options any `json:"options"`
	// State must return with the answer.
	State string `json:"state"`
}

// AskToSignIn returns the question for a sign-in with any passkey of this server.
func (s *Service) AskToSignIn(ctx context.Context) (Question, error) {
	if s.party == nil {
		return Question{}, errOff
	}
	options, session, err := s.party.BeginDiscoverableLogin()
	if err != nil {
		return Question{}, fmt.Errorf("asking for a passkey: %w", err)
	}
	return seal(ctx, s.signIn, options.Response, session)
}

func seal(ctx context.Context, box signin.Box, options any, session *webauthn.SessionData) (Question, error) {
	state, err := box.Seal(ctx, session, session.Expires)
	return Question{Options: options, State: state}, err
}

// SignIn returns the user whose passkey has answered a question. Each question accepts one answer.
// The [fault.KindUnauthenticated] errors mean that the visitor is not who they claim to be.
func (s *Service) SignIn(ctx context.Context, state, answer string) (userID string, used store.Passkey, err error) {
	if s.party == nil {
		return "", store.Passkey{}, errOff
	}
	var session webauthn.SessionData
	if err := s.signIn.Open(ctx, state, &session); err != nil || len(answer) > maxAnswer {
		return "", store.Passkey{}, errAnswer
	}
	parsed, err := protocol.ParseCredentialRequestResponseBytes([]byte(answer))
	if err != nil {
		return "", store.Passkey{}, s.refused(err)
	}
	find := func(credential, _ []byte) (webauthn.User, error) { // the library compares the handle with the user
		used, err = store.Read(ctx, s.db, func(tx *store.Tx) (store.Passkey, error) { return tx.PasskeyByCredential(credential) })
		return holder{id: used.UserID, keys: []store.Passkey{used}}, err
	}
	_, credential, err := s.party.ValidatePasskeyLogin(find, session, parsed)
	if err != nil {
		return "", store.Passkey{}, s.refused(err)
	}
	if credential.Authenticator.CloneWarning {
		s.log.WithFields(logrus.Fields{"user": used.UserID, "passkey": used.ID}).Warn("the counter of a passkey went back; a copy of it may exist")
		return used.UserID, used, errCloned
	}
	err = s.db.Write(ctx, scope.User(used.UserID), func(tx *store.Tx) error {
		if err := s.use(tx, session); err != nil {
			return err
		}
		return tx.UsePasskey(used, int64(credential.Flags.ProtocolValue()), int64(credential.Authenticator.SignCount), tx.Now())
	})
	if errors.Is(err, store.ErrNotFound) {
		err = s.refused(errors.New("the passkey was removed or used at the same time"))
	}
	return used.UserID, used, err
}

// use uses the challenge of a question up, or refuses one that was used before.
func (s *Service) use(tx *store.Tx, session webauthn.SessionData) error {
	sum := sha256.Sum256([]byte(session.Challenge))
	err := tx.UseChallenge(sum[:], session.Expires)
	if errors.Is(err, store.ErrConflict) {
		return s.refused(errors.New("the challenge was used before"))
	}
	return err
}

// refused is the error of an answer that proves nothing. The visitor does not learn why.
func (s *Service) refused(cause error) error {
	if detail, ok := errors.AsType[*protocol.Error](cause); ok {
		cause = fmt.Errorf("%w: %s", cause, termtext.OneLine(detail.DevInfo, maxName))
	}
	s.log.WithError(cause).Info("the answer of a passkey was refused")
	return fault.Wrap(fault.KindUnauthenticated, cause, "%s", errAnswer.Error())
}

// AskToAdd returns the question for a new passkey of a user.
func (s *Service) AskToAdd(ctx context.Context, u store.User) (Question, error) {
	if s.party == nil {
		return Question{}, errOff
	}
	keys, err := s.List(ctx, u.ID)
	if err != nil {
		return Question{}, err
	}
	if len(keys) >= maxPasskeys {
		return Question{}, errMany
	}
	who := holder{id: u.ID, login: u.Login, name: u.Name, keys: keys}
	var known []protocol.CredentialDescriptor
	for _, c := range who.WebAuthnCredentials() {
		known = append(known, c.Descriptor())
	}
	options, session, err := s.party.BeginRegistration(who, webauthn.WithExclusions(known))
	if err != nil {
		return Question{}, fmt.Errorf("asking for a new passkey: %w", err)
	}
	return seal(ctx, s.add, options.Response, session)
}

// Add adds the passkey that has answered a question to a user.
func (s *Service) Add(ctx context.Context, u store.User, name, state, answer string) error {
	if s.party == nil {
		return errOff
	}
	var session webauthn.SessionData
	if err := s.add.Open(ctx, state, &session); err != nil || len(answer) > maxAnswer {
		return errAnswer
	}
	parsed, err := protocol.ParseCredentialCreationResponseBytes([]byte(answer))
	if err != nil {
		return s.refused(err)
	}
	credential, err := s.party.CreateCredential(holder{id: u.ID}, session, parsed)
	if err != nil {
		return s.refused(err)
	}
	if name = termtext.OneLine(name, maxName); name == "" {
		name = "Passkey"
	}
	err = s.db.Write(ctx, scope.User(u.ID), func(tx *store.Tx) error {
		if err := s.use(tx, session); err != nil {
			return err
		}
		if keys, err := tx.PasskeysOf(u.ID); err != nil || len(keys) >= maxPasskeys {
			return errors.Join(err, errMany)
		}
		key := store.Passkey{
			ID: identity.NewID(), Credential: credential.ID, UserID: u.ID, Name: name, PublicKey: credential.PublicKey,
			Flags: int64(credential.Flags.ProtocolValue()), SignCount: int64(credential.Authenticator.SignCount), CreatedAt: tx.Now(),
		}
		if err := tx.InsertPasskey(key); err != nil {
			return err
		}
		return record(ctx, tx, audit.PasskeyAdded, u, name)
	})
	return store.IfConflict(err, errKnown)
}

func record(ctx context.Context, tx *store.Tx, action audit.Action, u store.User, name string) error {
	return audit.Record(ctx, tx, audit.Entry{
		Action: action, Subject: audit.Subject{Kind: "user", ID: u.ID, Name: u.Login}, Detail: map[string]any{"passkey": name},
	})
}

// List returns a user's passkeys, oldest first.
func (s *Service) List(ctx context.Context, userID string) ([]store.Passkey, error) {
	list, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]store.Passkey, error) { return tx.PasskeysOf(userID) })
	return list, fault.While(err, "listing passkeys")
}

// Rename names a passkey of a user.
func (s *Service) Rename(ctx context.Context, userID, id, name string) error {
	if name = termtext.OneLine(name, maxName); name == "" {
		return fault.Invalid("Give the passkey a name.")
	}
	return s.db.Write(ctx, scope.User(userID), func(tx *store.Tx) error { return tx.RenamePasskey(userID, id, name) })
}

// Remove removes a passkey of a user. A passkey that does not exist is no error.
func (s *Service) Remove(ctx context.Context, u store.User, id string) error {
	return s.db.Write(ctx, scope.User(u.ID), func(tx *store.Tx) error {
		key, err := tx.DeletePasskey(u.ID, id)
		if err != nil {
			return store.IgnoreMissing(err)
		}
		return record(ctx, tx, audit.PasskeyRemoved, u, key.Name)
	})
}

// holder is a user in the form of the library.
type holder struct {
	id, login, name string
	keys            []store.Passkey
}

// WebAuthnID implements [webauthn.User].
func (h holder) WebAuthnID() []byte { return []byte(h.id) }

// WebAuthnName implements [webauthn.User].
func (h holder) WebAuthnName() string { return h.login }

// WebAuthnDisplayName implements [webauthn.User].
func (h holder) WebAuthnDisplayName() string { return h.name }

// WebAuthnCredentials implements [webauthn.User].
func (h holder) WebAuthnCredentials() []webauthn.Credential {
	var list []webauthn.Credential
	for _, k := range h.keys {
		list = append(list, webauthn.Credential{
			ID: k.Credential, PublicKey: k.PublicKey,
			Flags:         webauthn.NewCredentialFlags(protocol.AuthenticatorFlags(k.Flags)),
			Authenticator: webauthn.Authenticator{SignCount: uint32(k.SignCount)},
		})
	}
	return list
}
