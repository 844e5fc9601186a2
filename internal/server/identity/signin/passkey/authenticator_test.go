package passkey

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"testing"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/protocol/webauthncbor"
)

// authenticator is a device with one passkey, and the browser that uses it. Tests change what it says.
type authenticator struct {
	t          *testing.T
	key        *ecdsa.PrivateKey
	credential []byte
	user       []byte // the user handle

	origin, domain string
	flags          byte
	count          uint32
	kind           string // of the client data; "" is the right one
	challenge      []byte // replaces the challenge of the question
	cross          bool   // the page is in a frame of another site
}

const (
	present, verified, attested = 1, 4, 64
)

func newAuthenticator(t *testing.T) *authenticator {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &authenticator{
		t: t, key: key, credential: []byte(rand.Text()), origin: origin, domain: "console.example.com", flags: present | verified,
	}
}

func (a *authenticator) clientData(kind string, challenge []byte) []byte {
	if a.kind != "" {
		kind = a.kind
	}
	if a.challenge != nil {
		challenge = a.challenge
	}
	data, err := json.Marshal(map[string]any{
		"type": kind, "challenge": base64.RawURLEncoding.EncodeToString(challenge), "origin": a.origin, "crossOrigin": a.cross,
	})
	if err != nil {
		a.t.Fatal(err)
	}
	return data
}

func (a *authenticator) data(flags byte) []byte {
	hash := sha256.Sum256([]byte(a.domain))
	return binary.BigEndian.AppendUint32(append(hash[:], flags), a.count)
}

func (a *authenticator) answer(response map[string]any) string {
	id := base64.RawURLEncoding.EncodeToString(a.credential)
	text, err := json.Marshal(map[string]any{"id": id, "rawId": id, "type": "public-key", "clientExtensionResults": map[string]any{}, "response": response})
	if err != nil {
		a.t.Fatal(err)
	}
	return string(text)
}

// create answers a question for a new passkey.
func (a *authenticator) create(q Question) string {
	options, ok := q.Options.(protocol.PublicKeyCredentialCreationOptions)
	if !ok {
		a.t.Fatalf("the options are %T", q.Options)
	}
	handle, ok := options.User.ID.(protocol.URLEncodedBase64)
	if !ok {
		a.t.Fatalf("the user's id is %T", options.User.ID)
	}
	a.user = handle
	point, err := a.key.PublicKey.Bytes()
	if err != nil {
		a.t.Fatal(err)
	}
	// The coordinates of an ES256 key.
	cose, err := webauthncbor.Marshal(map[int]any{1: 2, 3: -7, -1: 1, -2: point[1:33], -3: point[33:]})
	if err != nil {
		a.t.Fatal(err)
	}
	var data bytes.Buffer
	data.Write(a.data(a.flags | attested))
	data.Write(make([]byte, 16)) // the model of the device
	data.Write(binary.BigEndian.AppendUint16(nil, uint16(len(a.credential))))
	data.Write(a.credential)
	data.Write(cose)
	object, err := webauthncbor.Marshal(map[string]any{"fmt": "none", "attStmt": map[string]any{}, "authData": data.Bytes()})
	if err != nil {
		a.t.Fatal(err)
	}
	return a.answer(map[string]any{
		"clientDataJSON": base64.RawURLEncoding.EncodeToString(a.clientData("webauthn.create", options.Challenge)), "attestationObject": base64.RawURLEncoding.EncodeToString(object),
	})
}

// get answers a question for any passkey.
func (a *authenticator) get(q Question) string {
	options, ok := q.Options.(protocol.PublicKeyCredentialRequestOptions)
	if !ok {
		a.t.Fatalf("the options are %T", q.Options)
	}
	client, data := a.clientData("webauthn.get", options.Challenge), a.data(a.flags)
	hash := sha256.Sum256(client)
	sum := sha256.Sum256(append(bytes.Clone(data), hash[:]...))
	signature, err := ecdsa.SignASN1(rand.Reader, a.key, sum[:])
	if err != nil {
		a.t.Fatal(err)
	}
	return a.answer(map[string]any{
		"clientDataJSON":    base64.RawURLEncoding.EncodeToString(client),
		"authenticatorData": base64.RawURLEncoding.EncodeToString(data),
		"signature":         base64.RawURLEncoding.EncodeToString(signature),
		"userHandle":        base64.RawURLEncoding.EncodeToString(a.user),
	})
}
