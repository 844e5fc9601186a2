package opening

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// The envelope of ciphertexts in definitions, which belongs to the language: a mark, a version, the ciphertext and a checksum
// of what is before it, in base64.
const (
	envelopeMark    = "escx"
	envelopeVersion = 1
	envelopeHead    = len(envelopeMark) + 4
)

// wrap returns a ciphertext as definitions contain it.
func wrap(ciphertext []byte) string {
	out := binary.BigEndian.AppendUint32([]byte(envelopeMark), envelopeVersion)
	out = append(out, ciphertext...)
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(out)))
}

// unwrap reverses wrap.
func unwrap(text string) ([]byte, error) {
	raw, err := base64.StdEncoding.DecodeString(text)
	end := len(raw) - 4
	if err != nil || end < envelopeHead || string(raw[:len(envelopeMark)]) != envelopeMark ||
		binary.BigEndian.Uint32(raw[len(envelopeMark):]) != envelopeVersion || binary.BigEndian.Uint32(raw[end:]) != crc32.ChecksumIEEE(raw[:end]) {
		return nil, fault.Invalid("a ciphertext does not have the form of those in definitions of environments")
	}
	return raw[envelopeHead:end], nil
}

// Encrypt encrypts secrets for the definition of an environment.
func (s *Service) Encrypt(ctx context.Context, e store.Environment, secrets [][]byte) ([]string, error) {
	key, err := s.opts.Environments.Key(ctx, e)
	if err != nil {
		return nil, err
	}
	out := make([]string, len(secrets))
	for i, secret := range secrets {
		out[i] = wrap(key.Encrypt(secret))
	}
	return out, nil
}

// Decrypt decrypts secrets from the definition of an environment, and records that the caller reads them.
func (s *Service) Decrypt(ctx context.Context, p identity.Principal, e store.Environment, ciphertexts []string) ([][]byte, error) {
	if p.Kind == identity.KindJob {
		return nil, environments.ErrJob
	}
	key, err := s.opts.Environments.Key(ctx, e)
	if err != nil {
		return nil, err
	}
	out := make([][]byte, len(ciphertexts))
	for i, text := range ciphertexts {
		if out[i], err = decryptWith(key, text); err != nil {
			return nil, err
		}
	}
	err = s.db.Write(ctx, scope.Free, func(tx *store.Tx) error {
		return audit.RecordRead(ctx, tx, audit.Read{OrgID: e.OrgID, Action: audit.EnvironmentDecrypted, Subject: audit.Environment(e), DeploymentID: p.DeploymentID})
	})
	if err != nil {
		return nil, unrecorded(err)
	}
	return out, nil
}

func decryptWith(key *environments.Key, text string) ([]byte, error) {
	ciphertext, err := unwrap(text)
	if err != nil {
		return nil, err
	}
	return key.Decrypt(ciphertext)
}
