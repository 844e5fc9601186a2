package oidc

import (
	"reflect"
	"regexp"
	"strings"
	"testing"
)

func TestParsePath(t *testing.T) {
	for text, want := range map[string]claimPath{
		"sub":                      {"sub"},
		"a.b.c":                    {"a", "b", "c"},
		`"kubernetes.io".pod.name`: {"kubernetes.io", "pod", "name"},
		`a."b.c"`:                  {"a", "b.c"},
		`"https://x.example/y"`:    {"https://x.example/y"},
		"https://x/y":              {"https://x/y"},
		"":                         nil,
		".":                        nil,
		"a.":                       nil,
		".a":                       nil,
		"a..b":                     nil,
		`"a`:                       nil,
		`"a"b`:                     nil,
		`a"b"`:                     nil,
		`""`:                       nil,
		`a.""`:                     nil,
	} {
		got, err := parsePath(text)
		if !reflect.DeepEqual(got, want) && (want != nil || err == nil) || (err != nil) != (want == nil) {
			t.Errorf("parsePath(%q) = %q, %v; want %q", text, got, err, want)
		}
	}
}

func TestClaimValues(t *testing.T) {
	claims, err := parseClaims([]byte(`{"s": "x", "n": 12345678901234567890, "f": 1.50, "yes": true, "no": false, "null": null,
		"list": ["a", 7, true, null, {"x": "y"}, ["deep"]], "o": {"p.q": {"r": "nested"}, "s": ["l"]}, "o.s": "flat"}`))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string][]string{
		"s": {"x"}, "n": {"12345678901234567890"}, "f": {"1.50"}, "yes": {"true"}, "no": {"false"},
		"null": nil, "absent": nil, "o": nil, "list": {"a", "7", "true"},
		`o."p.q".r`: {"nested"}, "o.s": {"l"}, `"o.s"`: {"flat"}, "o.p": nil, "s.x": nil, "list.x": nil, "o.p.q.r": nil,
	} {
		p, err := parsePath(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.values(claims); !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
	for _, bad := range []string{"", "null", "[]", `"x"`, "1", `{"a":1} {}`, `{"a":1}x`, "{"} {
		if claims, err := parseClaims([]byte(bad)); err == nil {
			t.Errorf("the claims %s are %v", bad, claims)
		}
	}
}

func TestMatch(t *testing.T) {
	for _, tt := range []struct {
		pattern, text string
		want          bool
	}{
		{"", "", true},
		{"", "a", false},
		{"a", "", false},
		{"abc", "abc", true},
		{"abc", "ABC", false},
		{"abc", "xabc", false},
		{"abc", "abcx", false},
		{"*", "", true},
		{"*", "anything at all\n", true},
		{"repo:acme/*", "repo:acme/x:ref:refs/heads/main", true},
		{"repo:acme/*", "repo:acmex/x", false},
		{"repo:acme/*:main", "repo:acme/x:main", true},
		{"repo:acme/*:main", "repo:acme/x:mainx", false},
		{"a*b*c", "abbbc", true},
		{"a*b*c", "acb", false},
		{"a?c", "abc", true},
		{"a?c", "ac", true},
		{"a?c", "abbc", false},
		{"??", "", true},
		{"??", "ab", true},
		{"??", "abc", false},
		{"?*?", "", true},
		{"é?", "éü", true},
		{"a.c", "a.c", true},
		{"a.c", "abc", false},
		{"[a-c]", "b", false},
		{"[a-c]", "[a-c]", true},
		{`\*`, "*", false},
	} {
		if got := match(tt.pattern, tt.text, false); got != tt.want {
			t.Errorf("match(%q, %q) = %v, want %v", tt.pattern, tt.text, got, tt.want)
		}
	}
	for text, want := range map[string]bool{"a.c": true, "abc": true, "ac": false, "abbc": false} {
		if got := match("a.c", text, true); got != want {
			t.Errorf("match(a.c, %q) with dots for any character = %v, want %v", text, got, want)
		}
	}
}

// TestMatchTakesBoundedTime uses patterns for which a backtracking matcher would not finish.
func TestMatchTakesBoundedTime(t *testing.T) {
	if match(strings.Repeat("*?", maxPattern/2-1)+"b", strings.Repeat("a", maxToken), false) {
		t.Error("matched")
	}
}

func FuzzMatch(f *testing.F) {
	for _, seed := range []string{"a*b?c.", "**", "??", "repo:*:ref", "\xff?", "é*"} {
		f.Add(seed, "aXbYc.", true)
		f.Add(seed, "repo:x:ref", false)
	}
	f.Fuzz(func(t *testing.T, pattern, text string, anyDot bool) {
		if len(pattern) > 40 || len(text) > 200 {
			return
		}
		var re strings.Builder
		re.WriteString(`(?s)\A`)
		for _, r := range pattern {
			switch {
			case r == '*':
				re.WriteString(".*")
			case r == '?':
				re.WriteString(".?")
			case r == '.' && anyDot:
				re.WriteString(".")
			default:
				re.WriteString(regexp.QuoteMeta(string(r)))
			}
		}
		re.WriteString(`\z`)
		// Both matchers treat invalid UTF-8 as replacement characters.
		text = strings.ToValidUTF8(text, "\uFFFD")
		if want := regexp.MustCompile(re.String()).MatchString(text); match(pattern, text, anyDot) != want {
			t.Errorf("match(%q, %q, %v) = %v, but %s disagrees", pattern, text, anyDot, !want, re.String())
		}
	})
}
