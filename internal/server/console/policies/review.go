package policies

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strconv"
	"strings"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/policies"
)

// The values of the button with which the form of a configuration is sent. Without one, the form is reviewed.
const (
	doBack = "back" // from the review to the form
	doSave = "save" // what a review showed
)

// configForm is the id of the form of a configuration.
const configForm = "config"

// settingChange is a setting that a form would change.
type settingChange struct{ Field, Before, After string }

// keepStored remembers what the group has now, before the form replaces it.
func (m *configModel) keepStored() {
	m.storedAll, m.storedEnvironments = m.All, m.Environments
	for i := range m.Fields {
		m.Fields[i].storedLevel, m.Fields[i].storedConfig = m.Fields[i].Level, m.Fields[i].Config
	}
}

// state identifies the stored configuration, so that a review of another one is not saved.
func (m configModel) state() string {
	if m.New {
		return ""
	}
	return strconv.FormatInt(m.Enabled.ModifiedAt.UnixMicro(), 10)
}

// changes are the settings that differ from the stored ones.
func (m configModel) changes() (list []settingChange) {
	add := func(field, before, after string) {
		if before != after {
			list = append(list, settingChange{field, before, after})
		}
	}
	before := "not required"
	if !m.New {
		before = label(m.Enabled.Tag, m.Enabled.Number)
	}
	add("Version", before, m.version())
	add("Level of all policies", cmp.Or(m.storedAll, asPacked), cmp.Or(m.All, asPacked))
	add("Environments", cmp.Or(m.storedEnvironments, "none"), cmp.Or(m.Environments, "none"))
	for _, f := range m.Fields {
		add("Level of "+f.Name, cmp.Or(f.storedLevel, f.ownLevel()), cmp.Or(f.Level, f.ownLevel()))
		if compact(f.storedConfig) != compact(f.Config) {
			add("Configuration of "+f.Name, cmp.Or(f.storedConfig, "none"), cmp.Or(f.Config, "none"))
		}
	}
	return list
}

// compact returns JSON without spaces, so that only its values count.
func compact(text string) string {
	var out bytes.Buffer
	if json.Compact(&out, []byte(text)) != nil {
		return text
	}
	return out.String()
}

// pending is what the bar at the bottom says.
func (m configModel) pending() view.Pending {
	p := view.Pending{Form: configForm, Discard: m.path("groups", m.Group), Wrong: m.wrong()}
	for _, c := range m.changes() {
		p.Fields = append(p.Fields, c.Field)
	}
	return p
}

// reviewing reports whether the page shows what would be stored.
func (m configModel) reviewing() bool { return m.Review && len(m.changes()) > 0 }

// sendConfig answers to the form of a configuration: with its review, again with what is wrong, or after it was saved.
func (p *pages) sendConfig(v *page.Visit) (page.Answer, error) {
	if err := mayChange(v); err != nil {
		return page.Answer{}, err
	}
	m, err := p.readConfig(v, v.Form("version"))
	if err != nil {
		return page.Answer{}, err
	}
	config, err := m.fill(v)
	if err != nil {
		return page.Answer{}, err
	}
	do := v.Form("do")
	switch {
	case do == doBack:
		return page.Once(configPage(m)), nil
	case m.wrong() > 0:
		return page.Again(configPage(m)), nil
	}
	change := policies.Change{AddPack: &policies.PackRef{Name: m.Name, Tag: m.version(), Config: config, Environments: strings.Fields(m.Environments)}}
	again := func(_ *page.Visit, problem string) (view.Page, error) {
		m.Review = false
		m.blame(problem)
		return configPage(m), nil
	}
	if do != doSave {
		err := p.Policies.CheckChange(v.Context(), v.Org, m.Group, change)
		if problem, ok := page.Correctable(err); ok {
			shown, err := again(v, problem)
			return page.Again(shown), err
		}
		m.Review = true
		return page.Once(configPage(m)), err
	}
	if v.Form("state") != m.state() {
		shown, err := again(v, "The configuration has changed since you opened the page. Your values are still here: review them again.")
		return page.Again(shown), err
	}
	_, err = p.Policies.ChangeGroup(v.Context(), v.Org, m.Group, []policies.Change{change})
	return page.Changed(v, err, m.path("groups", m.Group), again)
}
