package console

import (
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
)

// The lowest contrasts of WCAG 2.2, level AA, for text and for the edges of controls.
const (
	textContrast = 4.5
	edgeContrast = 3
)

var (
	token = regexp.MustCompile(`--([a-z0-9-]+):\s*light-dark\(#([0-9a-f]{6}),\s*#([0-9a-f]{6})\)`)
	use   = regexp.MustCompile(`var\(--([a-z0-9-]+)`)
	set   = regexp.MustCompile(`(?m)(?:^|[\s{;])--([a-z0-9-]+):`)
)

// colours returns the colours of tokens in the light and the dark scheme.
func colours(t *testing.T) map[string][2]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(assets, "css", "tokens.css"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][2]string{}
	for _, m := range token.FindAllStringSubmatch(string(text), -1) {
		out[m[1]] = [2]string{m[2], m[3]}
	}
	return out
}

func TestContrast(t *testing.T) {
	surfaces := []string{"bg", "side", "raise", "hover"}
	ansi := []string{"ansi-1", "ansi-2", "ansi-3", "ansi-4", "ansi-5", "ansi-6", "ansi-7"}
	rules := []struct {
		least      float64
		fore, back []string
	}{
		{textContrast, []string{"text", "dim", "accent", "ok", "bad", "warn", "run"}, surfaces},
		{textContrast, []string{"on-accent"}, []string{"accent"}},
		{textContrast, []string{"on-bad"}, []string{"bad"}},
		{textContrast, []string{"text"}, []string{"here"}},
		{textContrast, []string{"av-text"}, []string{"av-bg"}},
		{textContrast, []string{"toast-text"}, []string{"toast-bg"}},
		{textContrast, []string{"bad"}, []string{"bad-bg"}},
		{textContrast, []string{"warn"}, []string{"warn-bg"}},
		{textContrast, []string{"run"}, []string{"run-bg"}},
		{textContrast, []string{"ok"}, []string{"ok-bg"}},
		{edgeContrast, []string{"edge", "bad-mark", "warn-mark", "ok-mark", "bar"}, []string{"bg", "side", "raise"}},
		{textContrast, []string{"text"}, []string{"hit", "pick"}},
		{textContrast, ansi, []string{"bg", "hover", "hit"}},
	}
	all := colours(t)
	for _, rule := range rules {
		for _, fore := range rule.fore {
			for _, back := range rule.back {
				f, known := all[fore]
				b, backKnown := all[back]
				if !known || !backKnown {
					t.Errorf("the styles do not define --%s or --%s", fore, back)
					continue
				}
				for i, scheme := range []string{"light", "dark"} {
					if got := contrast(t, f[i], b[i]); got < rule.least {
						t.Errorf("%s: --%s on --%s: contrast %.2f, want at least %.1f", scheme, fore, back, got, rule.least)
					}
				}
			}
		}
	}
}

func TestContrastFormula(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want float64
	}{{"000000", "ffffff", 21}, {"777777", "ffffff", 4.48}, {"123456", "123456", 1}} {
		if got := contrast(t, c.a, c.b); math.Abs(got-c.want) > 0.01 {
			t.Errorf("contrast of %s and %s: %.2f, want %.2f", c.a, c.b, got, c.want)
		}
	}
}

// TestStylesUseTokens checks that only tokens.css contains opaque colours, and that every custom
// property in use is set somewhere.
func TestStylesUseTokens(t *testing.T) {
	literal := regexp.MustCompile(`#[0-9a-fA-F]{3,8}\b\s*[;,)]|\bhsla?\(|\brgba?\([^/)]*\)`)
	files, err := filepath.Glob(filepath.Join(assets, "css", "*.css"))
	if err != nil || len(files) < 2 {
		t.Fatalf("finding the styles: %v, %d files", err, len(files))
	}
	known, used := map[string]bool{}, map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range set.FindAllStringSubmatch(string(text), -1) {
			known[m[1]] = true
		}
		for _, m := range use.FindAllStringSubmatch(string(text), -1) {
			used[m[1]] = file
		}
		if found := literal.FindString(string(text)); found != "" && filepath.Base(file) != "tokens.css" {
			t.Errorf("%s contains the colour %q instead of a token", file, found)
		}
	}
	for name, file := range used {
		if !known[name] {
			t.Errorf("%s uses --%s, which no style sets", file, name)
		}
	}
}

// contrast returns the contrast ratio of two colours as WCAG defines it.
func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	la, lb := luminance(t, a), luminance(t, b)
	return (max(la, lb) + 0.05) / (min(la, lb) + 0.05)
}

func luminance(t *testing.T, colour string) float64 {
	t.Helper()
	n, err := strconv.ParseUint(colour, 16, 32)
	if err != nil {
		t.Fatal(err)
	}
	linear := func(part uint64) float64 {
		v := float64(part&0xff) / 255
		if v <= 0.04045 {
			return v / 12.92
		}
		return math.Pow((v+0.055)/1.055, 2.4)
	}
	return 0.2126*linear(n>>16) + 0.7152*linear(n>>8) + 0.0722*linear(n)
}
