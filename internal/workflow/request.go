package workflow

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Request is a request for a deployment. [ParseRequest] reads its public form; the server's own callers
// set the members.
type Request struct {
	Operation Operation
	// Inherit means that the stack's settings apply where the request gives none.
	Inherit bool
	// Settings are those that the request gives, or nil. ParseRequest does not set them, because a
	// tree can also give zero values; see [Request.Over].
	Settings *Settings
	// Ignored contains a sentence for each member of the public form that does not exist.
	Ignored []string

	given map[string]any // tree of the parsed settings, without those that were not given
}

// ParseRequest reads the public form of a request, or the form that [Request.Store] returned. null, "",
// [] and {} mean "not given", because clients send them for members that their user did not set.
func ParseRequest(body []byte) (Request, error) {
	var r struct {
		Operation        *string `json:"operation"`
		InheritSettings  *bool   `json:"inheritSettings"`
		OperationContext *struct {
			Operation *string `json:"operation"`
		} `json:"operationContext"`
	}
	if err := json.Unmarshal(body, &r); err != nil {
		if te, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && te.Field != "" {
			return Request{}, fmt.Errorf("the member %q cannot be a JSON %s", te.Field, te.Value)
		}
		return Request{}, errors.New("the body is not a valid JSON object")
	}
	if c := r.OperationContext; c != nil && c.Operation != nil && *c.Operation != "" {
		return Request{}, errors.New("'operation' must only be set at the top level of the request")
	}
	if r.Operation == nil || *r.Operation == "" {
		return Request{}, errors.New("Missing top level required field 'operation'") //nolint:staticcheck // clients know this text
	}
	op, err := ParseOperation(*r.Operation)
	if err != nil {
		return Request{}, err
	}
	given, err := givenIn(body)
	if err != nil {
		return Request{}, err
	}
	return Request{Operation: op, Inherit: r.InheritSettings == nil || *r.InheritSettings, Ignored: Ignored(body), given: given}, nil
}

// givenIn returns the tree of the settings that a request gives.
func givenIn(body []byte) (map[string]any, error) {
	tree, err := parseTree(body)
	if err != nil {
		return nil, err
	}
	dropEmpty(tree)
	return tree, nil
}

// tree returns the tree of the settings that the request gives. The caller must not change it.
func (r Request) tree() (map[string]any, error) {
	if r.given != nil {
		return r.given, nil
	}
	tree, err := settingsTree(r.Settings)
	if err != nil {
		return nil, err
	}
	dropEmpty(tree)
	return tree, nil
}

// Own returns the settings of a deployment that inherits none.
func (r Request) Own() (*Settings, error) { return r.Over(nil) }

// Over merges the settings of the request into base, as the settings of a deployment. Stored credentials
// apply only to the address for which they were given. base may be nil.
func (r Request) Over(base *Settings) (*Settings, error) {
	given, err := r.tree()
	if err != nil {
		return nil, err
	}
	b, err := settingsTree(base)
	if err != nil {
		return nil, err
	}
	return mergeSettings(b, given)
}

// Store returns the request in a form that can be stored. It keeps only what [Request.Over] uses. Its
// secrets are those of encrypted, the settings of the deployment that the request would create.
func (r Request) Store(encrypted *Settings) ([]byte, error) {
	given, err := r.tree()
	if err != nil {
		return nil, err
	}
	set, err := settingsFromTree(given)
	if err != nil {
		return nil, err
	}
	secrets := map[string]Secret{}
	_ = encrypted.EachSecret(func(path string, v *Secret) error {
		secrets[path] = *v
		return nil
	})
	err = set.EachSecret(func(path string, v *Secret) error {
		if !v.IsSecret() {
			return nil
		}
		sealed, ok := secrets[path]
		if !ok {
			return fmt.Errorf("the settings of the deployment do not contain %s", path)
		}
		*v = sealed
		return nil
	})
	if err != nil {
		return nil, err
	}
	sealed, err := settingsTree(set)
	if err != nil {
		return nil, err
	}
	// The tree also contains the members with zero values, such as false, which override stored
	// settings.
	out := map[string]any{}
	mergeTree(out, given, "")
	mergeTree(out, sealed, "")
	out["operation"], out["inheritSettings"] = r.Operation, r.Inherit
	return json.Marshal(out)
}
