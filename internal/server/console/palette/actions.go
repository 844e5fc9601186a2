package palette

import (
	"slices"
	"strings"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/search"
	"workflowagent/internal/server/stacks/estate"
	"workflowagent/internal/server/store"
)

// action is what a user can do with a stack, or one of its pages.
type action struct {
	Before, After string // around the name of the stack
	Icon, Path    string
	Query         string
	Way           string
	// Always shows the action also without its words, for the first stack.
	Always bool
	// Operate is for users who may operate the stack.
	Operate bool
	// Paused limits the action to stacks whose deployments are paused, or are not; nil means any.
	Paused *bool
	Key    string
}

var yes, no = true, false

var acts = []action{
	{Before: "Preview ", Icon: "eye", Path: "deploy", Query: "preview", Way: "dialog", Always: true, Operate: true, Key: "Ctrl Enter"},
	{Before: "Deploy ", Icon: "deploys", Path: "deploy", Way: "dialog", Always: true, Operate: true},
	{Before: "Pause ", Icon: "pause", Path: "pause", Way: "post", Always: true, Operate: true, Paused: &no},
	{Before: "Resume ", Icon: "play", Path: "resume", Way: "post", Always: true, Operate: true, Paused: &yes},
	{Before: "Update ", Icon: "deploys", Path: "deploy", Query: "update", Way: "dialog", Operate: true},
	{Before: "Refresh ", Icon: "again", Path: "deploy", Query: "refresh", Way: "dialog", Operate: true},
	{Before: "Detect drift of ", Icon: "s-drift", Path: "deploy", Query: "detect-drift", Way: "dialog", Operate: true},
	{Before: "Destroy ", After: "…", Icon: "trash", Path: "deploy", Query: "destroy", Way: "dialog", Operate: true},
	{Before: "Runs of ", Icon: "deploys", Path: "runs"},
	{Before: "Resources of ", Icon: "cube", Path: "resources"},
	{Before: "Drift of ", Icon: "s-drift", Path: "drift"},
	{Before: "Settings of ", Icon: "settings", Path: "settings"},
	{Before: "Schedules of ", Icon: "clock", Path: "settings/schedules"},
	{Before: "Permissions on ", Icon: "shield", Path: "settings/access"},
	{Before: "Options of ", Icon: "settings", Path: "settings/options"},
	{Before: "Triggers and git of ", Icon: "branch", Path: "git"},
}

const (
	actedStacks = 4 // of which actions are shown
	leastVerb   = 3 // characters of a word that begins that of an action
)

// verbs returns the words of a query that begin a word of an action, and the others.
func verbs(words []string) (found, others []string) {
	for _, word := range words {
		if len(word) >= leastVerb && slices.ContainsFunc(acts, func(a action) bool {
			return slices.ContainsFunc(strings.Fields(strings.ToLower(a.Before)), func(verb string) bool { return strings.HasPrefix(verb, word) })
		}) {
			found = append(found, word)
		} else {
			others = append(others, word)
		}
	}
	return found, others
}

// actions returns the actions whose words and stacks a query names, and reports whether it names any. Without such words, it
// returns those that the first stack always has.
func (p *palette) actions(v *page.Visit, o store.Organization, q search.Query, list []estate.Stack, empty bool) (items []item, named bool, err error) {
	if empty || q.Number > 0 {
		return nil, false, nil
	}
	words, others := verbs(q.Words)
	if len(words) > 0 {
		of, err := p.Search.Stacks(v.Context(), v.Who, o.ID, others, actedStacks)
		if err != nil {
			return nil, false, err
		}
		for _, s := range of {
			found, err := p.on(v, o, s, func(a action) bool { return q.Match(a.text(s)) && hasVerb(a, words) })
			if err != nil {
				return nil, false, err
			}
			items = append(items, found...)
		}
		if len(items) > 0 {
			// Those of the first stacks are first, but one stack does not hide the others.
			slices.SortStableFunc(items, func(a, b item) int { return strings.Compare(begins(a, words), begins(b, words)) })
			return items[:min(len(items), 2*actedStacks)], true, nil
		}
	}
	if len(list) == 0 {
		return nil, false, nil
	}
	items, err = p.on(v, o, list[0], func(a action) bool { return a.Always })
	return items, false, err
}

// hasVerb reports whether one of the words begins a word of an action.
func hasVerb(a action, words []string) bool {
	return slices.ContainsFunc(strings.Fields(strings.ToLower(a.Before)), func(verb string) bool {
		return slices.ContainsFunc(words, func(word string) bool { return strings.HasPrefix(verb, word) })
	})
}

// begins is "0" for an action whose text begins with one of the words, and otherwise "1".
func begins(i item, words []string) string {
	if slices.ContainsFunc(words, func(word string) bool { return strings.HasPrefix(strings.ToLower(i.Text), word) }) {
		return "0"
	}
	return "1"
}

func (a action) text(s estate.Stack) string { return a.Before + s.Project + "/" + s.Name + a.After }

// on returns the actions on a stack that the visitor may perform.
func (p *palette) on(v *page.Visit, o store.Organization, s estate.Stack, wanted func(a action) bool) ([]item, error) {
	who, st, err := p.Stacks.Find(v.Context(), v.Who, identity.StateRead, o.Name, s.Project, s.Name)
	if kind := fault.KindOf(err); kind == fault.KindNotFound || kind == fault.KindForbidden {
		return nil, nil // the stack was deleted or renamed meanwhile, or the visitor may no longer read it
	}
	if err != nil {
		return nil, err
	}
	var items []item
	for _, a := range acts {
		if !wanted(a) || a.Operate && !who.Can(st, identity.Operate) || a.Paused != nil && *a.Paused != s.Paused {
			continue
		}
		href := links.Path(append([]string{o.Name, s.Project, s.Name}, strings.Split(a.Path, "/")...)...)
		if a.Query != "" {
			href += "?" + query("operation", a.Query)
		}
		items = append(items, item{Group: "Actions", Text: a.text(s), Kind: "action", Icon: a.Icon, Key: a.Key, Href: href, Way: a.Way})
	}
	return items, nil
}
