package settings

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

type entry struct {
	key    string
	line   int
	text   string   // value of a scalar
	list   []string // values of a sequence
	isList bool
	isMap  bool
	isNull bool
}

// parseYAML returns the entries of a configuration file in order. It reads the tree of nodes
// instead of decoding into a struct, so that every error names its line and key. No message of the
// YAML library reaches a user, because it might quote a token.
func parseYAML(file string, data []byte) ([]entry, Problems) {
	at := func(line int, what string) ([]entry, Problems) {
		return nil, Problems{{source: fileSource(file, line), what: what}}
	}
	if bytes.HasPrefix(data, []byte{0xFE, 0xFF}) || bytes.HasPrefix(data, []byte{0xFF, 0xFE}) {
		return at(1, "is UTF-16 text: save the file as UTF-8")
	}
	data = bytes.TrimPrefix(data, byteOrderMark)
	if !utf8.Valid(data) {
		return at(lineOf(data, func(r rune, size int) bool { return r == utf8.RuneError && size <= 1 }), "is not UTF-8 text: save the file as UTF-8")
	}
	if line := lineOf(data, func(r rune, _ int) bool { return unicode.IsControl(r) && r != '\t' && r != '\n' && r != '\r' }); line > 0 {
		return at(line, "contains a control character: remove it")
	}

	var documents []yaml.Node
	if err := yaml.Load(data, &documents, yaml.WithAllDocuments()); err != nil {
		return at(ErrorLine(err), "is not valid YAML: check the indentation (spaces, no tabs), quotes and colons around this line")
	}
	if len(documents) == 0 {
		return nil, nil
	}
	if len(documents) > 1 {
		return at(max(documents[1].Line, 1), "begins a second YAML document: keep one and remove the --- line")
	}
	root := &documents[0]
	if root.Kind == yaml.DocumentNode {
		if len(root.Content) == 0 {
			return nil, nil
		}
		root = root.Content[0]
	}
	if root.Kind == yaml.ScalarNode && root.ShortTag() == "!!null" {
		return nil, nil
	}
	if root.Kind != yaml.MappingNode {
		return at(max(root.Line, 1), "is not a list of settings: write lines of the form key: value")
	}
	return parseMapping(file, root)
}

func parseMapping(file string, root *yaml.Node) ([]entry, Problems) {
	var entries []entry
	var wrong Problems
	seen := map[string]int{}
	for i := 0; i+1 < len(root.Content); i += 2 {
		keyNode, valueNode := root.Content[i], root.Content[i+1]
		source := fileSource(file, keyNode.Line)
		if keyNode.Kind != yaml.ScalarNode {
			wrong.Add(source, "", "is not a key: write lines of the form key: value")
			continue
		}
		key := keyNode.Value
		if first, ok := seen[key]; ok {
			wrong.Add(source, PrintableKey(key), fmt.Sprintf("is set a second time, first in line %d: remove one of them", first))
			continue
		}
		seen[key] = keyNode.Line
		e, what := parseValue(key, valueNode)
		if what != "" {
			wrong.Add(source, PrintableKey(key), what)
			continue
		}
		e.line = keyNode.Line
		entries = append(entries, e)
	}
	return entries, wrong
}

// parseValue parses a scalar or a sequence of scalars. For any other node, what describes the
// problem. Scalars keep their source text, so that the token 0123 remains 0123.
func parseValue(key string, n *yaml.Node) (e entry, what string) {
	e.key = key
	switch n.Kind {
	case yaml.ScalarNode:
		e.text, e.isNull = n.Value, n.ShortTag() == "!!null"
		if e.isNull {
			e.text = ""
		}
		return e, ""
	case yaml.SequenceNode:
		e.isList = true
		for _, item := range n.Content {
			if item.Kind != yaml.ScalarNode {
				return e, fmt.Sprintf("has an entry that is not a plain value, in line %d: write one value per entry", item.Line)
			}
			e.list = append(e.list, item.Value)
		}
		return e, ""
	case yaml.MappingNode:
		e.isMap = true
		return e, ""
	default:
		return e, "is an alias (*name): write the value itself"
	}
}

// ReadFile reads settings from the text of a YAML file. A missing or empty value keeps the default.
func (t *Table) ReadFile(path string, text []byte) {
	entries, problems := parseYAML(path, text)
	t.Problems = append(t.Problems, problems...)
	for _, e := range entries {
		source := fileSource(path, e.line)
		f := t.field(e.key)
		if warning, ok := t.Obsolete[e.key]; ok && f == nil {
			if warning != "" {
				t.Warnings = append(t.Warnings, fmt.Sprintf("%s: %s: %s", source, e.key, warning))
			}
			continue
		}
		if problem := t.refuseKey(e.key, f); problem != "" {
			t.Problems.Add(source, PrintableKey(e.key), problem)
			continue
		}
		isSet, err := f.parseEntry(e, t.Dirs)
		t.record(f, isSet, err, source)
	}
}

// refuseKey returns the reason why the file cannot set a key, or "".
func (t *Table) refuseKey(key string, f *Field) string {
	if f != nil && f.envOnly {
		return "cannot be set in the file: set the variable " + f.Env + " instead"
	}
	if f != nil {
		return ""
	}
	if t.Refuse != nil {
		if problem := t.Refuse(key); problem != "" {
			return problem
		}
	}
	if len(t.Problems) > maxProblems {
		return "is not a known key" // the key is not printed, so a suggestion would not help
	}
	return "is not a known key: " + t.suggestion(key)
}

func (f *Field) parseEntry(e entry, dirs Dirs) (isSet bool, err error) {
	switch {
	case e.isMap:
		return false, errors.New("has settings below it, but takes a value: check the indentation of the lines that follow")
	case e.isList:
		return true, f.setList(e.list)
	case f.isList() && e.isNull && f.NotEmpty:
		return false, ErrEmptyList
	case f.isList() && !e.isNull:
		return false, errors.New("is a single value, but the key takes a list: write it as [value, value]")
	default:
		return f.parse(e.text, dirs)
	}
}

func (t *Table) suggestion(key string) string {
	var keys []string
	for _, f := range t.Fields() {
		if !f.envOnly {
			keys = append(keys, f.Key)
		}
	}
	if near := Nearest(strings.ReplaceAll(key, "-", "_"), keys); near != "" {
		return "did you mean " + near + "?"
	}
	return "correct its spelling or remove it"
}

// Nearest returns the word that a misspelled one probably means, or "".
func Nearest(misspelled string, words []string) string {
	best, bestDistance := "", 4
	for _, word := range words {
		if d := distance(strings.ToLower(misspelled), word); d < bestDistance {
			best, bestDistance = word, d
		}
	}
	return best
}

// distance returns the edit distance between two words.
func distance(a, b string) int {
	if len(a) > 40 {
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// PrintableKey returns key, or a placeholder if the key has an unusual form. Such a key might be a
// misplaced value or even a token.
func PrintableKey(key string) string {
	plain := func(r rune) bool {
		return r == '_' || r == '.' || r == '-' || ('a' <= r && r <= 'z') || ('A' <= r && r <= 'Z')
	}
	if key == "" || len(key) > 40 || strings.HasPrefix(key, "pul-") ||
		strings.ContainsFunc(key, func(r rune) bool { return !plain(r) }) {
		return "this key"
	}
	return key
}

func fileSource(path string, line int) Source {
	return Source{Kind: FromFile, Name: path, Line: line}
}

// lineOf returns the number of the line that contains the first wanted character, or 0.
func lineOf(data []byte, wanted func(r rune, size int) bool) int {
	for line := 1; len(data) > 0; {
		r, size := utf8.DecodeRune(data)
		if wanted(r, size) {
			return line
		}
		if r == '\n' {
			line++
		}
		data = data[size:]
	}
	return 0
}

// ErrorLine returns the line of an error of the YAML library, from 1.
func ErrorLine(err error) int {
	if one, ok := errors.AsType[*yaml.LoadError](err); ok {
		if one.Stage == yaml.ScannerStage && one.ContextMark.Line > 0 {
			return one.ContextMark.Line // the line of the open quote, not the end of the file
		}
		return max(one.Mark.Line, one.ContextMark.Line, 1)
	}
	if many, ok := errors.AsType[*yaml.LoadErrors](err); ok && len(many.Errors) > 0 {
		lines := make([]int, 0, len(many.Errors))
		for _, e := range many.Errors {
			lines = append(lines, e.Mark.Line)
		}
		return max(slices.Min(lines), 1)
	}
	return 1
}
