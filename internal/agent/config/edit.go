package config

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Change sets one key of a configuration file.
type Change struct {
	Key string
	// Value has the form of the key's variable. An empty one removes the key from the file,
	// which restores its default.
	Value string
}

// Checked returns the change in the form to write. It makes paths absolute, because the agent
// may later run in another directory. The error is one line without the value.
func (change Change) Checked(o LoadOptions) (Change, error) {
	f, err := fileField(change.Key)
	if err != nil {
		return change, err
	}
	c := Default()
	isSet, err := f.set(c, change.Value, paths{cwd: o.Cwd, home: o.Home})
	if err != nil {
		return change, fmt.Errorf("%s: %w", change.Key, err)
	}
	if isSet && f.kind == kindPath {
		change.Value = f.show(c)
	}
	return change, nil
}

// IsSecret reports whether the key's value must not be shown, nor be an argument of a program.
func IsSecret(key string) bool {
	f, err := fileField(key)
	return err == nil && f.kind == kindSecret
}

func fileField(key string) (field, error) {
	for _, f := range fields() {
		switch {
		case f.name != key:
			continue
		case f.envOnly:
			return field{}, fmt.Errorf("%s cannot be set in the file: set the variable %s instead", key, f.env)
		}
		return f, nil
	}
	if why := refusal(key); why != "" {
		return field{}, fmt.Errorf("%s: %s", printableKey(key), why)
	}
	return field{}, fmt.Errorf("%s is not a known key: %s", printableKey(key), suggestion(key))
}

// Edit returns the text of a configuration file with the changes made. Every other byte stays:
// comments, order, form and line ends. A key that exists as a comment, as in the sample, is set
// in that place; a new one comes last. The path is only for errors.
func Edit(path string, text []byte, changes []Change) ([]byte, error) {
	before, wrong := parseYAML(path, text)
	if err := wrong.err(); err != nil {
		return nil, err
	}
	edited := text
	for _, change := range changes {
		f, err := fileField(change.Key)
		if err != nil {
			return nil, err
		}
		if edited, err = editOne(path, edited, &f, strings.TrimSpace(change.Value)); err != nil {
			return nil, err
		}
	}
	if err := checkEdited(path, before, edited, changes); err != nil {
		return nil, err
	}
	return edited, nil
}

var errForm = errors.New("is not written as lines of the form key: value, so it cannot be changed without losing its form: rewrite it as such lines, or edit it by hand")

func editOne(path string, text []byte, f *field, value string) ([]byte, error) {
	bom := []byte("\xEF\xBB\xBF")
	if rest, found := bytes.CutPrefix(text, bom); found {
		edited, err := editOne(path, rest, f, value)
		if err != nil {
			return nil, err
		}
		return append(bom, edited...), nil
	}
	lines := strings.SplitAfter(string(text), "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	end := "\n"
	if strings.Contains(string(text), "\r\n") {
		end = "\r\n"
	}
	at, err := locate(text, f.name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	switch {
	case at.found && value == "":
		lines = slices.Delete(lines, at.first, at.last+1)
	case at.found:
		lines = slices.Replace(lines, at.first, at.last+1, f.name+": "+f.encode(value, at.quote)+at.comment+end)
	case value == "":
	default:
		line := f.name + ": " + f.encode(value, 0) + end
		if i := commentedOut(lines, f.name); i >= 0 {
			lines[i] = line
			break
		}
		if n := len(lines); n > 0 && !strings.HasSuffix(lines[n-1], "\n") {
			lines[n-1] += end
		}
		lines = append(lines, line)
	}
	return []byte(strings.Join(lines, "")), nil
}

// place is the location of a key and its value in a file, as indexes of lines.
type place struct {
	found       bool
	first, last int
	quote       byte   // around the value, 0 for none
	comment     string // after the value, including the space before it
}

func locate(text []byte, key string) (place, error) {
	var document yaml.Node
	if err := yaml.Load(text, &document); err != nil || document.Kind != yaml.DocumentNode || len(document.Content) == 0 {
		// Nothing but comments: the caller has refused invalid YAML.
		return place{}, nil //nolint:nilerr // see above
	}
	root := document.Content[0]
	if root.Kind == yaml.ScalarNode && root.Value == "" {
		return place{}, nil // only the --- line
	}
	if root.Kind != yaml.MappingNode || root.Style&yaml.FlowStyle != 0 || root.Column != 1 {
		return place{}, errForm
	}
	lines := strings.Split(string(text), "\n")
	for i := 0; i+1 < len(root.Content); i += 2 {
		keyNode, valueNode := root.Content[i], root.Content[i+1]
		if keyNode.Value != key {
			continue
		}
		after := len(lines)
		if i+2 < len(root.Content) {
			after = root.Content[i+2].Line - 1
		}
		at := place{found: true, first: keyNode.Line - 1, last: keyNode.Line - 1}
		// The value extends to its last line that is neither empty nor a comment; the lines
		// after that belong to the next key.
		for n := keyNode.Line; n < after; n++ {
			line := strings.TrimSpace(lines[n])
			if line != "" && line[0] != '#' && line != "..." {
				at.last = n
			}
		}
		switch valueNode.Style & (yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle) {
		case yaml.DoubleQuotedStyle:
			at.quote = '"'
		case yaml.SingleQuotedStyle:
			at.quote = '\''
		}
		if at.first == at.last {
			at.comment = trailingComment(lines[at.first], valueNode)
		}
		return at, nil
	}
	return place{}, nil
}

func trailingComment(line string, value *yaml.Node) string {
	line = strings.TrimRight(line, "\r")
	comment := value.LineComment
	if comment == "" || !strings.HasSuffix(line, comment) {
		return ""
	}
	rest := strings.TrimSuffix(line, comment)
	return rest[len(strings.TrimRight(rest, " \t")):] + comment
}

// commentedOut returns the index of the line with the key as a comment, or -1.
func commentedOut(lines []string, key string) int {
	form := regexp.MustCompile(`^#+ ?` + regexp.QuoteMeta(key) + `:(\s|$)`)
	return slices.IndexFunc(lines, form.MatchString)
}

// encode writes a value, in the form of the variable, as YAML on one line. A value that needs
// no quotes keeps the quotes it had.
func (f *field) encode(value string, quote byte) string {
	if f.kind == kindList {
		entries := strings.Fields(value)
		if f.sep == "," {
			entries = strings.Split(value, ",")
		}
		for i, entry := range entries {
			entries[i] = quoted(strings.TrimSpace(entry), 0)
		}
		return "[" + strings.Join(entries, ", ") + "]"
	}
	if quote == 0 && slices.Contains([]kind{kindString, kindPath, kindURL}, f.kind) {
		quote = '"'
	}
	return quoted(value, quote)
}

// plain matches text that YAML reads as itself without quotes, in lists too.
var plain = regexp.MustCompile(`^[A-Za-z0-9/][A-Za-z0-9_./@+-]*$`)

func quoted(value string, quote byte) string {
	switch {
	case quote == '\'':
		return "'" + strings.ReplaceAll(value, "'", "''") + "'"
	case quote == 0 && plain.MatchString(value) && !strings.EqualFold(value, "null"):
		return value
	default:
		return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value) + `"`
	}
}

// checkEdited parses an edited text again, as a second safeguard: an edit with any other effect
// never reaches the disk.
func checkEdited(path string, before []entry, edited []byte, changes []Change) error {
	after, wrong := parseYAML(path, edited)
	failed := fmt.Errorf("%s: this change cannot be made without touching something else: edit the file by hand", path)
	if len(wrong) > 0 {
		return failed
	}
	want, got := map[string]entry{}, map[string]entry{}
	for _, e := range before {
		e.line = 0
		want[e.key] = e
	}
	for _, e := range after {
		e.line = 0
		got[e.key] = e
	}
	for _, change := range changes {
		f, err := fileField(change.Key)
		if err != nil {
			return err
		}
		delete(want, change.Key)
		e, there := got[change.Key]
		delete(got, change.Key)
		a, b := Default(), Default()
		wasSet, err := f.set(a, change.Value, paths{})
		if err != nil {
			return fmt.Errorf("%s: %w", change.Key, err)
		}
		if there != wasSet {
			return failed
		}
		if there {
			if _, err := f.setEntry(b, e, paths{}); err != nil || f.reveal(a) != f.reveal(b) {
				return failed
			}
		}
	}
	if len(want) != len(got) {
		return failed
	}
	for key, e := range want {
		other, ok := got[key]
		if !ok || e.text != other.text || e.isNull != other.isNull || e.isList != other.isList || !slices.Equal(e.list, other.list) {
			return failed
		}
	}
	return nil
}

// reveal is show with secrets in plain text, for comparison.
func (f *field) reveal(c *Config) string {
	if secret, ok := f.ptr(c).(*Secret); ok {
		return secret.Reveal()
	}
	return f.show(c)
}
