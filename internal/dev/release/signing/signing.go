// Package signing signs releases, which package release verifies.
package signing

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// ParsePrivateKey parses a P-256 private key in PEM form, as PKCS #8 or SEC 1. Its errors contain
// no part of the key.
func ParsePrivateKey(text []byte) (*ecdsa.PrivateKey, error) {
	const want = "the release key must be a PEM file with a private ECDSA key on the curve P-256 (openssl ecparam -name prime256v1 -genkey -noout)"
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return nil, errors.New(want)
		}
		key, err := x509.ParseECPrivateKey(block.Bytes)
		if err != nil {
			parsed, _ := x509.ParsePKCS8PrivateKey(block.Bytes)
			key, _ = parsed.(*ecdsa.PrivateKey)
		}
		switch {
		case key != nil && key.Curve == elliptic.P256():
			return key, nil
		case block.Type != "EC PARAMETERS": // openssl puts these before the key
			return nil, errors.New(want)
		}
	}
}

// Sign returns a signature over data for release.Keys.Verify or openssl dgst -sha256 -verify.
func Sign(key *ecdsa.PrivateKey, data []byte) ([]byte, error) {
	digest := sha256.Sum256(data)
	signature, err := ecdsa.SignASN1(rand.Reader, key, digest[:])
	if err != nil {
		return nil, fmt.Errorf("signing: %w", err)
	}
	return signature, nil
}

// PublicPEM returns the public key in the form that release.ParseKeys reads.
func PublicPEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return nil, fmt.Errorf("writing the public key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}
