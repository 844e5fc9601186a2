package backup

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"filippo.io/age"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity/keyring"
)

const (
	// maxKey bounds the file of a key, sealed or not.
	maxKey = 64 << 10
	// maxWork bounds the work of a sealed key, so that a file of others does not keep this program busy.
	maxWork = 20
	// MinPassphrase is the least length of a passphrase, in bytes.
	MinPassphrase = 12
)

// sealWork is the work of sealing a key, which is the default of the library. Only tests lower it: with the race detector,
// it takes ten seconds.
var sealWork = 18

// sealKey returns the master key, which must open the stored keys, encrypted with a passphrase.
func sealKey(ctx context.Context, source keyring.Source, stored keyring.Stored, passphrase string) ([]byte, error) {
	if len(passphrase) < MinPassphrase {
		return nil, fault.Invalid("the passphrase has fewer than %d characters: a person who copies the backup can guess it", MinPassphrase)
	}
	key, err := source.Text(ctx)
	if err != nil {
		return nil, err
	}
	if err := stored.Check(string(key)); err != nil {
		return nil, fault.Invalid("%s does not open the secrets of the installation (%v): the backup would be useless without another key", source, err)
	}
	recipient, err := age.NewScryptRecipient(passphrase)
	if err != nil {
		return nil, fmt.Errorf("sealing the master key: %w", err)
	}
	recipient.SetWorkFactor(sealWork)
	var sealed bytes.Buffer
	w, err := age.Encrypt(&sealed, recipient)
	if err != nil {
		return nil, fmt.Errorf("sealing the master key: %w", err)
	}
	if _, err := w.Write(key); err != nil {
		return nil, fmt.Errorf("sealing the master key: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("sealing the master key: %w", err)
	}
	return sealed.Bytes(), nil
}

// openKey decrypts a sealed master key.
func openKey(sealed []byte, passphrase string) ([]byte, error) {
	identity, err := age.NewScryptIdentity(passphrase)
	if err != nil {
		return nil, fault.Invalid("opening the sealed master key: %v", err)
	}
	identity.SetMaxWorkFactor(maxWork)
	r, err := age.Decrypt(bytes.NewReader(sealed), identity)
	if err != nil {
		return nil, fault.Invalid("opening the sealed master key: %v; check the passphrase", err)
	}
	key, err := io.ReadAll(io.LimitReader(r, maxKey))
	if err != nil {
		return nil, fault.Invalid("opening the sealed master key: %v", err)
	}
	return key, nil
}

// sealedKey returns the master key of the backup, which must open the keys of its secrets.
func (b *stored) sealedKey(keys keyring.Stored, passphrase string) ([]byte, error) {
	if b.manifest.Key == nil {
		return nil, fault.Invalid("the backup %s contains no master key that the passphrase could open: use another one, which workflow-server backup list shows, or leave the passphrase out, and put a copy of the key into its place before you restore", b.path)
	}
	sealed, err := b.read(keyName, maxKey)
	if err != nil {
		return nil, err
	}
	key, err := openKey(sealed, passphrase)
	if err != nil {
		return nil, err
	}
	if err := keys.Check(string(key)); err != nil {
		return nil, fault.Invalid("the sealed master key of the backup %s does not open its secrets (%v): use another backup, or leave the passphrase out, and put a copy of the key into its place before you restore", b.path, err)
	}
	return key, nil
}
