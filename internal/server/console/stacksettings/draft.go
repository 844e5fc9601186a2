package stacksettings

import (
	"encoding/json"
	"strconv"
	"strings"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/workflow"
)

// draft is a change of the settings that is not stored yet.
type draft struct {
	// Before is nil without settings.
	Before, After *workflow.Settings
	Version       int64 // of Before
	// Patch leads from Before to After. Its secrets are encrypted, as those of Pending are.
	Patch   string
	Pending pending
	Changes []fieldChange
	// Triggers are those of the form, which are not settings without a repository.
	Triggers *workflow.Triggers
	// Problems are what is wrong, by the members of the settings; "" is about all.
	Problems map[string]string
	// Wanted is a text that names no environment, and Found are the names of those that match it.
	Wanted string
	Found  []string
	// Review reports whether the visitor wants to save, and Stale whether others have stored settings in the meantime.
	Review, Stale bool
}

// pending are the parts of a draft that the fields of a form do not contain: variables and secrets, from the last time
// that the form was sent.
type pending struct {
	Variables map[string]any `json:"variables,omitempty"` // null for those to remove
	Auth      map[string]any `json:"auth,omitempty"`
}

func (p pending) text() string {
	out, err := json.Marshal(p)
	if err != nil {
		return ""
	}
	return string(out)
}

// wrong adds a problem of a member, unless there is one.
func (d *draft) wrong(member, text string) {
	if d.Problems == nil {
		d.Problems = map[string]string{}
	}
	if d.Problems[member] == "" {
		d.Problems[member] = text
	}
}

// begin returns a draft without changes.
func (p *pages) begin(v *page.Visit) (d draft, source string, warnings []string, err error) {
	stored, err := p.stored(v)
	if err != nil {
		return d, "", nil, err
	}
	d.After = &workflow.Settings{}
	if stored != nil {
		d.Before, d.After, d.Version = &stored.Settings, &stored.Settings, stored.Version
		source, warnings = stored.Source, stored.Warnings
	}
	d.Stale = v.Form("version") != "" && v.Form("version") != strconv.FormatInt(d.Version, 10)
	if err := json.Unmarshal([]byte(v.Form("pending")), &d.Pending); err != nil {
		d.Pending = pending{}
	}
	return d, source, warnings, nil
}

// base returns the stored settings, or empty ones.
func (d *draft) base() *workflow.Settings {
	if d.Before == nil {
		return &workflow.Settings{}
	}
	return d.Before
}

// apply sets what the draft leads to.
func (d *draft) apply(patch []byte) {
	after, err := workflow.MergeSettings(d.Before, patch)
	if err != nil {
		d.wrong("", "The settings are not valid: "+err.Error()+".")
		return
	}
	d.After, d.Patch = after, string(patch)
	if err := after.Validate(); err != nil {
		d.invalid(err)
	}
}

// needs are the fields of members that have several, and what is missing if one of them is.
var needs = map[string]struct{ field, text string }{
	"operationContext.oidc.aws":   {"operationContext.oidc.aws.roleArn", "AWS needs the role ARN and the session name."},
	"operationContext.oidc.azure": {"operationContext.oidc.azure.clientId", "Azure needs the client, the tenant and the subscription."},
	"operationContext.oidc.gcp":   {"operationContext.oidc.gcp.projectId", "Google Cloud needs the project, the pool, the provider and the account."},
}

// invalid adds a problem that the settings have, at the field that it is about.
func (d *draft) invalid(err error) {
	text := err.Error()
	member, rest, _ := strings.Cut(text, " ")
	if n, ok := needs[member]; ok {
		d.wrong(n.field, n.text)
		return
	}
	if _, known := fields[strings.TrimSuffix(member, ":")]; known {
		d.wrong(strings.TrimSuffix(member, ":"), page.Sentence(fault.Invalid("%s", rest)))
		return
	}
	d.wrong("", "The settings are not valid: "+text+".")
}

// compare lists the changes.
func (p *pages) compare(v *page.Visit, d *draft) error {
	list, _, err := p.visiblePools(v, d.base().AgentPoolID)
	if err == nil {
		d.Changes, err = changedFields(d.Before, d.After, func(id string) string { return poolName(list, id, id) })
	}
	return err
}

// change returns the change of a member; nil without one.
func (d *draft) change(member string) *fieldChange {
	for i := range d.Changes {
		if d.Changes[i].Member == member {
			return &d.Changes[i]
		}
	}
	return nil
}

// mark returns whether a member has changed, and its stored value in words.
func (d *draft) mark(member string) (changed bool, was string) {
	c := d.change(member)
	if c == nil {
		return false, ""
	}
	if !c.Had {
		return true, ""
	}
	return true, c.Before
}

// input returns the field of a member.
func (d *draft) input(member, name, value string) view.Input {
	i := view.Input{Label: fieldOf(member).label, Name: name, Value: value, Problem: d.Problems[member], Mono: true}
	i.Changed, i.Was = d.mark(member)
	if strings.Contains(i.Was, "\n") { // the review shows it
		i.Was = ""
	}
	return i
}

// lines returns the field of a member with one value per line.
func (d *draft) lines(member, name, value string, rows int, hint string) view.Input {
	i := d.input(member, name, value)
	i.Rows, i.Hint = rows, hint
	return i
}

// bar is the bar that leads to the review.
func (d *draft) bar(form, discard string) view.Pending {
	out := view.Pending{Form: form, Discard: discard, Wrong: len(d.Problems)}
	for _, c := range d.Changes {
		out.Fields = append(out.Fields, c.Field)
	}
	return out
}
