package stacksettings

import (
	"strconv"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

type reviewModel struct {
	St      store.Stack
	Changes []fieldChange
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
	var before, after *workflow.Settings
	base := &workflow.Settings{}
	if stored != nil {
		before, base, m.Version = &stored.Settings, &stored.Settings, stored.Version
	}
	patch, err := p.patch(v, base)
	if err == nil {
		m.Patch = string(patch)
		after, err = merged(before, patch)
	}
	if err != nil {
		return answer(v, err, "", p.deployPage)
	}
	list, _, err := p.visiblePools(v, base.AgentPoolID)
	if err != nil {
		return page.Answer{}, err
	}
	if m.Changes, err = changedFields(before, after, func(id string) string { return poolName(list, id, id) }); err != nil {
		return page.Answer{}, err
	}
	shown, err := p.settingsPage(v, "", "", review(m))
	return page.Once(shown), err
}

// merged returns settings after a patch.
func merged(before *workflow.Settings, patch []byte) (*workflow.Settings, error) {
	after, err := workflow.MergeSettings(before, patch)
	if err == nil {
		err = after.Validate()
	}
	if err != nil {
		return nil, fault.Invalid("The settings are not valid: %s", err)
	}
	return after, nil
}

// sourceConsole is the source of settings that this page stored.
const sourceConsole = "console"

// savedVersion is the parameter with the version of the settings that the visitor has stored.
const savedVersion = "saved"

// clearCache discards the workspaces of the stack.
func (p *pages) clearCache(v *page.Visit) (page.Answer, error) {
	return answer(v, p.Deployments.ClearCache(v.Context(), v.Who, v.Stack), "", p.deployPage)
}

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
		stored, err = p.Deployments.PatchSettings(v.Context(), v.Who, v.Stack, []byte(v.Form("patch")), sourceConsole)
	}
	if err != nil {
		return answer(v, err, "", p.deployPage)
	}
	return page.See(path(v.Stack) + "?" + savedVersion + "=" + strconv.FormatInt(stored.Version, 10)), nil
}
