package definition

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"workflowagent/internal/esc/wire"
)

// row is a value of an environment.
type row struct {
	// Path names the value in the environment, and Name in its group.
	Path, Name string
	Text       string // "" for a secret, and for a value that is not known
	Secret     bool
	Unknown    bool
	From       string // the environment that defines it, if it is another one
	Sealed     string // an opened secret, for the browser
	Long       bool   // a secret that is too large for the page
}

// group are the values of one use.
type group struct {
	ID, Title, Hint string
	Rows            []row
}

// result are the values of an environment, as a page shows them.
type result struct {
	Groups []group
	Shown  int
	More   int // values that are left out
}

// The groups, by the names of the values that clients use.
var uses = []group{
	{ID: "environmentVariables", Title: "Environment variables"},
	{ID: "pulumiConfig", Title: "Configuration of stacks"},
	{ID: "files", Title: "Files", Hint: "The variable contains the path of a file with the value."},
	{ID: "policyConfig", Title: "Configuration of policy packs"},
	{ID: "values", Title: "Other values"},
}

// flattener turns nested values into rows.
type flattener struct {
	own  string // name of the environment
	most int    // rows
	// secret is called for the plain text of each secret that is shown.
	secret func(r *row, plain string) error
	result
}

// resultOf returns the first values of an environment. secret gets the plain text of each secret among them.
func resultOf(values wire.Values, own string, most int, secret func(r *row, plain string) error) (result, error) {
	f := &flattener{own: own, most: most, secret: secret}
	for _, use := range uses {
		var at []string
		var members map[string]wire.Value
		if use.ID == "values" {
			members = maps.Clone(values)
			maps.DeleteFunc(members, func(name string, _ wire.Value) bool {
				return slices.ContainsFunc(f.Groups, func(g group) bool { return g.ID == name })
			})
		} else {
			v := values[use.ID]
			object, ok := v.Value.(map[string]wire.Value)
			if !ok || v.Secret {
				continue // it is shown among the others
			}
			at, members = []string{use.ID}, object
		}
		f.Groups = append(f.Groups, use)
		for _, name := range slices.Sorted(maps.Keys(members)) {
			if err := f.add(append(at, name), len(at), members[name], false); err != nil {
				return result{}, err
			}
		}
	}
	f.Groups = slices.DeleteFunc(f.Groups, func(g group) bool { return len(g.Rows) == 0 })
	return f.result, nil
}

// add adds the rows of the value at a path, of which the first segments name the group.
func (f *flattener) add(path []string, of int, v wire.Value, secret bool) error {
	secret = secret || v.Secret
	if !secret {
		switch content := v.Value.(type) {
		case map[string]wire.Value:
			for _, name := range slices.Sorted(maps.Keys(content)) {
				if err := f.add(append(path, name), of, content[name], false); err != nil {
					return err
				}
			}
			if len(content) > 0 {
				return nil
			}
		case []wire.Value:
			for i, element := range content {
				if err := f.add(append(path, strconv.Itoa(i)), of, element, false); err != nil {
					return err
				}
			}
			if len(content) > 0 {
				return nil
			}
		}
	}
	if f.Shown >= f.most {
		f.More++
		return nil
	}
	f.Shown++
	r := row{Path: pathOf(path), Name: pathOf(path[of:]), Secret: secret, Unknown: v.Unknown, From: f.from(v)}
	switch {
	case v.Unknown:
	case secret && f.secret != nil:
		if err := f.secret(&r, plainOf(v)); err != nil {
			return err
		}
	case !secret:
		r.Text = plainOf(v)
	}
	last := &f.Groups[len(f.Groups)-1]
	last.Rows = append(last.Rows, r)
	return nil
}

// from returns the environment that defines a value, unless it is the one that is shown.
func (f *flattener) from(v wire.Value) string {
	var trace struct {
		Def struct {
			Environment string `json:"environment"`
		} `json:"def"`
	}
	if len(v.Trace) == 0 || json.Unmarshal(v.Trace, &trace) != nil || trace.Def.Environment == f.own {
		return ""
	}
	return trace.Def.Environment
}

var (
	plainKey = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$-]*$`)
	index    = regexp.MustCompile(`^[0-9]+$`)
)

// pathOf writes a path as clients do.
func pathOf(path []string) string {
	var b strings.Builder
	for i, key := range path {
		switch {
		case plainKey.MatchString(key) && i > 0:
			b.WriteString("." + key)
		case plainKey.MatchString(key), i == 0 && len(path) == 1:
			b.WriteString(key)
		case index.MatchString(key):
			b.WriteString("[" + key + "]")
		default:
			b.WriteString("[" + strconv.Quote(key) + "]")
		}
	}
	return b.String()
}

// plainOf returns a value as text: a text as it is, and others as JSON.
func plainOf(v wire.Value) string {
	if text, ok := v.Value.(string); ok {
		return text
	}
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if e.Encode(bare(v)) != nil {
		return ""
	}
	return strings.TrimSuffix(buf.String(), "\n")
}

// bare returns a value without what the evaluator says about it.
func bare(v wire.Value) any {
	switch content := v.Value.(type) {
	case map[string]wire.Value:
		object := map[string]any{}
		for name, member := range content {
			object[name] = bare(member)
		}
		return object
	case []wire.Value:
		list := make([]any, len(content))
		for i, element := range content {
			list[i] = bare(element)
		}
		return list
	default:
		return content
	}
}

// beginning returns the first characters of a text, on one line.
func beginning(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + "…"
	}
	return strings.Join(strings.Fields(text), " ")
}

// Bounds of a value in a list and of its title, in characters.
const (
	maxShort = 60
	maxTitle = 400
)

// short is what a list shows of a value.
func (r row) short() string {
	switch {
	case r.Unknown && r.Secret:
		return "[secret, known when opened]"
	case r.Unknown:
		return "[known when opened]"
	case r.Secret:
		return "[secret]"
	default:
		return beginning(r.Text, maxShort)
	}
}

// maxValue bounds a value on the page with all values, in bytes.
const maxValue = 16 << 10
