package workflow

import "encoding/json"

// StoreRequest returns the settings in a deployment's request in a form that can be stored and used
// later as a request. It keeps only what [InheritSettings] uses of the request. encrypt must
// encrypt the secrets in the settings that it receives.
func StoreRequest(request []byte, encrypt func(*Settings) error) (map[string]json.RawMessage, error) {
	tree, err := parseTree(request)
	if err != nil {
		return nil, err
	}
	dropEmpty(tree)
	set, err := settingsFromTree(tree)
	if err != nil {
		return nil, err
	}
	if err := encrypt(set); err != nil {
		return nil, err
	}
	encrypted, err := settingsTree(set)
	if err != nil {
		return nil, err
	}
	// The tree also contains the members with zero values, such as false, which override stored
	// settings.
	mergeTree(tree, encrypted, "")
	out := map[string]json.RawMessage{}
	for name, v := range tree {
		if out[name], err = json.Marshal(v); err != nil {
			return nil, err
		}
	}
	return out, nil
}
