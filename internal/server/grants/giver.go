package grants

import (
	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// Giver is what a grant gives: the outputs of a stack, or an environment.
type Giver struct {
	kind                    store.GrantKind
	id, ref, orgID, orgName string
	may                     string // what the target may do
	scope                   scope.Set
	subject                 audit.Subject
	added, changed, removed audit.Action
}

// OfStack returns a stack, of which jobs may read the outputs.
func OfStack(st store.Stack) Giver {
	return Giver{
		store.OutputGrants, st.ID, st.Ref(), st.OrgID, st.OrgName, "read the outputs", st.Scope(), audit.Stack(st),
		audit.StackGrantAdded, audit.StackGrantChanged, audit.StackGrantRemoved,
	}
}

// OfEnvironment returns an environment, which jobs may open.
func OfEnvironment(e store.Environment) Giver {
	return Giver{
		store.EnvironmentGrants, e.ID, e.Ref(), e.OrgID, e.OrgName, "open the environment", scope.Organization(e.OrgID), audit.Environment(e),
		audit.EnvironmentGrantAdded, audit.EnvironmentGrantSet, audit.EnvironmentGrantEnded,
	}
}
