package policies

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/words"
)

// maxConfig bounds the configuration of a pack in a group, in bytes of JSON.
const maxConfig = 256 << 10

// ConfigOf returns the configuration of a pack in a group as it was set, or nil.
func ConfigOf(e store.EnabledPack) (map[string]json.RawMessage, error) {
	if e.Config == "" {
		return nil, nil
	}
	var out map[string]json.RawMessage
	if err := json.Unmarshal([]byte(e.Config), &out); err != nil {
		return nil, fmt.Errorf("reading the configuration of policy pack %s in policy group %s: %w", e.PackName, e.GroupName, err)
	}
	return out, nil
}

// configOf returns the stored form of a pack's configuration in a group, after checks. The value of a policy is an
// object, or only a level.
func configOf(pack string, levels []store.PolicyLevel, config map[string]json.RawMessage) (string, error) {
	out := map[string]map[string]json.RawMessage{}
	for name, raw := range config {
		if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
			continue
		}
		known := name == EveryPolicy || slices.ContainsFunc(levels, func(l store.PolicyLevel) bool { return l.Name == name })
		if !known && len(levels) > 0 {
			return "", fault.Invalid("policy pack %s has no policy %q, for which its configuration has a value", pack, name)
		}
		value := map[string]json.RawMessage{}
		if raw[0] == '"' {
			value[LevelKey] = raw
		} else if err := json.Unmarshal(raw, &value); err != nil || value == nil {
			return "", fault.Invalid("the configuration of policy %q must be an object or an enforcement level", name)
		}
		if raw, ok := value[LevelKey]; ok {
			var level string
			if err := json.Unmarshal(raw, &level); err != nil || !slices.Contains(levelNames, level) {
				return "", fault.Invalid("the enforcement level of policy %q must be advisory, mandatory, remediate or disabled", name)
			}
		}
		if len(value) > 0 {
			out[name] = value
		}
	}
	if len(out) == 0 {
		return "", nil
	}
	text, err := json.Marshal(out)
	if err != nil {
		return "", fmt.Errorf("encoding the configuration of policy pack %s: %w", pack, err)
	}
	if len(text) > maxConfig {
		return "", fault.New(fault.KindTooLarge, "the configuration of a policy pack can have at most %s", words.Bytes(int64(maxConfig)))
	}
	return string(text), nil
}
