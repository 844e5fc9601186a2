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

// The linker sets these variables in a release build (-X workflowagent/internal/host/release.…). A
// build from source has neither and accepts no releases.
var (
	publicKeys string // public keys in PEM, encoded in base64
	home       string // URL of the directory or repository with the releases
)

// Home returns the URL from which this build gets releases, or "" if it has none.
func Home() string { return home }

// Keys are the public keys for release signatures. A signature by any one of them is valid. There
// are several keys only during a key change.
type Keys []*ecdsa.PublicKey

// ErrNoKeys is returned by a build that has no release keys, such as a build from source.
var ErrNoKeys = errors.New("this build has no release key and cannot verify a release: install a release, or build one with your own key (docs/releasing.md)")

// BuiltinKeys returns the keys that this build trusts, or [ErrNoKeys] if it has none.
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

// ParseKeys parses P-256 public keys. Each key must be in a PEM block of type "PUBLIC KEY", as
// written by openssl.
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

// ErrSignature is returned for a signature that no trusted key made for the data.
var ErrSignature = errors.New("no release key has made this signature: the file was changed, or is from another publisher")

// Verify checks a signature of data. It returns [ErrSignature] if no key matches.
func (k Keys) Verify(data, signature []byte) error {
	digest := sha256.Sum256(data)
	for _, key := range k {
		if ecdsa.VerifyASN1(key, digest[:], signature) {
			return nil
		}
	}
	return ErrSignature
}
