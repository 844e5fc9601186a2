package stack

import (
	"encoding/json"
	"net/url"

	console "workflowagent/internal/server/console/changes"
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/stacks/changes"
	"workflowagent/internal/server/store"
)

func urlQuery(text string) string { return url.QueryEscape(text) }

func resourcePath(st store.Stack) func(urn string) string {
	return func(urn string) string { return page.StackPath(st, "resource") + "?urn=" + urlQuery(urn) }
}

// tabs of a stack: the last segment of their paths, and their texts.
var tabs = []view.Part{
	{Text: "Overview"},
	{Name: "updates", Text: "Activity"},
	{Name: "resources", Text: "Resources"},
	{Name: "deployments", Text: "Deployments"},
	{Name: "git", Text: "Git"},
	{Name: "drift", Text: "Drift"},
	{Name: "settings", Text: "Settings"},
}

// Page returns a page about a stack with the path to it, its tabs and its live topics. tab is the
// last segment of the path of the current tab.
func Page(st store.Stack, tab string) view.Page {
	p := view.Page{
		Title: st.Project + "/" + st.Name, Section: "stacks",
		Crumbs: page.StackCrumbs(st),
		Live:   []view.Topic{{Channel: deployments.Topic, About: deployments.About(st, "")}, {Channel: stacks.Topic, About: st.OrgID + "/" + st.ID}},
	}
	p.Tabs = view.Tabs(tabs, tab, func(name ...string) string { return page.StackPath(st, name...) })
	return p
}

func nameOf(urn string) string {
	_, name := changes.Parts(urn)
	return name
}

func showJSON(raw json.RawMessage) string {
	if len(raw) == 0 {
		return "none"
	}
	return valueText(raw)
}

// totalsOf returns the counts of an update's operations in the form of the CLI.
func totalsOf(counts string) string {
	var m map[string]int64
	if json.Unmarshal([]byte(counts), &m) != nil {
		return ""
	}
	short, _ := console.Brief(m)
	return short
}
