package stacksettings

import (
	"errors"
	"strconv"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/deployments"
)

// sourceConsole is the source of settings that this page stored.
const sourceConsole = "console"

// savedVersion is the parameter with the version of the settings that the visitor has stored.
const savedVersion = "saved"

// part is one of the pages with a form of the deployment settings.
type part struct {
	// name is the last segment of its path.
	name string
	// patch makes a patch of the stored settings from the form. It adds what is wrong to the draft.
	patch func(v *page.Visit, d *draft) ([]byte, error)
	show  func(v *page.Visit, d draft, problem string) (view.Page, error)
}

func (p *pages) part(name string) part {
	if name == "triggers" {
		return part{name, p.triggersPatch, p.showTriggers}
	}
	return part{"", p.deployPatch, p.showDeploy}
}

func (a part) path(v *page.Visit) string {
	if a.name == "" {
		return path(v.Stack)
	}
	return path(v.Stack, a.name)
}

// send answers to a form: with its review, or again with what is wrong or not complete yet.
func (p *pages) send(name string) func(v *page.Visit) (page.Answer, error) {
	return func(v *page.Visit) (page.Answer, error) {
		at := p.part(name)
		d, _, _, err := p.begin(v)
		if err != nil {
			return page.Answer{}, err
		}
		patch, err := at.patch(v, &d)
		if text, ok := page.Correctable(err); ok {
			d.wrong("", text)
		} else if err != nil {
			return page.Answer{}, err
		} else {
			d.apply(patch)
		}
		if err := p.compare(v, &d); err != nil {
			return page.Answer{}, err
		}
		d.Review = v.Form("do") == "" && v.Form("remove") == "" && v.Form("use") == "" && v.Form("unuse") == ""
		if d.Review && len(d.Problems) > 0 {
			shown, err := at.show(v, d, d.Problems[""])
			return page.Again(shown), err
		}
		shown, err := at.show(v, d, "")
		return page.Once(shown), err
	}
}

// save stores what a review showed.
func (p *pages) save(v *page.Visit) (page.Answer, error) {
	at := p.part(v.Form("part"))
	version, err := strconv.ParseInt(v.Form("version"), 10, 64)
	if err != nil {
		err = deployments.ErrSettingsChanged
	} else {
		stored, failed := p.Deployments.PatchReviewed(v.Context(), v.Who, v.Stack, []byte(v.Form("patch")), sourceConsole, version)
		if err = failed; err == nil {
			return page.See(at.path(v) + "?" + savedVersion + "=" + strconv.FormatInt(stored.Version, 10)), nil
		}
	}
	text, ok := page.Correctable(err)
	if !ok {
		return page.Answer{}, err
	}
	if errors.Is(err, deployments.ErrSettingsChanged) {
		text = "The settings have changed since you opened the page. Your values are still here: review them again."
	}
	d, _, _, err := p.begin(v)
	if err != nil {
		return page.Answer{}, err
	}
	d.apply([]byte(v.Form("patch")))
	d.Problems = map[string]string{"": text}
	if err := p.compare(v, &d); err != nil {
		return page.Answer{}, err
	}
	d.Stale = false // the problem says it
	shown, err := at.show(v, d, text)
	return page.Again(shown), err
}

// clearCache discards the workspaces of the stack.
func (p *pages) clearCache(v *page.Visit) (page.Answer, error) {
	return answer(v, p.Deployments.ClearCache(v.Context(), v.Who, v.Stack), "", p.deployPage)
}
