// Package hook verifies the deliveries of forges and reads values that several forges have in
// common. It makes no requests, and treats all values as hostile until they are verified.
package hook

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/url"
	"strings"

	"workflowagent/internal/server/vcs"
	"workflowagent/internal/workflow"
)

// Signed returns an error unless a signature is the hexadecimal HMAC-SHA256 of the body under one of
// the secrets. The signature must have the prefix. An empty secret matches nothing.
func Signed(signature, prefix string, body []byte, secrets [][]byte) error {
	digits, found := strings.CutPrefix(signature, prefix)
	given, err := hex.DecodeString(digits)
	if !found || err != nil || len(given) != sha256.Size {
		return vcs.ErrUnverified
	}
	return Any(secrets, func(secret []byte) bool { return hmac.Equal(given, MAC(secret, body)) })
}

// MAC returns the HMAC-SHA256 of parts.
func MAC(secret []byte, parts ...[]byte) []byte {
	mac := hmac.New(sha256.New, secret)
	for _, part := range parts {
		mac.Write(part)
	}
	return mac.Sum(nil)
}

// Equal returns an error unless a token is one of the secrets. It compares digests, so that its
// duration reveals neither the content nor the length of a secret.
func Equal(token string, secrets [][]byte) error {
	given := sha256.Sum256([]byte(token))
	return Any(secrets, func(secret []byte) bool {
		want := sha256.Sum256(secret)
		return subtle.ConstantTimeCompare(given[:], want[:]) == 1
	})
}

// Any returns an error unless a secret that is not empty passes a check.
func Any(secrets [][]byte, check func(secret []byte) bool) error {
	for _, secret := range secrets {
		if len(secret) > 0 && check(secret) {
			return nil
		}
	}
	return vcs.ErrUnverified
}

// Payload returns the JSON of a delivery, or with an error the body. Some forges can send the JSON as a
// member of a form, which is GitHub's default. Signatures are those of the body. The forge's list of
// deliveries shows the header of the form with the JSON itself.
func Payload(d vcs.Delivery) ([]byte, error) {
	// The kind of a header that cannot be parsed is "".
	if kind, _, _ := mime.ParseMediaType(d.Header["content-type"]); kind != "application/x-www-form-urlencoded" || json.Valid(d.Body) {
		return d.Body, nil
	}
	form, err := url.ParseQuery(string(d.Body))
	if err != nil || !form.Has("payload") {
		return d.Body, errors.New("the body is a form without the member payload: set the content type of the webhook to application/json")
	}
	return []byte(form.Get("payload")), nil
}

// Parse returns the content of a delivery whose headers contain its id and its kind.
func Parse(d vcs.Delivery, id, kind string, parse func(id, kind string, payload []byte) (vcs.Parsed, error)) (vcs.Parsed, error) {
	payload, err := Payload(d)
	parsed, wrong := parse(ID(d.Header[id], payload), d.Header[kind], payload)
	if wrong != nil {
		return vcs.Parsed{}, cmp.Or(err, wrong)
	}
	return parsed, nil
}

// Peek reads the members of a delivery that decide which other members it uses. It leaves out those of
// another type than documented, which are fatal only in a delivery that uses them. It returns an error if
// the body is not a JSON object. Then it has read nothing.
func Peek(payload []byte, into any) error {
	if trimmed := bytes.TrimLeft(payload, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '{' || !json.Valid(payload) {
		return errors.New("the body is not a JSON object")
	}
	_ = json.Unmarshal(payload, into) // it continues after members of other types
	return nil
}

// Decode reads the members that a kind of delivery uses. Of them, into must contain no others.
func Decode(payload []byte, into any) error {
	if err := Peek(payload, &struct{}{}); err != nil {
		return err
	}
	err := json.Unmarshal(payload, into)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("the member %s is not the documented JSON", wrong.Field)
	}
	if err != nil {
		return errors.New("a member is not the documented JSON")
	}
	return nil
}

// maxID limits the length of a delivery's id.
const maxID = 200

// ID returns the id of a delivery: what the forge sent, or a digest of the body.
func ID(sent string, body []byte) string {
	if sent = strings.TrimSpace(sent); sent != "" && len(sent) <= maxID && !strings.ContainsFunc(sent, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return sent
	}
	sum := sha256.Sum256(body)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Commit returns a full commit id in lower case, or "" for the null id and for anything else.
func Commit(id string) string {
	id = strings.ToLower(id)
	if (len(id) != 40 && len(id) != 64) || strings.Trim(id, "0123456789abcdef") != "" || IsNull(id) {
		return ""
	}
	return id
}

// IsNull reports whether an id is the one of zeros, which stands for a missing object.
func IsNull(id string) bool { return id != "" && strings.Trim(id, "0") == "" }

// Push returns the event of a ref that moved, with its kind. ok is false for a ref that is neither
// a branch nor a tag, or has no valid name.
func Push(repo vcs.RepoID, ref, before, after string, sender vcs.Account) (event vcs.Event, ok bool) {
	event = vcs.Event{Repo: repo, Ref: ref, Before: Commit(before), After: Commit(after), Deleted: IsNull(after), Sender: sender}
	switch {
	case workflow.CheckBranch(ref) != nil:
		return event, false
	case strings.HasPrefix(ref, "refs/heads/"):
		event.Kind = vcs.KindPush
	case strings.HasPrefix(ref, "refs/tags/"):
		event.Kind = vcs.KindTag
	default:
		return event, false
	}
	return event, true
}

// Ignore returns the content of a delivery without events.
func Ignore(id string, reason vcs.Reason, detail string) vcs.Parsed {
	if runes := []rune(strings.ToValidUTF8(detail, "")); len(runes) > maxID {
		detail = string(runes[:maxID])
	}
	return vcs.Parsed{ID: id, Ignored: vcs.Ignored{Reason: reason, Detail: detail}}
}

// Events returns the content of a delivery. Without events, it is ignored.
func Events(id string, events ...vcs.Event) vcs.Parsed {
	if len(events) == 0 {
		return Ignore(id, vcs.ReasonUnsupported, "no branch or tag")
	}
	return vcs.Parsed{ID: id, Events: events}
}

// Event returns the content of a delivery with one event. It is ignored with the detail if the event names
// no repository, or no pull request although it is about one.
func Event(id, detail string, e vcs.Event) vcs.Parsed {
	if e.Repo.ID == "" || e.Kind == vcs.KindPull && e.Pull <= 0 {
		return Ignore(id, vcs.ReasonUnsupported, detail)
	}
	return vcs.Parsed{ID: id, Events: []vcs.Event{e}}
}
