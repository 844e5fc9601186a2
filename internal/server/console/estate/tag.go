package estate

import (
	"strings"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
	"workflowagent/internal/words"
)

// tagForm is the form that sets a tag of the selected stacks, or removes it.
type tagForm struct {
	Name, Value string
	Remove      bool
	Problem     string
	// Former are the values that Undo restores, for each stack: after "=", or "" for a stack without the tag.
	Former []string
}

func tagFormOf(v *page.Visit) tagForm {
	return tagForm{Name: strings.TrimSpace(v.Form("name")), Value: v.Form("value"), Remove: v.Form("confirmed") == "remove", Former: v.Values()["former"]}
}

// wrong says why no stack can have the tag, or returns "".
func (f tagForm) wrong() string {
	if err := stacks.CheckTag(f.Name, f.Value); err != nil {
		return page.Sentence(err)
	}
	return ""
}

// value returns the value for a stack, or nil if the tag is removed.
func (f tagForm) value(at int) *string {
	if at < len(f.Former) {
		value, exists := strings.CutPrefix(f.Former[at], "=")
		if !exists {
			return nil
		}
		return &value
	}
	if f.Remove {
		return nil
	}
	return &f.Value
}

// did says what was done with a number of stacks.
func (f tagForm) did(n int) string {
	switch {
	case len(f.Former) > 0:
		return "Restored the tag " + f.Name + " of " + words.Count(n, "stack") + "."
	case f.Remove:
		return "Removed the tag " + f.Name + " from " + words.Count(n, "stack") + "."
	default:
		return "Tagged " + words.Count(n, "stack") + ": " + f.Name + " " + f.Value + "."
	}
}

// taggable returns which of the selected stacks the visitor may tag.
func (p *pages) taggable(v *page.Visit, ids []string) ([]deployments.Target, error) {
	return p.Deployments.ForEach(v.Context(), v.Who, v.Org.ID, ids, identity.Write, func(identity.Principal, store.Stack) error { return nil })
}

// tag sets or removes the tag of each stack, and returns the form that undoes it.
func (p *pages) tag(v *page.Visit, ids []string, b *bulk) (list []deployments.Target, undo []string, err error) {
	at := map[string]int{}
	for i, id := range ids {
		at[id] = i
	}
	undo = []string{"do", tagging, "confirmed", "1", "back", b.Back, "name", b.Tag.Name}
	list, err = p.Deployments.ForEach(v.Context(), v.Who, v.Org.ID, ids, identity.Write, func(who identity.Principal, st store.Stack) error {
		was, err := p.Stacks.SetTag(v.Context(), who, st, b.Tag.Name, b.Tag.value(at[st.ID]))
		former := ""
		if was != nil {
			former = "=" + *was
		}
		undo = append(undo, "stack", st.ID, "former", former)
		return err
	})
	return list, undo, err
}
