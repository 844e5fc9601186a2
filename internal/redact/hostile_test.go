package redact

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// One user may choose both the secrets and the text to keep the server busy.
func TestHostileSecretsAreCheapToMask(t *testing.T) {
	const size = 64 << 10
	var alike, short, lengths []string
	for i := range 1000 {
		alike = append(alike, fmt.Sprintf("%s%04d", strings.Repeat("a", 2000), i))
	}
	for i := range 50_000 {
		short = append(short, fmt.Sprintf("aaaaaa%05d", i))
	}
	for i := range 1000 {
		lengths = append(lengths, strings.Repeat("a", MinLength+i))
	}
	lengths = append(lengths, strings.Repeat("a", MinLength+1000)+"b")
	for _, tc := range []struct {
		name    string
		secrets []string
		text    string
	}{
		{"a long beginning is shared", alike, "a"},
		{"a short beginning is shared", []string{strings.Join(short, "\n")}, "aaaaaa9z"},
		{"secrets that begin with others", []string{strings.Join(lengths, "\n")}, "aaaaaaac"},
		{"one that is long", []string{strings.Repeat("a", 32<<10) + "b"}, "a"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var secrets []Secret
			for _, s := range tc.secrets {
				secrets = append(secrets, Secret{Value: s})
			}
			set := New(secrets, Options{})
			text := strings.Repeat(tc.text, size/len(tc.text))
			// It takes at most a tenth of a second.
			begin := time.Now()
			set.String(text)
			if took := time.Since(begin); took > 5*time.Second {
				t.Errorf("masking %d bytes took %v", len(text), took)
			}
		})
	}
}

func TestLongSecretsAreMaskedInPieces(t *testing.T) {
	var b strings.Builder
	for i := 0; b.Len() < 5*maxNeedle; i++ {
		fmt.Fprintf(&b, "%d.", i*i)
	}
	for _, size := range []int{maxNeedle, maxNeedle + 1, 2*maxNeedle - MinLength, 2*maxNeedle + 1, 5 * maxNeedle} {
		secret := b.String()[:size]
		set := New([]Secret{{"long", secret}}, Options{})
		if got := set.matcher.Load().longest; got > maxNeedle {
			t.Errorf("of %d bytes: %d bytes are looked for at once", size, got)
		}
		for _, cuts := range [][]byte{nil, {0}, {99, 2}} {
			if got := mask(t, set, "a "+secret+" b", cuts); got != "a [secret] b" {
				t.Errorf("of %d bytes, cuts %v: masked as %q", size, cuts, got)
			}
		}
		for end := MinLength; end < size; end += 1 + end%7 {
			if got := set.String("a " + secret[:end]); got != "a [secret]" {
				t.Fatalf("of %d bytes, cut off at %d: masked as %q", size, end, got)
			}
		}
	}
}
