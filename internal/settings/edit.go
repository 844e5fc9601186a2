package settings

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Change is a new value for one key of a YAML file.
type Change struct {
	Key string
	// Value is the new value in the form of the environment variable. An empty value removes the
	// key from the file, which restores the default.
	Value string
}

// Check returns the change with its value in the form to write. It makes paths absolute, because
// the program might later run in another directory, and adds the scheme of a URL. The error is one
// line and does not contain the value.
func (t *Table) Check(change Change, dirs Dirs) (Change, error) {
	f, err := t.fileField(change.Key)
	if err != nil {
		return change, err
	}
	isSet, err := f.parse(change.Value, dirs)
	if err != nil {
		return change, fmt.Errorf("%s: %w", change.Key, err)
	}
	switch f.Value.(type) {
	case *Path, *URL:
		if isSet {
			change.Value = f.show()
		}
	}
	return change, nil
}

func (t *Table) fileField(key string) (*Field, error) {
	f := t.field(key)
	if problem := t.refuseKey(key, f); problem != "" {
		return nil, fmt.Errorf("%s: %s", PrintableKey(key), problem)
	}
	return f, nil
}

var byteOrderMark = []byte("\xEF\xBB\xBF")

// Edit returns the text of a YAML file with the changes applied. It preserves every other byte:
// comments, order, formatting and line endings. If a key exists only as a comment, as in a sample,
// Edit replaces that line. It appends any other new key. The path is used only in errors.
func (t *Table) Edit(path string, text []byte, changes []Change) ([]byte, error) {
	entries, problems := parseYAML(path, text)
	if err := problems.Err(); err != nil {
		return nil, err
	}
	want := byKey(entries)
	edited, hasMark := bytes.CutPrefix(text, byteOrderMark)
	for _, change := range changes {
		f, err := t.fileField(change.Key)
		if err != nil {
			return nil, err
		}
		value := strings.TrimSpace(change.Value)
		if edited, err = f.edit(edited, value); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		switch {
		case value == "":
			delete(want, f.Key)
		case f.isList():
			want[f.Key] = entry{key: f.Key, isList: true, list: f.split(value)}
		default:
			want[f.Key] = entry{key: f.Key, text: value}
		}
	}
	if hasMark {
		edited = slices.Concat(byteOrderMark, edited)
	}
	// As a second safeguard, reject an edit that has any other effect.
	if entries, problems = parseYAML(path, edited); len(problems) > 0 || !reflect.DeepEqual(byKey(entries), want) {
		return nil, fmt.Errorf("%s: this change cannot be made without changing other text: edit the file by hand", path)
	}
	return edited, nil
}

// byKey returns the entries by key, without their line numbers.
func byKey(entries []entry) map[string]entry {
	all := map[string]entry{}
	for _, e := range entries {
		e.line = 0
		all[e.key] = e
	}
	return all
}

var errForm = errors.New("is not written as lines of the form key: value, so a change would lose its form: rewrite it as such lines, or edit it by hand")

// edit returns the text with the field's value set. An empty value removes the field.
func (f *Field) edit(text []byte, value string) ([]byte, error) {
	lines := strings.SplitAfter(string(text), "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	end := "\n"
	if strings.Contains(string(text), "\r\n") {
		end = "\r\n"
	}
	at, err := locate(text, f.Key)
	if err != nil {
		return nil, err
	}
	switch {
	case at.found && value == "":
		lines = slices.Delete(lines, at.first, at.last+1)
	case at.found:
		lines = slices.Replace(lines, at.first, at.last+1, f.Key+": "+f.encode(value, at.quote)+at.comment+end)
	case value == "":
	default:
		line := f.Key + ": " + f.encode(value, 0) + end
		if i := commentedOut(lines, f.Key); i >= 0 {
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

// span is the location of a key and its value in a file, as line indexes.
type span struct {
	found       bool
	first, last int
	quote       byte   // quote around the value, 0 for none
	comment     string // comment after the value, including the space before it
}

func locate(text []byte, key string) (span, error) {
	var document yaml.Node
	if err := yaml.Load(text, &document); err != nil || document.Kind != yaml.DocumentNode || len(document.Content) == 0 {
		// The file contains only comments: the caller has rejected invalid YAML.
		return span{}, nil //nolint:nilerr // see above
	}
	root := document.Content[0]
	if root.Kind == yaml.ScalarNode && root.Value == "" {
		return span{}, nil // only the --- line
	}
	if root.Kind != yaml.MappingNode || root.Style&yaml.FlowStyle != 0 || root.Column != 1 {
		return span{}, errForm
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
		at := span{found: true, first: keyNode.Line - 1, last: keyNode.Line - 1}
		// The value extends to its last line that is neither empty nor a comment. Later lines
		// belong to the next key.
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
	return span{}, nil
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

// commentedOut returns the index of the line that contains the key as a comment, or -1.
func commentedOut(lines []string, key string) int {
	form := regexp.MustCompile(`^#+ ?` + regexp.QuoteMeta(key) + `:(\s|$)`)
	return slices.IndexFunc(lines, form.MatchString)
}

// encode converts a value from the form of the environment variable to YAML on one line. It keeps
// the previous quotes of a value that needs none.
func (f *Field) encode(value string, quote byte) string {
	switch f.Value.(type) {
	case *[]string:
		entries := f.split(value)
		for i, entry := range entries {
			entries[i] = quoted(entry, 0)
		}
		return "[" + strings.Join(entries, ", ") + "]"
	case *string, *Path, *URL:
		if quote == 0 {
			quote = '"'
		}
	}
	return quoted(value, quote)
}

// plain matches text that needs no quotes in YAML, not even in a list.
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
