package page_test

import (
	"maps"
	"testing"

	"workflowagent/internal/server/console/page"
)

// TestLocate puts problems next to the fields that they are about.
func TestLocate(t *testing.T) {
	words := []page.About{{Word: "Url:", Field: "url", Label: "The URL"}, {Word: "lifetime", Field: "minutes"}}
	for problem, want := range map[string]page.Wrong{
		"":                       nil,
		"Url: is required.":      {"url": "The URL is required."},
		"The lifetime is wrong.": {"minutes": "The lifetime is wrong."},
		"Try again.":             {"": "Try again."},
	} {
		if got := page.Locate(problem, words...); !maps.Equal(got, want) {
			t.Errorf("%q: %v, want %v", problem, got, want)
		}
	}
}
