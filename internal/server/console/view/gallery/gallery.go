// Package gallery shows the components of the console in all their states, on pages that only tests load. Tests compare
// them with the drawings that they were made from.
package gallery

import (
	"strconv"

	"workflowagent/internal/server/console/view"
)

// Shell is the frame around the pages.
var Shell = view.Shell{
	User: "Ada Lindqvist", Org: "acme", Member: true, Admin: true, SiteAdmin: true,
	Orgs: []view.OrgLink{{Name: "acme", Member: true}, {Name: "rival", Member: true}},
}

// Pages returns the pages by their names.
func Pages() map[string]view.Page {
	return map[string]view.Page{
		"list": {
			Title: "Components", Body: parts(),
			Bar: &view.Bar{Title: "Components", Count: "every part in every state", Actions: barActions()},
		},
		"object": {
			Title: "payments/prod", Section: "stacks", Body: rows(),
			Object: &view.Object{
				Mark: view.MarkFailed, Project: "payments", Name: "prod", Badges: badges(), Actions: objectActions(), Facts: facts(), Label: "Stack",
				Tabs: tabs("Overview", "Changes", "Resources", "Runs", "Drift", "Git", "Schedules", "Webhooks", "Settings"),
			},
		},
		"review": {
			Title: "web/prod-eu #129", Section: "deployments", Body: view.ReviewPage(review()),
			Object: &view.Object{
				Mark: view.MarkApproval, Project: "web", Name: "prod-eu", Number: "#129", Href: "#", Badges: view.Badge("warn", view.MarkWord(view.MarkApproval)), Actions: reviewActions(), Facts: reviewFacts(), Label: "Page",
				Tabs: []view.Tab{{Text: "Review", Href: "#", Current: true}, {Text: "Log", Href: "#"}, {Text: "Settings used", Href: "#"}},
			},
		},
		"form": {Title: "Settings", Section: "settings", Body: form(), Bar: &view.Bar{Title: "Settings", Count: "acme"}},
		"gate": {Title: "Sign in", Layout: view.Gate, Body: gate()},
	}
}

// tabs returns tabs, of which the last is the current one, and each has a count.
func tabs(texts ...string) []view.Tab {
	var out []view.Tab
	for i, text := range texts {
		out = append(out, view.Tab{Text: text, Href: "#", Count: strconv.Itoa(i), Current: i == len(texts)-1})
	}
	return out
}

// review returns a preview that waits for approval.
func review() view.Review {
	return view.Review{
		Plan: view.Plan{Delete: 1, Replace: 2, Update: 6, Create: 3, Same: 199}, Unsafe: unsafeChanges(), Safe: safeChanges(), SideBySide: "#",
		Decision: view.Decision{
			Action: "/", Needed: 1,
			Rules: "Members of web-owners can approve. Chen Wei cannot approve an own update. The state has not changed since the preview.",
		},
		Cards: reviewCards(),
	}
}

// marks are the marks of all states.
var marks = []string{
	view.MarkFailed, view.MarkOK, view.MarkRunning, view.MarkDrift, view.MarkWarn, view.MarkQueued, view.MarkNever, view.MarkCancelled, view.MarkPaused, view.MarkSkipped,
	view.MarkApproval,
}
