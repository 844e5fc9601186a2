// Package opening evaluates environments for callers: it checks them, opens them as sessions, and encrypts and decrypts the
// secrets in definitions. A process of package evaluator evaluates; this package answers what that process asks, with the
// rights of the caller at each question.
package opening

import (
	"context"
	"slices"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/esc/wire"
	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/environments/evaluator"
	"workflowagent/internal/server/environments/providers"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// maskPurpose is the purpose of the key for the ids of masked secrets.
const maskPurpose = "environment-masks"

// Options are the options of [New].
type Options struct {
	Log          *logrus.Entry
	Secrets      *keyring.Ring
	Environments *environments.Service
	Stacks       *stacks.Service
	Evaluator    *evaluator.Pool
	Providers    *providers.Service
}

// Service evaluates environments. Its methods may be called concurrently.
type Service struct {
	db      *store.DB
	opts    Options
	maskKey []byte
}

// New returns a service that uses a database.
func New(db *store.DB, o Options) (*Service, error) {
	key, err := o.Secrets.Derive(maskPurpose)
	return &Service{db, o, key}, err
}

// Root is what a caller evaluates.
type Root struct {
	Org store.Organization
	// Environment is the environment to which the definition belongs, or nil for a definition without a name.
	Environment *store.Environment
	Definition  string
	// Revision is the revision of the environment that has the definition.
	Revision int64
	// Draft is set for a draft that changes the revision.
	Draft bool
	// Silent is set for a draft that gets no identity tokens and makes no calls.
	Silent bool
	// Overrides replace imports, by their names.
	Overrides map[environments.Reference]environments.Reference
}

// RootOf returns a revision of an environment.
func RootOf(org store.Organization, f environments.Found) Root {
	return Root{Org: org, Environment: &f.Environment, Definition: f.Revision.Definition, Revision: f.Revision.Number, Silent: f.Silent}
}

// name returns the name of an environment within its organization.
func name(e *store.Environment) string {
	if e == nil {
		return ""
	}
	return e.Project + "/" + e.Name
}

// Evaluation is the result of a check.
type Evaluation struct {
	*wire.Environment
	Diagnostics wire.Diagnostics `json:"diagnostics,omitempty"`
}

// Check evaluates without opening providers. The caller needs the permission to read all environments, or with showSecrets the
// one to open them. Problems of the definition are an [environments.DiagnosticsError].
func (s *Service) Check(ctx context.Context, p identity.Principal, root Root, showSecrets bool) (Evaluation, error) {
	need := store.ReadEnvironment
	if showSecrets {
		need = store.OpenEnvironment
	}
	h := s.hostFor(p, root, need)
	req := h.request(wire.Check)
	req.ShowSecrets, req.Details = showSecrets, true
	result, err := s.run(ctx, h, req)
	if err != nil {
		return Evaluation{}, err
	}
	if showSecrets {
		var values wire.Values
		if result.Environment != nil {
			values = result.Environment.Properties
		}
		if err := s.account(ctx, h, values, nil); err != nil {
			return Evaluation{}, err
		}
	}
	if result.Environment == nil { // of an empty definition
		result.Environment = &wire.Environment{}
	}
	return Evaluation{result.Environment, result.Diagnostics}, nil
}

// run evaluates and returns an error for a result that failed.
func (s *Service) run(ctx context.Context, h *host, req wire.Request) (*wire.Result, error) {
	result, err := s.opts.Evaluator.Run(ctx, h.owner(), req, h)
	if err == nil && result.Failed() && h.saw { // its errors can repeat what the process has got
		if err := s.account(ctx, h, nil, nil); err != nil {
			return nil, err
		}
	}
	switch {
	case err != nil:
		return nil, err
	case result.Failed() && h.saw && h.evaluates():
		return nil, fault.Invalid("the environments have errors, which policy evaluations do not show because they can repeat secrets: open the environments as a user, with pulumi env open")
	case result.Error != "":
		return nil, fault.Invalid("%s", oneLine(result.Error))
	case result.Failed():
		return nil, &environments.DiagnosticsError{Diagnostics: result.Diagnostics}
	}
	return result, nil
}

// contextOf returns what definitions know about the caller.
func contextOf(p identity.Principal, org store.Organization) wire.Values {
	text := func(s string) wire.Value { return wire.Value{Value: s} }
	object := func(members map[string]wire.Value) wire.Value { return wire.Value{Value: members} }
	return wire.Values{"pulumi": object(map[string]wire.Value{
		"organization": object(map[string]wire.Value{"id": text(org.ID), "login": text(org.Name)}),
		"user":         object(map[string]wire.Value{"id": text(p.User.ID), "login": text(p.Name())}),
	})}
}

// unrecorded returns the error for secrets that the server does not send because it could not record that.
func unrecorded(err error) error {
	if fault.KindOf(err) == fault.KindOutcomeUnknown { // at worst, a read is counted that was refused
		return fault.Wrap(fault.KindUnavailable, err, "the server could not record in its audit log that you open environments, so it does not send their values; try again")
	}
	return fault.During(err, "recording in the audit log that environments are opened, before which the server sends no values")
}

// account records, in the audit log and for the mask of a job's log, what an evaluation shows. It must be called before the
// server sends any of it. then runs in the same transaction, unless it is nil.
func (s *Service) account(ctx context.Context, h *host, values wire.Values, then func(tx *store.Tx) error) error {
	mask, err := s.maskOf(ctx, h.p, values, h.plain)
	if err != nil {
		return err
	}
	list := h.unrecorded()
	err = s.db.Write(ctx, scope.Free, func(tx *store.Tx) error {
		if mask != nil {
			if err := addMask(tx, *mask); err != nil {
				return err
			}
		}
		if err := h.record(ctx, tx, list); err != nil || then == nil {
			return err
		}
		return then(tx)
	})
	if err != nil {
		return unrecorded(err)
	}
	h.markRecorded(list)
	return nil
}

// unrecorded returns the environments that the evaluation has got, and that the audit log does not have.
func (h *host) unrecorded() []opened {
	return slices.DeleteFunc(h.opened(), func(o opened) bool { return h.recorded[revisionKey{o.ID, o.revision}] })
}

func (h *host) markRecorded(list []opened) {
	for _, o := range list {
		h.recorded[revisionKey{o.ID, o.revision}] = true
	}
}

// record records that the caller has opened environments.
func (h *host) record(ctx context.Context, tx *store.Tx, list []opened) error {
	var detail map[string]any
	if h.evaluates() {
		detail = map[string]any{"policyEvaluation": h.p.JobID}
	}
	for _, o := range list {
		err := audit.RecordRead(ctx, tx, audit.Read{
			OrgID: h.root.Org.ID, Action: audit.EnvironmentOpened, Subject: audit.Environment(o.Environment), Name: o.version(), Detail: detail, DeploymentID: h.p.DeploymentID,
		})
		if err != nil {
			return err
		}
		if err := tx.SaveEnvironmentOpening(store.EnvironmentOpening{EnvironmentID: o.ID, OpenedAt: tx.Now(), OpenedBy: h.p.Name()}); err != nil {
			return err
		}
	}
	return nil
}
