package podspec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	kyaml "sigs.k8s.io/yaml"
)

// template is the administrator's template, in the form that is merged over each pod.
type template struct {
	origin string    // a file or a variable, for messages
	patch  []byte    // JSON
	nodes  yaml.Node // the text with its line numbers; the zero value if it has none
}

// parse returns the template in text, or nil if text contains none.
func parse(origin string, text []byte) (*template, error) {
	t := &template{origin: origin}
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, nil //nolint:nilnil // no template is a valid choice
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	err := decoder.Decode(&t.nodes)
	switch {
	case errors.Is(err, io.EOF):
		return nil, nil //nolint:nilnil // only comments
	case err != nil:
		return nil, t.syntax(err)
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		if err != nil {
			return nil, t.syntax(err)
		}
		return nil, fmt.Errorf("%s: contains more than one document: keep one pod", origin)
	}
	if t.patch, err = kyaml.YAMLToJSONStrict(text); err != nil {
		return nil, t.syntax(err)
	}
	if depth(t.patch) > maxDepth {
		return nil, fmt.Errorf("%s: has more than %d levels, which no pod has: check that it is the right file", origin, maxDepth)
	}
	if string(t.patch) == "null" {
		return nil, nil //nolint:nilnil // only a null
	}
	if t.patch[0] != '{' {
		return nil, t.at(nil, "is not a pod: write a mapping with metadata and spec")
	}
	if err := t.checkFields(); err != nil {
		return nil, err
	}
	return t, nil
}

// maxDepth bounds the nesting of a template. The search for the line of a mistake takes quadratic time.
const maxDepth = 50

// depth returns the number of levels of a JSON document.
func depth(document []byte) (deepest int) {
	level := 0
	for decoder := json.NewDecoder(bytes.NewReader(document)); ; {
		token, err := decoder.Token()
		if err != nil { // io.EOF
			return deepest
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			level++
			deepest = max(deepest, level)
		case json.Delim('}'), json.Delim(']'):
			level--
		}
	}
}

// syntax returns an error of a YAML library as one line with the line number in front.
func (t *template) syntax(err error) error {
	text := strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")), " ")
	text = strings.TrimPrefix(text, "yaml: ")
	text = strings.TrimPrefix(text, "unmarshal errors: ")
	line := 0
	if _, scanErr := fmt.Sscanf(text, "line %d:", &line); scanErr == nil {
		_, text, _ = strings.Cut(text, ": ")
		return fmt.Errorf("%s:%d: is not valid YAML or JSON: %s", t.origin, line, text)
	}
	return fmt.Errorf("%s: is not valid YAML or JSON: %s", t.origin, text)
}

// at returns an error about the element at a path.
func (t *template) at(path []string, format string, args ...any) error {
	where := t.origin
	if line := t.line(path); line > 0 {
		where = fmt.Sprintf("%s:%d", where, line)
	}
	if len(path) > 0 {
		where += ": " + pathText(path)
	}
	return fmt.Errorf("%s: %s", where, fmt.Sprintf(format, args...))
}

// line returns the line of the element at the path or of the closest element that contains it.
func (t *template) line(path []string) int {
	if len(t.nodes.Content) == 0 {
		return 0
	}
	node := t.nodes.Content[0]
	line := node.Line
	for _, element := range path {
		at, next := child(node, element)
		if next == nil {
			break
		}
		line, node = at, next
	}
	return line
}

// child returns the child of a node, and the line of its key. The element is a key, or an entry of a
// list in brackets: its number or its name.
func child(node *yaml.Node, element string) (line int, _ *yaml.Node) {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	entry, isEntry := strings.CutPrefix(element, "[")
	entry = strings.TrimSuffix(entry, "]")
	for i, n := range node.Content {
		switch {
		case node.Kind == yaml.MappingNode && !isEntry && i%2 == 0 && n.Value == element && i+1 < len(node.Content):
			return n.Line, node.Content[i+1]
		case node.Kind == yaml.SequenceNode && isEntry && (entry == fmt.Sprint(i) || nameOf(n) == entry):
			return n.Line, n
		}
	}
	return 0, nil
}

func nameOf(node *yaml.Node) string {
	if node.Kind == yaml.MappingNode {
		if _, name := child(node, "name"); name != nil {
			return name.Value
		}
	}
	return ""
}

func pathText(path []string) string {
	return strings.ReplaceAll(strings.Join(path, "."), ".[", "[")
}

// merge returns the pod with the template merged over it.
func (t *template) merge(base *corev1.Pod) (*corev1.Pod, error) {
	original, err := json.Marshal(base)
	if err != nil {
		return nil, fmt.Errorf("encoding the pod: %w", err)
	}
	merged, err := strategicpatch.StrategicMergePatch(original, t.patch, corev1.Pod{})
	if err != nil {
		return nil, t.at(nil, "cannot be merged: %s", strings.Join(strings.Fields(err.Error()), " "))
	}
	pod := &corev1.Pod{}
	strict, err := decode(merged, pod)
	if err = errors.Join(err, errors.Join(strict...)); err != nil { // for example, a directive that has no effect
		return nil, t.at(nil, "cannot be merged: %s", strings.Join(strings.Fields(err.Error()), " "))
	}
	return pod, nil
}
