package settings

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

func TestSecretHides(t *testing.T) {
	const plain = "s3cr3t-value"
	type public struct{ Token Secret }
	type private struct {
		token  Secret
		tokens []Secret
	}
	s := NewSecret(plain)
	values := []any{
		s, &s,
		[]Secret{s},
		map[string]Secret{"a": s},
		public{s},
		&public{s},
		private{s, []Secret{s}},
		&private{s, nil}, fmt.Errorf("failed: %v", s),
		struct{ any }{s},
	}
	for _, v := range values {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%10.3s", "%T"} {
			if text := fmt.Sprintf(verb, v); strings.Contains(text, plain) || strings.Contains(strings.ToLower(text), fmt.Sprintf("%x", plain)) {
				t.Errorf("%s of %T prints %s", verb, v, text)
			}
		}
	}
	if text := fmt.Sprint(s, " ", []Secret{s}); text != "[REDACTED] [[REDACTED]]" {
		t.Errorf("prints %s", text)
	}
	encoded, err := json.Marshal(public{s})
	if err != nil || string(encoded) != `{"Token":"[REDACTED]"}` {
		t.Errorf("JSON: %s, %v", encoded, err)
	}
	document, err := yaml.Marshal(public{s})
	if err != nil || strings.Contains(string(document), plain) || !strings.Contains(string(document), redacted) {
		t.Errorf("YAML: %s, %v", document, err)
	}
	if s.Reveal() != plain || s.IsZero() || !s.Equal(NewSecret(plain)) || s.Equal(NewSecret("other")) || s.Equal(Secret{}) {
		t.Error("Reveal does not return the value")
	}
	if empty := NewSecret(""); !empty.IsZero() || empty.Reveal() != "" || fmt.Sprint(empty) != "" || !empty.Equal(Secret{}) {
		t.Error("the empty secret is not empty")
	}
}
