package redact

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// reference masks text in the obvious way: it finds all needles, joins overlapping occurrences, and
// replaces each with a marker.
//
// It finds them in the visible text. What is invisible is part of the marker only within an occurrence.
func reference(needles []string, original string) string {
	text := visible(original)
	type span struct{ start, end int }
	var spans []span
	for p := range len(text) {
		for _, n := range needles {
			switch rest := text[p:]; {
			case strings.HasPrefix(rest, n):
				spans = append(spans, span{p, p + len(n)})
			case len(rest) >= MinLength && strings.HasPrefix(n, rest):
				spans = append(spans, span{p, len(text)})
			}
		}
	}
	slices.SortStableFunc(spans, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	starts, inner := map[int]bool{}, map[int]bool{} // of merged occurrences
	hidden := map[int]bool{}
	end := 0
	for _, s := range spans {
		if s.start >= end {
			starts[s.start] = true
		} else if end < s.end {
			inner[end] = true
		}
		for p := s.start; p < s.end; p++ {
			hidden[p] = true
			if p > s.start {
				inner[p] = true
			}
		}
		end = max(end, s.end)
	}
	var out strings.Builder
	at := 0
	skip := 0
	for i, c := range []byte(original) {
		if n := invisible([]byte(original[i:])); skip == 0 {
			skip = n
		}
		switch {
		case skip > 0:
			skip--
			if !inner[at] {
				out.WriteByte(c)
			}
			continue
		case starts[at]:
			out.WriteString(Marker)
		case !hidden[at]:
			out.WriteByte(c)
		}
		at++
	}
	return out.String()
}

func (s *Set) needlesForTest() []string { return s.matcher.Load().sorted }

// mask writes text to a writer in pieces whose lengths cycle through cuts. The time stands still, so that the writer
// does not flush what it holds back.
func mask(t *testing.T, set *Set, text string, cuts []byte) (masked string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { masked = maskNow(t, set, text, cuts) })
	return masked
}

func maskNow(t *testing.T, set *Set, text string, cuts []byte) string {
	t.Helper()
	var out bytes.Buffer
	w := set.Writer(&out)
	for i := 0; len(text) > 0; i++ {
		n := len(text)
		if len(cuts) > 0 {
			n = min(n, int(cuts[i%len(cuts)])+1)
		}
		if _, err := w.Write([]byte(text[:n])); err != nil {
			t.Fatalf("Write: %v", err)
		}
		text = text[n:]
		if len(visible(string(w.held)))-incomplete(w.held) > max(0, w.set.matcher.Load().longest-1) {
			t.Fatalf("%d bytes are held back, more than the longest needle", len(w.held))
		}
	}
	if err := w.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	return out.String()
}

func TestMaskingAgreesWithReference(t *testing.T) {
	for _, tc := range []struct {
		name    string
		secrets []string
		text    string
	}{
		{"none", nil, "nothing to mask here"},
		{"one", []string{"hunter22"}, "the password is hunter22, hunter2 is not\n"},
		{"twice in a row", []string{"hunter22"}, "hunter22hunter22"},
		{"overlaps itself", []string{"abcabcabc"}, "xabcabcabcabcabcx abcabcab"},
		{"one within another", []string{"needle", "haystack-needle-haystack"}, "needle haystack-needle-haystack haystack-needle-hay"},
		{"chained", []string{"abcdef", "defghi", "ghijkl"}, "abcdefghijkl abcdefghi defghijkl"},
		{"common prefix", []string{"prefix-a-long-one", "prefix-a", "prefix"}, "prefix-a-long-on prefix-a-long-one prefix prefi"},
		{"a run", []string{"aaaaaa"}, strings.Repeat("a", 40) + "b" + strings.Repeat("a", 5)},
		{"cut off at the end", []string{"0123456789"}, "01234567 012345"},
		{"cut off too early", []string{"0123456789"}, "012345678 01234"},
		{"lines", []string{"abc\ndefghij\nkl\n"}, "abc\ndefghij\nkl\n abc\n defghij\nabc\ndefghij\nkx"},
		{"binary", []string{"\x00\xff\x00\xff\x00\xff"}, "\x00\xff\x00\xff\x00\xff\x00\x00\xff"},
		{"long window", []string{strings.Repeat("0123456789", 8)}, strings.Repeat("0123456789", 25)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var secrets []Secret
			for _, s := range tc.secrets {
				secrets = append(secrets, Secret{Value: s})
			}
			set := New(secrets...)
			want := reference(set.needlesForTest(), tc.text)
			if got := set.String(tc.text); got != want {
				t.Errorf("String:\n got %q\nwant %q", got, want)
			}
			if got := set.Has([]byte(tc.text)); got != (want != tc.text) {
				t.Errorf("Has: %t, want %t", got, !got)
			}
			for size := range min(len(tc.text), 40) {
				if got := mask(t, set, tc.text, []byte{byte(size)}); got != want {
					t.Errorf("in pieces of %d:\n got %q\nwant %q", size+1, got, want)
				}
			}
		})
	}
}

func FuzzMaskingAgreesWithReference(f *testing.F) {
	f.Add("hunter22", "aaaaaa", "abcabcabc", "x hunter22hunter22 aaaaaaaa abcabcabcabc", []byte{0, 3, 7})
	f.Add("line one\nb\nline three\n", "line one", "e\nb\nli", "line one\nb\nline three\nline one\nb\n", []byte{5})
	f.Add("0123456789abcdef0123456789abcdef0123456789", "9abcdef012", "f01234", "0123456789abcdef0123456789abcdef012345678", []byte{1, 30})
	f.Add("MDEyMzQ1Njc4OQ", "0123456789", "", "MDEyMzQ1Njc4OQ==", []byte{})
	f.Fuzz(func(t *testing.T, a, b, c, text string, cuts []byte) {
		if len(a)+len(b)+len(c) > 300 || len(text) > 2000 {
			t.Skip("too slow for the reference")
		}
		set := New([]Secret{{Value: a}, {Value: b}, {Value: c}}...)
		want := reference(set.needlesForTest(), text)
		if got := set.String(text); got != want {
			t.Fatalf("String(%q) =\n     %q\nwant %q", text, got, want)
		}
		if want != text && !set.Has([]byte(text)) {
			t.Fatalf("Has(%q) = false", text)
		}
		if got := mask(t, set, text, cuts); got != want {
			t.Fatalf("cuts %v of %q:\n got %q\nwant %q", cuts, text, got, want)
		}
		for _, s := range []string{a, b, c} {
			// A secret that shares bytes with the marker can appear where the marker is.
			if len(strings.TrimSpace(s)) >= MinLength && !strings.ContainsAny(s, Marker) && strings.Contains(set.String(text), s) {
				t.Fatalf("%q is still in %q", s, set.String(text))
			}
		}
	})
}
