package signin

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/identity/keyring"
)

func TestBox(t *testing.T) {
	ring, err := keyring.Open(t.Context(), storetest.SQLite(t), bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	box, other := Box{Secrets: ring, Purpose: "a"}, Box{Secrets: ring, Purpose: "b"}
	text, err1 := box.Seal(t.Context(), "value", time.Now().Add(time.Minute))
	old, err2 := box.Seal(t.Context(), "value", time.Now().Add(-time.Second))
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	var got string
	if err := box.Open(t.Context(), text, &got); err != nil || got != "value" {
		t.Errorf("Open = %q, %v", got, err)
	}
	changed := []byte(text)
	changed[len(changed)/2] ^= 1
	for name, err := range map[string]error{
		"of another purpose": other.Open(t.Context(), text, &got),
		"expired":            box.Open(t.Context(), old, &got),
		"changed":            box.Open(t.Context(), string(changed), &got),
		"empty":              box.Open(t.Context(), "", &got),
		"no base64":          box.Open(t.Context(), "!", &got),
	} {
		if err == nil {
			t.Errorf("a text that is %s opens the box", name)
		}
	}
}
