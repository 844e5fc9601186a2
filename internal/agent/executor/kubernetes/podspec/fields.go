package podspec

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	sjson "sigs.k8s.io/json"
)

// checkFields returns an error for the first element that is not a field of a pod or has the wrong
// type.
func (t *template) checkFields() error {
	var document any
	if err := json.Unmarshal(t.patch, &document); err != nil {
		return t.syntax(err)
	}
	if path := badDirective(nil, document); path != nil {
		return t.at(path, "is not one of the directives of a strategic merge: write merge, replace or delete")
	}
	document = withoutDirectives(document)
	if decodes(document) == nil {
		return nil
	}
	path, err := blame(nil, document)
	return t.at(path, "%s", explain(err))
}

// withoutDirectives returns a document without the directives of a strategic merge, which are no
// fields of a pod.
func withoutDirectives(document any) any {
	switch d := document.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, v := range d {
			if !isDirective(k) {
				out[k] = withoutDirectives(v)
			}
		}
		return out
	case []any:
		out := make([]any, len(d))
		for i, v := range d {
			out[i] = withoutDirectives(v)
		}
		return out
	}
	return document
}

// badDirective returns the path of a $patch with an unknown value, or nil. The merge ignores it in some
// places.
func badDirective(path []string, document any) []string {
	switch d := document.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(d)) {
			inner := append(slices.Clone(path), k)
			if k == "$patch" && d[k] != "merge" && d[k] != "replace" && d[k] != "delete" {
				return inner
			}
			if found := badDirective(inner, d[k]); found != nil {
				return found
			}
		}
	case []any:
		for i, v := range d {
			if found := badDirective(append(slices.Clone(path), fmt.Sprintf("[%d]", i)), v); found != nil {
				return found
			}
		}
	}
	return nil
}

func isDirective(key string) bool {
	name, _, _ := strings.Cut(key, "/")
	return slices.Contains([]string{"$patch", "$retainKeys", "$deleteFromPrimitiveList", "$setElementOrder"}, name)
}

// blame returns the innermost element that cannot be decoded, with its error. The document contains
// nothing but the elements at the path and one value there.
func blame(path []string, value any) ([]string, error) {
	err := decodes(nest(path, value))
	switch v := value.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if inner := append(slices.Clone(path), k); decodes(nest(inner, v[k])) != nil {
				return blame(inner, v[k])
			}
		}
	case []any:
		for i, e := range v {
			if inner := append(slices.Clone(path), "[0]"); decodes(nest(inner, e)) != nil {
				found, err := blame(inner, e)
				found[len(path)] = fmt.Sprintf("[%d]", i)
				return found, err
			}
		}
	}
	return path, err
}

// nest returns a document that contains only a value at a path.
func nest(path []string, value any) any {
	for _, element := range slices.Backward(path) {
		if strings.HasPrefix(element, "[") {
			value = []any{value}
		} else {
			value = map[string]any{element: value}
		}
	}
	return value
}

func decodes(document any) error {
	text, err := json.Marshal(document)
	if err != nil {
		return err
	}
	strict, err := decode(text, &corev1.Pod{})
	return errors.Join(err, errors.Join(strict...))
}

// decode decodes a pod like an API server does: names of fields are case-sensitive.
func decode(text []byte, pod *corev1.Pod) (strict []error, err error) {
	return sjson.UnmarshalStrict(text, pod)
}

func explain(err error) string {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Sprintf("is a %s: write a %s", wrong.Value, wrong.Type.Kind())
	}
	text := strings.Join(strings.Fields(err.Error()), " ")
	if strings.HasPrefix(text, "unknown field") {
		return "is not a field of a pod here: correct or remove it"
	}
	if strings.HasPrefix(text, resource.ErrFormatWrong.Error()) {
		return "is not a quantity: write one such as 500m or 2Gi"
	}
	return "is not valid: " + text
}
