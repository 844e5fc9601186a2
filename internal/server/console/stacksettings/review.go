package stacksettings

import (
	"encoding/json"
	"fmt"
	"strconv"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/stacks/changes/diff"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

type reviewModel struct {
	St      store.Stack
	Diff    diff.Diff
	Patch   string
	Version int64
}

// review shows what the form would change.
func (p *pages) review(v *page.Visit) (page.Answer, error) {
	stored, err := p.stored(v)
	if err != nil {
		return page.Answer{}, err
	}
	m := reviewModel{St: v.Stack}
	var before *workflow.Settings
	base := &workflow.Settings{}
	if stored != nil {
		before, base, m.Version = &stored.Settings, &stored.Settings, stored.Version
	}
	patch, err := p.patch(v, base)
	if err == nil {
		m.Patch = string(patch)
		m.Diff, err = settingsDiff(before, patch)
	}
	if err != nil {
		return answer(v, err, "", p.deployPage)
	}
	return page.Once(settingsPage(v, "", "", review(m))), nil
}

// settingsDiff compares settings with the result of a patch.
func settingsDiff(before *workflow.Settings, patch []byte) (diff.Diff, error) {
	after, err := workflow.MergeSettings(before, patch)
	if err == nil {
		err = after.Validate()
	}
	if err != nil {
		return diff.Diff{}, fault.Invalid("The settings are not valid: %s", err)
	}
	known := map[string]bool{}
	from, err := publicTree(before, func(ciphertext string) string {
		known[ciphertext] = true
		return diff.Secret
	})
	if err != nil {
		return diff.Diff{}, err
	}
	to, err := publicTree(after, func(ciphertext string) string {
		if known[ciphertext] {
			return diff.Secret
		}
		return "[secret, new value]"
	})
	if err != nil {
		return diff.Diff{}, err
	}
	dropDefaults(from, to)
	step, err := json.Marshal(map[string]any{"op": "update", "old": map[string]any{"inputs": from}, "new": map[string]any{"inputs": to}})
	if err != nil {
		return diff.Diff{}, fmt.Errorf("encoding settings: %w", err)
	}
	return diff.Of(step)
}

// dropDefaults removes the members that are empty in both settings, so that the difference does not
// list what the form always sends.
func dropDefaults(before, after any) {
	old, _ := before.(map[string]any)
	now, ok := after.(map[string]any)
	if !ok {
		return
	}
	for name, value := range now {
		dropDefaults(old[name], value)
		if isEmpty(value) && isEmpty(old[name]) {
			delete(now, name)
			delete(old, name)
		}
	}
}

func isEmpty(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case bool:
		return !v
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	case map[string]any:
		for _, e := range v {
			if !isEmpty(e) {
				return false
			}
		}
		return true
	default:
		return false
	}
}

// publicTree returns settings as a JSON tree without secrets.
func publicTree(set *workflow.Settings, hide func(ciphertext string) string) (any, error) {
	if set == nil {
		return map[string]any{}, nil
	}
	doc, err := json.Marshal(set)
	if err != nil {
		return nil, fmt.Errorf("encoding settings: %w", err)
	}
	var tree any
	if err := json.Unmarshal(doc, &tree); err != nil {
		return nil, fmt.Errorf("decoding settings: %w", err)
	}
	return withoutSecrets(tree, hide), nil
}

func withoutSecrets(v any, hide func(string) string) any {
	switch v := v.(type) {
	case map[string]any:
		if text, ok := v["ciphertext"].(string); ok {
			return hide(text)
		}
		for k, e := range v {
			v[k] = withoutSecrets(e, hide)
		}
	case []any:
		for i, e := range v {
			v[i] = withoutSecrets(e, hide)
		}
	}
	return v
}

// sourceConsole is the source of settings that this page stored.
const sourceConsole = "console"

// save stores what the review showed.
func (p *pages) save(v *page.Visit) (page.Answer, error) {
	stored, err := p.stored(v)
	if err != nil {
		return page.Answer{}, err
	}
	version := int64(0)
	if stored != nil {
		version = stored.Version
	}
	if v.Form("version") != strconv.FormatInt(version, 10) {
		err = fault.Conflict("The settings changed in the meantime. Check them and change them again.")
	} else {
		_, err = p.Deployments.PatchSettings(v.Context(), v.Who, v.Stack, []byte(v.Form("patch")), sourceConsole)
	}
	return answer(v, err, "", p.deployPage)
}
