package environments

import (
	"context"
	"crypto/rand"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// CheckIn checks a definition in a folder, without changing anything. The environment need not exist; then it has no sealed
// key, and the ciphertexts in the result are of no use.
func (s *Service) CheckIn(ctx context.Context, p identity.Principal, e store.Environment, definition string, in Folder) (Checked, error) {
	if err := checkSize(len(definition)); err != nil {
		return Checked{}, err
	}
	key, err := s.keyOrNone(ctx, e)
	if err != nil {
		return Checked{}, err
	}
	checked, err := s.evaluator.CheckIn(ctx, p, e, key, definition, in)
	switch {
	case err != nil:
		return Checked{}, fault.During(err, "checking the definition of an environment")
	case checked.Diagnostics.HasErrors():
		return checked, nil
	}
	return checked, checkResult(definition, checked)
}

// keyOrNone returns the key of an environment, or a random one if it does not exist.
func (s *Service) keyOrNone(ctx context.Context, e store.Environment) (*Key, error) {
	if len(e.SealedKey) > 0 {
		return s.Key(ctx, e)
	}
	raw := make([]byte, keySize)
	rand.Read(raw)
	return newKey(e.ID, raw)
}

// Same reports whether two definitions of an environment are equal except for the ciphertexts of equal secrets.
func (s *Service) Same(ctx context.Context, e store.Environment, a, b string) (bool, error) {
	if a == b {
		return true, nil
	}
	key, err := s.Key(ctx, e)
	if err != nil {
		return false, err
	}
	if a, err = s.evaluator.Decrypt(ctx, e, key, a); err == nil {
		b, err = s.evaluator.Decrypt(ctx, e, key, b)
	}
	return err == nil && a == b, fault.During(err, "comparing the definitions of an environment")
}
