package stacksettings

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	environmentpages "workflowagent/internal/server/console/environments"
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

const (
	environmentsMember = "operationContext.environments"
	// suggestedEnvironments and foundEnvironments are the numbers of names that the form suggests, and that a search finds.
	suggestedEnvironments = 100
	foundEnvironments     = 20
)

// usedEnvironment is an environment that settings name.
type usedEnvironment struct {
	Name string // with its version
	Href string // of its page, or "" if the visitor does not see the environment
	New  bool   // it is not in the stored settings
}

// environmentsPatch returns the environments of a form, as a part of a patch. A name that is not complete is a search.
func (p *pages) environmentsPatch(v *page.Visit, d *draft) (any, error) {
	names := slices.DeleteFunc(v.Lines("environments"), func(name string) bool { return name == v.Form("unuse") })
	add := strings.TrimSpace(cmp.Or(v.Form("use"), v.Form("environment")))
	if add != "" && v.Form("unuse") == "" {
		name, err := p.findEnvironment(v, d, add)
		if err != nil {
			return nil, err
		}
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	} else if v.Form("do") == "use" {
		d.wrong(environmentsMember, "Name an environment, or a part of its name.")
	}
	if len(names) == 0 {
		return nil, nil //nolint:nilnil // null removes them
	}
	return names, nil
}

// findEnvironment returns the name of the environment that a text names, or which alone matches it. Otherwise, it adds to the
// draft what matches.
func (p *pages) findEnvironment(v *page.Visit, d *draft, text string) (string, error) {
	path, version, versioned := strings.Cut(text, "@")
	if versioned {
		version = "@" + version
	}
	if workflow.CheckEnvironment(text) == nil {
		e, err := p.visibleEnvironment(v, text)
		if err != nil || e != nil {
			return text, err
		}
	}
	list, more, err := p.Environments.Overview(v.Context(), v.Who, v.Stack.OrgID, environments.Overview{Words: strings.Fields(path), Limit: foundEnvironments})
	switch {
	case err != nil:
		return "", err
	case len(list) == 1 && workflow.CheckEnvironment(nameOf(list[0])+version) == nil:
		return nameOf(list[0]) + version, nil
	case len(list) == 0:
		d.wrong(environmentsMember, "No environment that you may see matches "+text+".")
	case more != nil:
		d.wrong(environmentsMember, fmt.Sprintf("More than %d environments match %s. These are the first; write more of the name.", foundEnvironments, text))
	default:
		d.wrong(environmentsMember, "Several environments match "+text+". Choose one.")
	}
	d.Wanted = text
	for _, e := range list {
		d.Found = append(d.Found, nameOf(e)+version)
	}
	return "", nil
}

func nameOf(e environments.Listed) string { return e.Project + "/" + e.Name }

// visibleEnvironment returns the environment with a name, or nil if the visitor does not see one.
func (p *pages) visibleEnvironment(v *page.Visit, text string) (*store.Environment, error) {
	ref, err := environments.ParseReference(text)
	if err != nil {
		return nil, nil //nolint:nilerr,nilnil // no environment has such a name
	}
	for _, need := range []store.EnvironmentPermission{store.ReadEnvironment, store.NoEnvironment} {
		e, err := p.Environments.Find(v.Context(), v.Who, need, v.Org.Name, ref.Project, ref.Name)
		switch kind := fault.KindOf(err); {
		case err == nil && (need > store.NoEnvironment || v.Who.SeesEnvironment(store.GrantedEnvironment{Environment: e})):
			return &e, nil
		case err != nil && kind != fault.KindNotFound && kind != fault.KindForbidden:
			return nil, err
		}
	}
	return nil, nil //nolint:nilnil // nil means that the visitor sees none
}

// describeEnvironments sets what the page shows of environments.
func (p *pages) describeEnvironments(v *page.Visit, m *deployModel) error {
	for _, name := range m.Set.Environments() {
		used := usedEnvironment{Name: name, New: !slices.Contains(m.D.base().Environments(), name)}
		e, err := p.visibleEnvironment(v, name)
		if err != nil {
			return err
		}
		if e != nil {
			used.Href = environmentpages.Path(*e)
		}
		m.Environments = append(m.Environments, used)
	}
	if !m.Operate {
		return nil
	}
	list, _, err := p.Environments.Overview(v.Context(), v.Who, v.Stack.OrgID, environments.Overview{Limit: suggestedEnvironments})
	for _, e := range list {
		m.Suggested = append(m.Suggested, nameOf(e))
	}
	return err
}
