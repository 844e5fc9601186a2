package signin

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"workflowagent/internal/server/fault"
)

// Secrets encrypts and decrypts. [keyring.Ring] implements it.
type Secrets interface {
	Encrypt(ctx context.Context, name string, plaintext []byte) ([]byte, error)
	Decrypt(ctx context.Context, name string, ciphertext []byte) ([]byte, error)
}

// Box seals what a browser must return unchanged, for one purpose. Every server that shares the
// database can open it.
type Box struct {
	Secrets Secrets
	// Purpose tells boxes apart: a text for one purpose does not open another box.
	Purpose string
}

// errSealed is the error of every text that a box does not open.
var errSealed = errors.New("the text was not sealed by this server for this purpose, or has expired")

type sealed struct {
	Until time.Time       `json:"until"`
	Value json.RawMessage `json:"value"`
}

// Seal returns a text from which only [Box.Open] returns the value, until it expires.
func (b Box) Seal(ctx context.Context, value any, until time.Time) (string, error) {
	raw, err := json.Marshal(value)
	if err == nil {
		raw, err = json.Marshal(sealed{Until: until, Value: raw})
	}
	if err != nil {
		return "", fmt.Errorf("encoding the state of a sign-in: %w", err)
	}
	text, err := b.Secrets.Encrypt(ctx, "sign-in/"+b.Purpose, raw)
	return base64.RawURLEncoding.EncodeToString(text), fault.While(err, "sealing the state of a sign-in")
}

// Open decodes the value of a sealed text, which is untrusted.
func (b Box) Open(ctx context.Context, text string, value any) error {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return errSealed
	}
	if raw, err = b.Secrets.Decrypt(ctx, "sign-in/"+b.Purpose, raw); err != nil {
		return errSealed
	}
	var s sealed
	if err := json.Unmarshal(raw, &s); err != nil || time.Now().After(s.Until) {
		return errSealed
	}
	return json.Unmarshal(s.Value, value)
}
