package drift

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"workflowagent/internal/server/console/page"
	detection "workflowagent/internal/server/deployments/drift"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/stacks/changes"
	"workflowagent/internal/server/store"
)

// The operations with which the preview of a refresh follows what happened to a resource.
const (
	opDeleted = "delete"
	opCreated = "create"
	opUpdated = "update"
)

// Found is what the newest detection of a stack found.
type Found struct {
	// Detection is the preview of a refresh.
	Detection store.Update
	// Resources are those that differ, in the order in which the page lists them.
	Resources []Resource
	// Unlisted reports that there are further resources, or that the server no longer knows which ones.
	Unlisted bool
}

// Resource is a resource that differs from the state.
type Resource struct{ changes.Row }

// Find returns what the newest detection of a visitor's stack found, or nil if it found no drift, or if the drift has ended.
func Find(v *page.Visit, d *detection.Service, s *stacks.Service) (*Found, error) {
	status, err := d.Status(v.Context(), v.Stack)
	if err != nil || !status.Detected {
		return nil, err
	}
	return read(v, s, *status.Detection)
}

// read reads what a detection reported about resources.
func read(v *page.Visit, s *stacks.Service, u store.Update) (*Found, error) {
	f := &Found{Detection: u, Unlisted: u.EventsExpired}
	tree, err := s.Changes(v.Context(), v.Who, v.Stack, u)
	if err != nil {
		return nil, err
	}
	for _, r := range tree.Rows {
		if r.Op != "" && r.Op != "refresh" && store.Drifts(r.Op) {
			f.Resources = append(f.Resources, Resource{r})
		}
	}
	f.Unlisted = f.Unlisted || tree.Omitted > 0 || len(f.Resources) == 0
	slices.SortStableFunc(f.Resources, func(a, b Resource) int {
		return cmp.Or(cmp.Compare(a.group(), b.group()), cmp.Compare(b.replaced(), a.replaced()))
	})
	return f, nil
}

// Deleted reports that the resource no longer exists.
func (r Resource) Deleted() bool { return r.Op == opDeleted }

// Created reports that the resource exists, but that the state does not contain it.
func (r Resource) Created() bool { return r.Op == opCreated || r.Op == "import" }

// Replaces reports that an update has to replace the resource to put it back, as its provider says.
func (r Resource) Replaces() bool {
	return slices.ContainsFunc(r.Diff, func(p changes.Property) bool { return strings.HasSuffix(p.Kind, "-replace") })
}

func (r Resource) replaced() int {
	if r.Replaces() {
		return 1
	}
	return 0
}

// group returns the place of the group of the resource.
func (r Resource) group() int {
	switch {
	case r.Deleted():
		return 0
	case r.Created():
		return 2
	default:
		return 1
	}
}

// Count returns the number of resources of which something is true.
func (f Found) Count(is func(Resource) bool) (n int) {
	for _, r := range f.Resources {
		if is(r) {
			n++
		}
	}
	return n
}

// dependents returns the numbers of resources that depend on those that must be replaced.
func dependents(v *page.Visit, s *stacks.Service, f Found) (map[string]int, error) {
	if f.Count(Resource.Replaces) == 0 || v.Stack.StateBlob == "" {
		return nil, nil //nolint:nilnil // nothing depends on nothing
	}
	numbers := map[string]int{}
	for _, r := range f.Resources {
		if r.Replaces() {
			numbers[r.URN] = 0
		}
	}
	all, err := s.Resources(v.Context(), v.Stack, 0)
	if err != nil {
		return nil, err
	}
	for raw := range all.All() {
		var r struct{ Dependencies []string }
		if json.Unmarshal(raw, &r) != nil {
			continue
		}
		for _, urn := range slices.Compact(slices.Sorted(slices.Values(r.Dependencies))) {
			if _, wanted := numbers[urn]; wanted {
				numbers[urn]++
			}
		}
	}
	return numbers, nil
}
