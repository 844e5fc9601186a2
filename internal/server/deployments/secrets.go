package deployments

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"workflowagent/internal/redact"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/termtext"
	"workflowagent/internal/workflow"
)

// The first byte of a ciphertext is its form, which determines where it is valid.
const (
	// placedForm is the form of stored secrets. They are valid in one place: a member of the settings of
	// a stack and the address to which it is sent. Users who may change a secret's place, but cannot read
	// the secret, could otherwise have it sent to them.
	placedForm = 'p'
	// looseForm is the form of secrets that clients encrypt before they store them. It is valid in every
	// place of a stack, and never stored.
	looseForm = 'l'
	// stackForm is the form of secrets that earlier versions have stored, and the first byte of the
	// ciphertexts of [keyring.Ring]. It is valid only where the database contains the same secret.
	stackForm = 1
)

// sealing is the number of bytes by which a stored ciphertext is longer than its secret.
const sealing = 1 + 5 + 12 + 16 // form, key, nonce and tag

// errCiphertext is returned for a ciphertext that is not valid in its place.
var errCiphertext = errors.New("this server cannot decrypt the ciphertext: it was not created for this member of this stack and its address, or its key was lost; send the secret itself")

// placeOf returns the encryption scope of the secret with a path in settings of a stack.
func placeOf(stackID string, set *workflow.Settings, path string) string {
	return sealedFor(stackID) + "/" + path + "/" + set.SecretAddress(path)
}

// Encrypt returns a stack's secret in a form that every member of its settings accepts.
func (s *Service) Encrypt(ctx context.Context, st store.Stack, v workflow.Secret) (workflow.Secret, error) {
	plain, known := v.Value()
	if !known {
		return v, fault.Invalid("the value is encrypted already")
	}
	if plain == "" {
		return workflow.Secret{}, fault.Invalid("Invalid empty value")
	}
	return s.encrypt(ctx, looseForm, sealedFor(st.ID)+"/", plain)
}

func (s *Service) encrypt(ctx context.Context, form byte, place, plain string) (workflow.Secret, error) {
	ct, err := s.opts.Secrets.Encrypt(ctx, place, []byte(plain))
	if err != nil {
		return workflow.Secret{}, err
	}
	return workflow.EncryptedValue(append([]byte{form}, ct...)), nil
}

// decrypt returns the value and the form of a secret in a place. The error is [errCiphertext] if it is
// not valid there. Within a transaction, tx is not nil.
func (s *Service) decrypt(ctx context.Context, tx *store.Tx, stackID, place string, v workflow.Secret) (plain string, form byte, err error) {
	ct := v.Ciphertext()
	if form = ct[0]; form == stackForm {
		place = sealedFor(stackID)
	} else {
		ct = ct[1:]
	}
	switch form {
	case placedForm, stackForm:
	case looseForm:
		place = sealedFor(stackID) + "/"
	default:
		return "", form, errCiphertext
	}
	var value []byte
	if tx != nil {
		value, err = s.opts.Secrets.DecryptIn(tx, place, ct)
	} else {
		value, err = s.opts.Secrets.Decrypt(ctx, place, ct)
	}
	if fault.KindOf(err) == fault.KindInvalid {
		err = errCiphertext
	}
	return string(value), form, err
}

// open decrypts the secrets in settings of a stack from the database.
func (s *Service) open(ctx context.Context, tx *store.Tx, stackID string, set *workflow.Settings) error {
	return set.EachSecret(func(path string, v *workflow.Secret) error {
		if _, known := v.Value(); known {
			return nil
		}
		plain, _, err := s.decrypt(ctx, tx, stackID, placeOf(stackID, set, path), *v)
		if err != nil {
			return misplaced(path, err)
		}
		*v = workflow.SecretValue(plain)
		return nil
	})
}

// seal encrypts the secrets in settings of a stack for their places. It returns an error if a
// ciphertext is not valid in its place. stored are settings in the database, which determine where
// ciphertexts of earlier versions are valid; nil settings have no effect.
func (s *Service) seal(ctx context.Context, tx *store.Tx, stackID string, set *workflow.Settings, stored ...*workflow.Settings) error {
	return s.sealOver(ctx, tx, stackID, set, false, stored)
}

// reseal is [Service.seal] for settings that replace those in the database. A secret that is already stored in its place
// stays there, even if its key was lost.
func (s *Service) reseal(ctx context.Context, tx *store.Tx, stackID string, set, old *workflow.Settings) error {
	return s.sealOver(ctx, tx, stackID, set, true, []*workflow.Settings{old})
}

func (s *Service) sealOver(ctx context.Context, tx *store.Tx, stackID string, set *workflow.Settings, keep bool, stored []*workflow.Settings) error {
	places := map[string][]workflow.Secret{}
	for _, old := range stored {
		if old == nil {
			continue
		}
		_ = old.EachSecret(func(path string, v *workflow.Secret) error {
			if _, known := v.Value(); !known {
				place := placeOf(stackID, old, path)
				places[place] = append(places[place], *v)
			}
			return nil
		})
	}
	return set.EachSecret(func(path string, v *workflow.Secret) error {
		if !v.IsSecret() {
			return nil
		}
		place := placeOf(stackID, set, path)
		plain, known := v.Value()
		if !known {
			var form byte
			var err error
			if plain, form, err = s.decrypt(ctx, tx, stackID, place, *v); err == nil && form == stackForm {
				err = s.checkStored(ctx, tx, stackID, place, plain, places[place])
			}
			if keep && errors.Is(err, errCiphertext) && slices.ContainsFunc(places[place], func(old workflow.Secret) bool {
				return bytes.Equal(old.Ciphertext(), v.Ciphertext())
			}) {
				return nil
			}
			if err != nil || form == placedForm {
				return misplaced(path, err)
			}
		}
		sealed, err := s.encrypt(ctx, placedForm, place, plain)
		*v = sealed
		return err
	})
}

// checkStored returns [errCiphertext] unless one of the secrets in a place has a value. Clients can send a
// ciphertext of an earlier version again after it was encrypted for its place.
func (s *Service) checkStored(ctx context.Context, tx *store.Tx, stackID, place, plain string, secrets []workflow.Secret) error {
	for _, v := range secrets {
		if value, _, err := s.decrypt(ctx, tx, stackID, place, v); err != nil || value == plain {
			return err
		}
	}
	return errCiphertext
}

// misplaced adds the path of a member to [errCiphertext].
func misplaced(path string, err error) error {
	if errors.Is(err, errCiphertext) {
		return fault.Invalid("%s: %s", termtext.OneLine(path, maxMessage), err)
	}
	return err
}

// checkSecrets returns an error for settings with more secrets than agents and this server mask.
func checkSecrets(set *workflow.Settings) error {
	size := 0
	err := set.EachSecret(func(_ string, v *workflow.Secret) error {
		if plain, known := v.Value(); !known {
			size += max(0, len(v.Ciphertext())-sealing)
		} else if v.IsSecret() {
			size += len(plain)
		}
		return nil
	})
	if err == nil {
		err = redact.CheckJob(size)
	}
	if err != nil {
		return fault.Invalid("%s", err)
	}
	return nil
}
