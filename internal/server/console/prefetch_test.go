package console_test

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/server/console"
)

// TestPrefetch compares the rules by which browsers fetch pages early with the routes that the server refuses to answer
// then, because that has effects.
func TestPrefetch(t *testing.T) {
	s := consoletest.New(t)
	b := s.SignIn()
	rules := strings.Trim(b.Get("/acme").Header.Get("Speculation-Rules"), `"`)
	p := b.Get(rules)
	if p.Status != http.StatusOK || p.Header.Get("Content-Type") != "application/speculationrules+json" {
		t.Fatalf("the rules at %q: status %d, %v", rules, p.Status, p.Header)
	}
	var parsed struct {
		Prefetch []struct {
			Where struct {
				And []struct {
					Not struct {
						Href any `json:"href_matches"`
					}
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(p.Body), &parsed); err != nil {
		t.Fatal(err)
	}
	globs, ok := parsed.Prefetch[0].Where.And[1].Not.Href.([]any)
	if !ok {
		t.Fatalf("the rules are %s", p.Body)
	}
	excluded := func(path string) bool {
		return slices.ContainsFunc(globs, func(glob any) bool {
			text, _ := glob.(string)
			return regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(text), `\*`, ".*") + "$").MatchString(path)
		})
	}
	parameter := regexp.MustCompile(`\{[a-z]*\}`)
	var refused int
	for _, route := range console.New(console.Deps{}).Routes() {
		if route.Method != http.MethodGet {
			continue
		}
		path := parameter.ReplaceAllString(route.Pattern, "x")
		req := b.Request(http.MethodGet, path, nil)
		req.Header.Set("Sec-Purpose", "prefetch")
		got := b.Do(req).Status == http.StatusServiceUnavailable
		if got != excluded(path) {
			t.Errorf("%s: the server refuses: %t, the rules exclude it: %t", path, got, !got)
		}
		if got {
			refused++
		}
	}
	if refused == 0 {
		t.Error("no route is refused")
	}
	if p := s.Browser().Get("/-/login"); p.Header.Get("Speculation-Rules") != "" {
		t.Error("the sign-in has rules")
	}
}
