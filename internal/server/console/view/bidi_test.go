package view_test

import (
	"testing"

	"workflowagent/internal/server/console/view"
)

func TestVisibleControls(t *testing.T) {
	for html, want := range map[string]string{
		"":                                "",
		"<p>plain … é</p>":                "<p>plain … é</p>",
		"<p>\u202egnp.exe":                "<p>\ufffdgnp.exe",
		"a\u202a\u2069b":                  "a\ufffd\ufffdb",
		"a\u200fb\xe2":                    "a\u200fb\xe2",
		"<a title=\"\u202ex\">\u2066</a>": "<a title=\"\u202ex\">\ufffd</a>",
		"<textarea>\u202e&lt;p>\u202e</textarea><p>\u202e</p>": "<textarea>\u202e&lt;p>\u202e</textarea><p>\ufffd</p>",
	} {
		if got := string(view.VisibleControls([]byte(html))); got != want {
			t.Errorf("%q: got %q, want %q", html, got, want)
		}
	}
}
