package policies

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/policies"
	"workflowagent/internal/server/store"
	"workflowagent/internal/words"
)

// policyField is the part of the form about one policy.
type policyField struct {
	policies.Policy
	Level, Config               string
	levelProblem, configProblem string
	storedLevel, storedConfig   string
}

// asPacked is the choice of the levels of the pack's code.
const asPacked = "as the pack says"

// ownLevel is the choice of no level for the policy.
func (f policyField) ownLevel() string {
	return "as for all policies; the pack says " + f.EnforcementLevel
}

// takes reports whether the policy has a configuration besides its level.
func (f policyField) takes() bool {
	if f.Config != "" {
		return true
	}
	return f.ConfigSchema != nil && len(f.properties()) > 0
}

// properties are the names of what can be configured.
func (f policyField) properties() []string {
	if f.ConfigSchema == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(f.ConfigSchema.Properties)), func(name string) bool { return name == policies.LevelKey })
}

// hint names the properties with their types.
func (f policyField) hint() string {
	const most = 20
	var list []string
	for _, name := range f.properties() {
		var schema struct {
			Type any `json:"type"`
		}
		text := name
		if json.Unmarshal(f.ConfigSchema.Properties[name], &schema) == nil && schema.Type != nil {
			text += fmt.Sprintf(" (%v)", schema.Type)
		}
		if slices.Contains(f.ConfigSchema.Required, name) {
			text += ", required"
		}
		list = append(list, text)
	}
	if len(list) == 0 {
		return ""
	}
	if len(list) > most {
		list = append(list[:most], words.Number(len(list)-most)+" others")
	}
	return "JSON: " + strings.Join(list, "; ") + "."
}

type configModel struct {
	place
	Group, Mode string
	policies.PackHistory
	Enabled store.EnabledPack
	All     string // level of all policies, "" for their own
	Fields  []policyField
	// Environments are those of the pack, one per line.
	Environments string

	New     bool // the group does not require the pack yet
	Review  bool // the page shows what would be stored
	Problem string

	storedAll, storedEnvironments string
}

func (m configModel) version() string { return label(m.Version.Tag, m.Version.Number) }

// wrong is the number of fields to correct.
func (m configModel) wrong() int {
	n := 0
	for _, f := range m.Fields {
		if f.levelProblem != "" || f.configProblem != "" {
			n++
		}
	}
	return n
}

// versions are those that the group can require.
func (m configModel) versions() []view.Option {
	var list []view.Option
	for _, r := range m.Releases {
		text := label(r.Tag, r.Number)
		if r.VersionID == m.Enabled.VersionID {
			text += " (required now)"
		}
		list = append(list, view.Option{Value: label(r.Tag, r.Number), Text: text})
	}
	return list
}

// levels are the choices of a level. The first one keeps the level own.
func levels(own string) []view.Option {
	return []view.Option{
		{Text: own},
		{Value: policies.Mandatory, Text: "mandatory: stops the update"},
		{Value: policies.Advisory, Text: "advisory: warns"},
		{Value: policies.Remediate, Text: "remediate: changes the resource, or stops"},
		{Value: policies.Disabled, Text: "disabled"},
	}
}

func (p *pages) config(v *page.Visit) (view.Page, error) {
	m, err := p.readConfig(v, v.Query("version"))
	if err != nil {
		return view.Page{}, err
	}
	return configPage(m), nil
}

func configPage(m configModel) view.Page {
	return view.Page{
		Title: m.Name + " in " + m.Group + " · " + m.Org, Section: section,
		Object: &view.Object{Icon: "shield", Project: m.Group, Name: m.Name, Number: m.version(), Facts: configFacts(m), Actions: configActions(m)},
		Body:   configBody(m),
	}
}

// readConfig reads the configuration of a pack in a group, for a version of the pack, or for the required one if version
// is "".
func (p *pages) readConfig(v *page.Visit, version string) (configModel, error) {
	m := configModel{place: at(v)}
	g, err := p.Policies.GroupDetail(v.Context(), v.Org, v.Param("group"))
	if err != nil {
		return m, err
	}
	m.Group, m.Mode = g.PolicyGroup.Name, g.Mode
	i := slices.IndexFunc(g.Packs, func(e store.EnabledPack) bool { return e.PackName == v.Param("pack") })
	m.Enabled.PackName = v.Param("pack")
	if m.New = i < 0; !m.New {
		m.Enabled = g.Packs[i]
	}
	if version == "" && !m.New {
		version = label(m.Enabled.Tag, m.Enabled.Number)
	}
	if m.PackHistory, err = p.Policies.PackHistory(v.Context(), v.Org, m.Enabled.PackName, version, releases); err != nil {
		return m, err
	}
	config, err := policies.ConfigOf(m.Enabled)
	if err != nil {
		return m, err
	}
	m.Environments = strings.Join(m.Enabled.Environments, "\n")
	m.All, _ = divide(config[policies.EveryPolicy])
	for _, each := range m.Policies {
		f := policyField{Policy: each}
		f.Level, f.Config = divide(config[each.Name])
		m.Fields = append(m.Fields, f)
	}
	m.keepStored()
	return m, nil
}

// divide returns the level in the configuration of a policy, and the rest as indented JSON, or "".
func divide(raw json.RawMessage) (level, rest string) {
	members := map[string]json.RawMessage{}
	if len(raw) == 0 || json.Unmarshal(raw, &members) != nil {
		return "", ""
	}
	if json.Unmarshal(members[policies.LevelKey], &level) == nil {
		delete(members, policies.LevelKey)
	}
	if len(members) == 0 {
		return level, ""
	}
	text, err := json.MarshalIndent(members, "", "  ")
	if err != nil {
		return level, string(raw)
	}
	return level, string(text)
}

// fill puts what was sent into the form, with what is wrong, and returns it as a configuration.
func (m *configModel) fill(v *page.Visit) (map[string]json.RawMessage, error) {
	config, err := policies.ConfigOf(m.Enabled)
	if err != nil {
		return nil, err
	}
	every := map[string]json.RawMessage{}
	if raw := config[policies.EveryPolicy]; len(raw) > 0 {
		if err := json.Unmarshal(raw, &every); err != nil {
			return nil, fmt.Errorf("reading the configuration of a policy pack: %w", err)
		}
	}
	config = map[string]json.RawMessage{}
	m.All, m.Environments = v.Form("level-all"), strings.Join(strings.Fields(strings.ReplaceAll(v.Form("environments"), ",", " ")), "\n")
	if err := put(config, policies.EveryPolicy, every, m.All); err != nil {
		return nil, err
	}
	for i := range m.Fields {
		f := &m.Fields[i]
		f.Level, f.Config = v.Form("level-"+strconv.Itoa(i)), strings.TrimSpace(v.Form("config-"+strconv.Itoa(i)))
		members, problem := f.read()
		if f.configProblem = problem; problem != "" {
			continue
		}
		if err := put(config, f.Name, members, f.Level); err != nil {
			return nil, err
		}
	}
	return config, nil
}

// put adds the configuration of a policy, unless it is empty.
func put(config map[string]json.RawMessage, name string, members map[string]json.RawMessage, level string) error {
	delete(members, policies.LevelKey)
	var err error
	if level != "" {
		if members[policies.LevelKey], err = json.Marshal(level); err != nil {
			return err
		}
	}
	if len(members) > 0 {
		config[name], err = json.Marshal(members)
	}
	return err
}

// blame puts a problem of the service next to the policy that it names.
func (m *configModel) blame(problem string) {
	for i := range m.Fields {
		if strings.Contains(problem, fmt.Sprintf("policy %q", m.Fields[i].Name)) {
			m.Fields[i].levelProblem = problem
			return
		}
	}
	m.Problem = problem
}

// read returns the configuration in the form, or what is wrong with it.
func (f policyField) read() (members map[string]json.RawMessage, problem string) {
	members = map[string]json.RawMessage{}
	if f.Config != "" {
		dec := json.NewDecoder(strings.NewReader(f.Config))
		if err := dec.Decode(&members); err != nil || members == nil {
			return nil, "This is not a JSON object" + whereIn(f.Config, err) + "."
		}
		if dec.More() {
			return nil, "This is more than one JSON object."
		}
	}
	if _, has := members[policies.LevelKey]; has {
		return nil, "Choose the level above, not in the configuration."
	}
	if f.ConfigSchema == nil || len(members) == 0 {
		return members, ""
	}
	for _, name := range f.ConfigSchema.Required {
		if members[name] == nil && name != policies.LevelKey {
			return nil, name + " is missing, which the policy requires."
		}
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if problem := checkValue(name, f.ConfigSchema.Properties[name], members[name]); problem != "" {
			return nil, problem
		}
	}
	return members, ""
}

// whereIn says at which character JSON is wrong.
func whereIn(text string, err error) string {
	syntax, ok := err.(*json.SyntaxError) //nolint:errorlint // the decoder does not wrap it
	if !ok {
		return ""
	}
	line := 1 + strings.Count(text[:min(int(syntax.Offset), len(text))], "\n")
	return ": line " + words.Number(line) + ": " + syntax.Error()
}

// checkValue says what is wrong with the value of a property, by the type and the values that its schema permits. The
// client checks the rest of the schema.
func checkValue(name string, schema, value json.RawMessage) string {
	var s struct {
		Type any   `json:"type"`
		Enum []any `json:"enum"`
	}
	var got any
	dec := json.NewDecoder(bytes.NewReader(value))
	dec.UseNumber()
	if json.Unmarshal(schema, &s) != nil || dec.Decode(&got) != nil {
		return "" // without a schema that this function understands, the client decides
	}
	if want := typesOf(s.Type); len(want) > 0 && !slices.ContainsFunc(want, func(t string) bool { return isType(got, t) }) {
		return name + " must be of the type " + strings.Join(want, " or ") + "."
	}
	if len(s.Enum) > 0 && !slices.ContainsFunc(s.Enum, func(o any) bool { return fmt.Sprint(o) == fmt.Sprint(got) }) {
		return name + " must be one of " + strings.TrimSpace(fmt.Sprintln(s.Enum...)) + "."
	}
	return ""
}

func typesOf(t any) []string {
	switch t := t.(type) {
	case string:
		return []string{t}
	case []any:
		var out []string
		for _, each := range t {
			out = append(out, fmt.Sprint(each))
		}
		return out
	default:
		return nil
	}
}

func isType(v any, t string) bool {
	switch v := v.(type) {
	case string:
		return t == "string"
	case bool:
		return t == "boolean"
	case json.Number:
		return t == "number" || t == "integer" && !strings.ContainsAny(v.String(), ".eE")
	case []any:
		return t == "array"
	case map[string]any:
		return t == "object"
	default:
		return t == "null"
	}
}
