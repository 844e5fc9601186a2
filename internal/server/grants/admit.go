package grants

import (
	"time"

	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// Admit must be called when a stack gets a project or tags, in the transaction of the change. Grants to the project or to one
// of the tags then name the stack. They cover it only if the caller may read the granting stack, or open the environment: no
// caller gets secrets by creating, renaming, restoring or tagging a stack. after limits this to grants that were made after a
// time. It runs four statements, however many grants there are.
func Admit(tx *store.Tx, p identity.Principal, st store.Stack, project string, tags map[string]string, after time.Time) error {
	a := store.Admission{Stack: st, Project: project, Tags: tags, After: after}
	if p.CanGrant() { // an exchanged token extends none, because what the caller does outlives it
		a.Reach, a.Opens = p.Reach(st.OrgID), p.EnvironmentReach(st.OrgID)
	}
	return tx.AdmitToGrants(a)
}

// AdmitTags is [Admit] for a stack whose tags have changed.
func AdmitTags(tx *store.Tx, p identity.Principal, st store.Stack, before, after map[string]string) error {
	added := map[string]string{}
	for name, value := range after {
		if old, had := before[name]; !had || old != value {
			added[name] = value
		}
	}
	return Admit(tx, p, st, "", added, time.Time{})
}

// AdmitRestored is [Admit] for a stack that was deleted. The grants that covered it still do.
func AdmitRestored(tx *store.Tx, p identity.Principal, d store.DeletedStack) error {
	tags, err := tx.StackTags(d.StackID)
	if err != nil {
		return err
	}
	return Admit(tx, p, d.Stack(), d.Project, tags, d.DeletedAt)
}
