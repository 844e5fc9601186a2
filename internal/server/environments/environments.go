// Package environments keeps the environments of organizations (Pulumi ESC): named sets of values and secrets that stacks,
// jobs and users open. A change of a definition makes a revision, which never changes. Only an [Evaluator] reads
// definitions; this package stores them, with their secrets as ciphertexts of a key that belongs to the environment.
package environments

import (
	"context"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/esc/wire"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/storage/quota"
	"workflowagent/internal/server/store"
)

// DefaultProject is the project of environments whose names have none.
const DefaultProject = "default"

// MaxDefinition is the limit of a definition's size in bytes, as sent and as stored.
const MaxDefinition = wire.MaxDefinition

// Evaluator reads definitions on behalf of callers. Its methods may be called concurrently.
type Evaluator interface {
	// Check checks a definition of an environment, as if the caller opened it without calling providers, and encrypts its
	// plaintext secrets with the environment's key. Ciphertexts in it must be those of that key. Problems of the
	// definition are diagnostics, and no error.
	Check(ctx context.Context, p identity.Principal, e store.Environment, key *Key, definition string) (Checked, error)
	// CheckIn is like Check for a definition in a folder, whose environments take the place of stored ones as imports.
	CheckIn(ctx context.Context, p identity.Principal, e store.Environment, key *Key, definition string, in Folder) (Checked, error)
	// Encrypt replaces the plaintext secrets in a definition of an environment by ciphertexts, without checking it.
	Encrypt(ctx context.Context, e store.Environment, key *Key, definition string) (string, error)
	// Decrypt replaces the ciphertexts in a definition of an environment by the secrets.
	Decrypt(ctx context.Context, e store.Environment, key *Key, definition string) (string, error)
}

// Checked is the result of a check.
type Checked struct {
	// Definition has ciphertexts instead of plaintext secrets. It is "" if a diagnostic is an error.
	Definition  string
	Diagnostics wire.Diagnostics
	// Imports are the environments that the definition names directly, each once.
	Imports []Reference
	// Plaintext reports whether the definition contained plaintext secrets.
	Plaintext bool
	// Outside are the imports that are not in a closed folder. Because of them, the definition was checked only in part.
	Outside []Reference
}

// Folder are definitions that are not stored yet, by the names of their environments.
type Folder struct {
	Definitions map[Reference]string
	// Closed means that a definition can import only environments in the folder: stored ones are not read.
	Closed bool
}

// Options are the options of [New].
type Options struct {
	Log     *logrus.Entry
	Secrets *keyring.Ring
	Quota   *quota.Quota // nil means no limit
}

// Service manages environments. Its methods may be called concurrently.
type Service struct {
	db        *store.DB
	log       *logrus.Entry
	secrets   *keyring.Ring
	quota     *quota.Quota
	evaluator Evaluator
}

// New returns a service on a database. Without [Service.Use], definitions can be read, but neither changed nor decrypted.
func New(db *store.DB, o Options) *Service {
	return &Service{db: db, log: o.Log, secrets: o.Secrets, quota: o.Quota, evaluator: noEvaluator{}}
}

// Use sets the evaluator. Call it before any other method.
func (s *Service) Use(e Evaluator) { s.evaluator = e }

// noEvaluator refuses everything.
type noEvaluator struct{}

var errNoEvaluator = fault.New(fault.KindUnavailable, "this server cannot evaluate environments, because its program workflow-esc is missing; its operator must install it")

func (noEvaluator) Check(context.Context, identity.Principal, store.Environment, *Key, string) (Checked, error) {
	return Checked{}, errNoEvaluator
}

func (noEvaluator) CheckIn(context.Context, identity.Principal, store.Environment, *Key, string, Folder) (Checked, error) {
	return Checked{}, errNoEvaluator
}

func (noEvaluator) Encrypt(context.Context, store.Environment, *Key, string) (string, error) {
	return "", errNoEvaluator
}

func (noEvaluator) Decrypt(context.Context, store.Environment, *Key, string) (string, error) {
	return "", errNoEvaluator
}
