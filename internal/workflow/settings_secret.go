package workflow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// errPlainSecret is returned instead of the encoding of a secret that is not encrypted.
var errPlainSecret = errors.New("a secret that is not encrypted cannot be encoded")

// Secret is a value in the settings that can be secret. It is decoded from a string (not secret),
// {"secret": …}, {"ciphertext": …} with base64, or {"isSecret": …, "value": …}. It is encoded as a
// string or a ciphertext. Encoding a secret that is not encrypted fails.
type Secret struct {
	value      string
	ciphertext []byte
	secret     bool
	wasPlain   bool // decoded from a bare string
}

// PlainValue returns a value that is not a secret.
func PlainValue(v string) Secret { return Secret{value: v} }

// SecretValue returns a secret that is not encrypted yet.
func SecretValue(v string) Secret { return Secret{value: v, secret: true} }

// EncryptedValue returns an encrypted secret.
func EncryptedValue(ciphertext []byte) Secret { return Secret{ciphertext: ciphertext, secret: true} }

// IsSecret reports whether the value must never be shown.
func (s Secret) IsSecret() bool { return s.secret }

// Ciphertext returns the encrypted value, or nil if the value is not encrypted.
func (s Secret) Ciphertext() []byte { return s.ciphertext }

// Value returns the plain value, and reports whether it is known.
func (s Secret) Value() (string, bool) { return s.value, s.ciphertext == nil }

// MakeSecret marks the value as secret.
func (s *Secret) MakeSecret() { s.secret = true }

func (s *Secret) makePlain() { s.secret = false }

// String returns the value, or a placeholder for a secret.
func (s Secret) String() string {
	if s.secret {
		return "[REDACTED]"
	}
	return s.value
}

// GoString returns what String returns.
func (s Secret) GoString() string { return s.String() }

// MarshalJSON encodes s as a string or {"ciphertext": …}.
func (s Secret) MarshalJSON() ([]byte, error) {
	switch {
	case !s.secret:
		return json.Marshal(s.value)
	case s.ciphertext != nil:
		return json.Marshal(map[string][]byte{"ciphertext": s.ciphertext})
	default:
		return nil, errPlainSecret
	}
}

// UnmarshalJSON decodes every wire form. An object is secret by default. null leaves s unset.
func (s *Secret) UnmarshalJSON(data []byte) error {
	data = bytes.TrimSpace(data)
	if bytes.Equal(data, []byte("null")) {
		*s = Secret{}
		return nil
	}
	if len(data) > 0 && data[0] == '"' {
		var v string
		if err := json.Unmarshal(data, &v); err != nil {
			return err
		}
		*s = Secret{value: v, wasPlain: true}
		return nil
	}
	var o struct {
		Secret     *string `json:"secret"`
		Ciphertext []byte  `json:"ciphertext"`
		IsSecret   *bool   `json:"isSecret"`
		Value      *string `json:"value"`
	}
	if len(data) == 0 || data[0] != '{' || json.Unmarshal(data, &o) != nil {
		// The decoder's error could quote the secret.
		return errors.New(`a value must be a string, {"secret": "…"} or {"ciphertext": "…base64…"}`)
	}
	switch {
	case len(o.Ciphertext) > 0:
		*s = EncryptedValue(o.Ciphertext)
	case o.Secret != nil:
		*s = SecretValue(*o.Secret)
	case o.Value != nil && o.IsSecret != nil && !*o.IsSecret:
		*s = PlainValue(*o.Value)
	case o.Value != nil:
		*s = SecretValue(*o.Value)
	default:
		return errors.New(`an object given as a value needs a "secret" or a "ciphertext"`)
	}
	return nil
}

// ImageSettings select a container image. They are encoded as a string, or as an object if
// credentials are set.
type ImageSettings struct {
	Reference   string
	Credentials *ImageCredentialSettings
	// IsDefault selects the server's default image and overrides Reference.
	IsDefault bool
}

// ImageCredentialSettings are the credentials for an image's registry.
type ImageCredentialSettings struct {
	Username string  `json:"username,omitempty"`
	Password *Secret `json:"password,omitempty"`
}

type imageObject struct {
	Reference   string                   `json:"reference"`
	Credentials *ImageCredentialSettings `json:"credentials,omitempty"`
	IsDefault   bool                     `json:"isDefault,omitempty"`
}

// MarshalJSON encodes an image without credentials as a plain string, the only form that all
// clients can decode.
func (i ImageSettings) MarshalJSON() ([]byte, error) {
	if i.Credentials == nil && !i.IsDefault {
		return json.Marshal(i.Reference)
	}
	return json.Marshal(imageObject(i))
}

// UnmarshalJSON decodes a string or an object.
func (i *ImageSettings) UnmarshalJSON(data []byte) error {
	data = bytes.TrimSpace(data)
	if len(data) > 0 && data[0] == '"' {
		*i = ImageSettings{}
		return json.Unmarshal(data, &i.Reference)
	}
	var o imageObject
	if err := json.Unmarshal(data, &o); err != nil {
		return fmt.Errorf(`the member "executorContext.executorImage" must be a string or {"reference", "credentials"}: %w`, err)
	}
	*i = ImageSettings(o)
	return nil
}
