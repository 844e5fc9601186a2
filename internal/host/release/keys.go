package release

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
)

// Set by the linker for a release (-X workflowagent/internal/host/release.…). A build from source
// has neither and accepts no release.
var (
	publicKeys string // base64 of the public keys in PEM
	home       string // URL of the releases
)

// Home returns the URL of this build's releases, "" if none.
func Home() string { return home }

// Keys are the public keys that sign releases, several during a key change. Any of them suffices.
type Keys []*ecdsa.PublicKey

// ErrNoKeys is returned by a build that is not a release.
var ErrNoKeys = errors.New("this build has no release key and cannot verify a release: install a release, or build one with your own key (docs/releasing.md)")

// BuiltinKeys returns the keys that this build trusts, or [ErrNoKeys].
func BuiltinKeys() (Keys, error) {
	if publicKeys == "" {
		return nil, ErrNoKeys
	}
	text, err := base64.StdEncoding.DecodeString(publicKeys)
	if err != nil {
		return nil, fmt.Errorf("reading the release keys of this build: %w", err)
	}
	keys, err := ParseKeys(text)
	if err != nil {
		return nil, fmt.Errorf("reading the release keys of this build: %w", err)
	}
	return keys, nil
}

// ParseKeys reads P-256 public keys, each in a PEM block "PUBLIC KEY" as openssl writes them.
func ParseKeys(text []byte) (Keys, error) {
	var keys Keys
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("the block %q is not a public key: %w", block.Type, err)
		}
		key, ok := parsed.(*ecdsa.PublicKey)
		if !ok || key.Curve != elliptic.P256() {
			return nil, errors.New("a release key must be an ECDSA key on the curve P-256 (openssl ecparam -name prime256v1 -genkey)")
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, errors.New("no public key in PEM form was found")
	}
	return keys, nil
}

// ErrSignature is returned for a signature that no key made over these bytes.
var ErrSignature = errors.New("no release key has made this signature: the file was changed, or is from another publisher")

// Verify checks a signature over data. It returns [ErrSignature] if no key matches.
func (k Keys) Verify(data, signature []byte) error {
	digest := sha256.Sum256(data)
	for _, key := range k {
		if ecdsa.VerifyASN1(key, digest[:], signature) {
			return nil
		}
	}
	return ErrSignature
}
