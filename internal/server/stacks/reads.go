package stacks

import (
	"context"
	"fmt"
	"strconv"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks/states"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// Encrypt encrypts a secret of a stack.
func (s *Service) Encrypt(ctx context.Context, st store.Stack, plaintext []byte) ([]byte, error) {
	return s.secrets.Encrypt(ctx, st.ID, plaintext)
}

// Decrypt calls use with a function that decrypts a stack's secrets, and records that the caller p has
// read them. use must not pass secrets on: they may leave the server only after Decrypt has returned nil.
func (s *Service) Decrypt(ctx context.Context, p identity.Principal, st store.Stack, use func(decrypt func(ciphertext []byte) ([]byte, error)) error) error {
	found := false
	err := use(func(ciphertext []byte) ([]byte, error) {
		found = true
		return s.secrets.Decrypt(ctx, st.ID, ciphertext)
	})
	if err != nil || !found {
		return err
	}
	return s.recordRead(ctx, p, st, audit.SecretsDecrypted, "")
}

// ReportDecryption records that the caller p has decrypted secrets of a stack without the server. name
// is the secret or the command that the caller names.
func (s *Service) ReportDecryption(ctx context.Context, p identity.Principal, st store.Stack, name string) error {
	return s.recordRead(ctx, p, st, audit.DecryptionReported, name)
}

// Open returns the current state of a stack, and records that the caller p reads it. A state contains
// secrets, which the caller can decrypt without the server if it has their key.
func (s *Service) Open(ctx context.Context, p identity.Principal, st store.Stack) (states.Stored, error) {
	out, found, err := s.current(ctx, st.ID)
	if err == nil && found.StateBlob != "" {
		err = s.recordRead(ctx, p, st, audit.StateExported, "")
	}
	return out, err
}

// OpenVersion is like [Service.Open], but returns the state of a version of the stack.
func (s *Service) OpenVersion(ctx context.Context, p identity.Principal, st store.Stack, version int64) (states.Stored, error) {
	out, found, err := s.version(ctx, st, version)
	if err == nil && found.StateBlob != "" {
		err = s.recordRead(ctx, p, st, audit.StateExported, "version "+strconv.FormatInt(version, 10))
	}
	return out, err
}

// OpenOutputs is like [Service.Open], but returns what [Service.ExportOutputs] does.
func (s *Service) OpenOutputs(ctx context.Context, p identity.Principal, st store.Stack) (*states.State, error) {
	out, err := s.ExportOutputs(ctx, st.ID)
	if err == nil && !out.Empty() {
		err = s.recordRead(ctx, p, st, audit.StateExported, "outputs")
	}
	return out, err
}

func (s *Service) recordRead(ctx context.Context, p identity.Principal, st store.Stack, action audit.Action, name string) error {
	err := s.db.Write(ctx, scope.Free, func(tx *store.Tx) error {
		return audit.RecordRead(ctx, tx, audit.Read{
			OrgID: st.OrgID, Action: action, Subject: audit.Stack(st), Name: name, DeploymentID: p.DeploymentID,
		})
	})
	switch {
	case err == nil:
		return nil
	case fault.KindOf(err) == fault.KindOutcomeUnknown: // at worst, a read is counted that was refused
		return fault.Wrap(fault.KindUnavailable, err, "the server could not record in its audit log that you read secrets, so it does not send them; try again")
	default:
		return fmt.Errorf("recording a read of secrets in the audit log, before which the server sends none: %w", err)
	}
}
