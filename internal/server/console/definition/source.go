package definition

import (
	"context"
	"strings"

	"workflowagent/internal/esc/wire"
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/environments/complete"
	"workflowagent/internal/server/environments/opening"
	"workflowagent/internal/server/environments/providers"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
)

// source is what a visitor may use in a definition: only what the visitor may see.
type source struct {
	p *pages
	v *page.Visit
	e store.Environment
}

// suggested is the number of environments, stacks or versions that the server looks up for a list of suggestions.
const suggested = 300

// Environments implements [complete.Source].
func (s source) Environments(ctx context.Context, text string) ([]string, error) {
	list, _, err := s.p.Deps.Environments.Overview(ctx, s.v.Who, s.v.Org.ID, environments.Overview{
		Words: strings.FieldsFunc(text, func(r rune) bool { return r == '/' || r == ' ' }), Order: store.EnvironmentsByName, Limit: suggested, Readable: true,
	})
	var names []string
	for _, e := range list {
		if e.ID != s.e.ID && e.Permission >= store.ReadEnvironment {
			names = append(names, e.Project+"/"+e.Name)
		}
	}
	return names, err
}

// Versions implements [complete.Source].
func (s source) Versions(ctx context.Context, name string) ([]string, error) {
	ref, err := environments.ParseReference(name)
	if err != nil {
		return nil, nil //nolint:nilerr // the name is not complete
	}
	e, err := s.p.Deps.Environments.Find(ctx, s.v.Who, store.ReadEnvironment, s.v.Org.Name, ref.Project, ref.Name)
	if kind := fault.KindOf(err); kind == fault.KindNotFound || kind == fault.KindForbidden {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	tags, err := s.p.Deps.Environments.VersionTags(ctx, e, "", "", suggested)
	var names []string
	for _, t := range tags {
		names = append(names, t.Name)
	}
	return names, err
}

// Stacks implements [complete.Source].
func (s source) Stacks(ctx context.Context) ([]string, error) {
	return s.p.Deps.Stacks.Names(ctx, s.v.Who, s.v.Org.ID, suggested)
}

// Providers implements [complete.Source].
func (s source) Providers() []complete.Provider {
	var list []complete.Provider
	for _, p := range providers.All() {
		list = append(list, complete.Provider{Name: p.Name, Description: p.Description, Inputs: p.Inputs})
	}
	return list
}

// Values implements [complete.Source].
func (s source) Values(ctx context.Context, definition string) (wire.Values, error) {
	d, err := s.p.Opening.Draft(ctx, s.v.Who, s.root(definition))
	if fault.KindOf(err) == fault.KindInvalid {
		return nil, nil // the definition is too large or takes too long
	}
	return d.Values, err
}

// root is what a definition of the environment is evaluated as.
func (s source) root(definition string) opening.Root {
	return opening.Root{Org: s.v.Org, Environment: &s.e, Definition: definition, Revision: s.e.LastNumber}
}
