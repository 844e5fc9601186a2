package stack

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/stacks"
)

// shownResources bounds the resources on a page.
const shownResources = 1000

// resourceRow is a resource in the list.
type resourceRow struct{ URN, Type, Name, ID string }

func (p *pages) resources(v *page.Visit) (view.Page, error) {
	out, err := p.Heads.Page(v, Resources)
	if err != nil {
		return out, err
	}
	search, kind := strings.ToLower(v.Query("q")), v.Query("type")
	var rows []resourceRow
	var types []string
	total, matching := 0, 0
	if v.Stack.StateBlob != "" {
		all, err := p.Stacks.Resources(v.Context(), v.Stack, 0)
		if err != nil {
			return out, err
		}
		for raw := range all.All() {
			var r struct{ URN, Type, ID string }
			if err := json.Unmarshal(raw, &r); err != nil {
				return out, fmt.Errorf("reading a resource: %w", err)
			}
			total++
			if !slices.Contains(types, r.Type) && len(types) < 200 {
				types = append(types, r.Type)
			}
			if kind != "" && r.Type != kind || search != "" && !strings.Contains(strings.ToLower(r.URN+" "+r.ID), search) {
				continue
			}
			if matching++; len(rows) < shownResources {
				rows = append(rows, resourceRow{r.URN, r.Type, nameOf(r.URN), r.ID})
			}
		}
	}
	slices.Sort(types)
	out.Title = "Resources of " + v.Stack.Project + "/" + v.Stack.Name
	out.Body = resourceList(v.Stack, rows, total, matching, v.Query("q"), kind, types)
	return out, nil
}

func (p *pages) resource(v *page.Visit) (view.Page, error) {
	out, err := p.Heads.Page(v, Resources)
	if err != nil {
		return out, err
	}
	urn := cmp.Or(v.Param("urn"), v.Query("urn"))
	all, err := p.Stacks.Resources(v.Context(), v.Stack, 0)
	if err != nil {
		return out, err
	}
	raw, err := all.Find(urn)
	if err != nil {
		return out, err
	}
	public, err := stacks.PublicResource(raw)
	if err != nil {
		return out, err
	}
	var r resourceDetail
	if err := json.Unmarshal(public, &r); err != nil {
		return out, fmt.Errorf("reading a resource: %w", err)
	}
	for other := range all.All() {
		var o struct {
			URN          string
			Parent       string
			Dependencies []string
		}
		if json.Unmarshal(other, &o) == nil && (o.Parent == urn || slices.Contains(o.Dependencies, urn)) && len(r.Dependents) < 100 {
			r.Dependents = append(r.Dependents, o.URN)
		}
	}
	out.Title = nameOf(urn)
	out.Body = resourceView(v.Stack, r)
	return out, nil
}

type resourceDetail struct {
	URN, Type, ID, Parent string
	Protect, Delete       bool
	Dependencies          []string
	Inputs, Outputs       json.RawMessage
	Dependents            []string `json:"-"`
}
