package workflow

import (
	"encoding/json"
	"fmt"
)

// StoreRequest returns the settings in a deployment's request in a form that can be stored and used
// later as a request. It keeps only what [InheritSettings] uses of the request. Its secrets are those
// of encrypted, the settings of the deployment that the request would create.
func StoreRequest(request []byte, encrypted *Settings) (map[string]json.RawMessage, error) {
	tree, err := parseTree(request)
	if err != nil {
		return nil, err
	}
	dropEmpty(tree)
	set, err := settingsFromTree(tree)
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
	mergeTree(tree, sealed, "")
	out := map[string]json.RawMessage{}
	for name, v := range tree {
		if out[name], err = json.Marshal(v); err != nil {
			return nil, err
		}
	}
	return out, nil
}
