package policies

import (
	"slices"

	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
)

// maxEnvironments is the number of environments that a group can give to a pack.
const maxEnvironments = 20

// opened are the environments that evaluations of a group open for a pack.
type opened struct {
	ids     []string
	changed bool // since the group has enabled the pack
}

// environments returns the environments of a reference. The group keeps their ids: another environment that gets the name of
// a deleted one is not opened. Who changes a group administers the organization, and so all its environments.
func (c *changing) environments(pack store.PolicyPack, ref PackRef) (opened, error) {
	var o opened
	if len(ref.Environments) > maxEnvironments {
		return o, fault.Invalid("policy pack %s can have at most %d environments", ref.Name, maxEnvironments)
	}
	for _, name := range ref.Environments {
		r, err := environments.ParseReference(name)
		if err != nil {
			return o, err
		}
		e, err := c.tx.EnvironmentFor(c.org.Name, r.Project, r.Name, "", "")
		if err != nil {
			return o, store.IfMissing(err, fault.NotFound("organization %s has no environment %s/%s, which policy pack %s is to have", c.org.Name, r.Project, r.Name, ref.Name))
		}
		if !slices.Contains(o.ids, e.ID) {
			o.ids = append(o.ids, e.ID)
		}
	}
	slices.Sort(o.ids)
	before, err := c.tx.PackEnvironments(c.group.ID, pack.ID)
	slices.Sort(before)
	o.changed = !slices.Equal(before, o.ids)
	return o, err
}
