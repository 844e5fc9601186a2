package identity

import (
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
)

// Environments is the key in a [Scope] for the environments of the token's organization that the token's user may
// open at the time of use.
const Environments = "environments"

// Configuration is the key in a [Scope] for the environment that the job's stack manages, which is part of the configuration of
// the stack. Jobs have it that run what is proven to come from the stack's repository.
const Configuration = "configuration"

// Organizations returns the ids of the organizations to which a caller belongs.
func (p Principal) Organizations() []string { return p.orgs() }

// CanCreateEnvironment reports whether a caller may create environments. The creator of an environment administers it.
func (p Principal) CanCreateEnvironment(orgID string) bool { return p.CanCreateStack(orgID) }

// OnEnvironment returns the permission of a caller on an environment. The job of a deployment has that of the user who
// requested it, but at most the one to open the environment, which grants can give it, too.
func (p Principal) OnEnvironment(e store.GrantedEnvironment) store.EnvironmentPermission {
	switch p.Kind {
	case KindUser, KindOrg:
		return p.onEnvironment(e)
	case KindJob:
		switch {
		case p.Scope[Configuration]&Outputs != 0 && p.configures(e, Decrypt):
			return store.OpenEnvironment
		case p.Org.ID != e.OrgID:
		case e.Lent:
			return store.OpenEnvironment
		case p.Scope[Environments]&Outputs != 0:
			return min(p.onEnvironment(e), store.OpenEnvironment)
		}
	}
	return store.NoEnvironment
}

// configures reports whether a caller is a job with an ability on the stack that manages an environment.
func (p Principal) configures(e store.GrantedEnvironment, need Ability) bool {
	return p.Kind == KindJob && p.Org.ID == e.OrgID && e.ManagedBy != "" && p.Scope[e.ManagedBy]&need != 0
}

// CanDraft reports whether a caller may evaluate changes of an environment that a stack manages.
func (p Principal) CanDraft(e store.GrantedEnvironment) bool { return p.canChange(e, Preview|Write) }

// CanPublish reports whether an update of a caller may publish changes of the environment that its stack manages.
func (p Principal) CanPublish(e store.GrantedEnvironment) bool { return p.canChange(e, Write) }

// ActsAs reports whether what a caller drafts acts for the environment towards others, with its identity tokens. The draft of
// another branch does not.
func (p Principal) ActsAs(e store.GrantedEnvironment) bool {
	return p.Kind != KindJob || p.Scope[Configuration]&Write != 0 || p.requestedByWriter(e)
}

// requestedByWriter reports whether a user who may change an environment has requested the job.
func (p Principal) requestedByWriter(e store.GrantedEnvironment) bool {
	return p.Scope[Environments]&Outputs != 0 && p.onEnvironment(e) >= store.WriteEnvironment
}

// canChange reports whether a caller may change an environment that a stack manages, with an update of the stack. A job may if the
// origin of what it runs is proven, or if the user who requested it may.
func (p Principal) canChange(e store.GrantedEnvironment, need Ability) bool {
	if !p.configures(e, need) {
		return p.OnEnvironment(e) >= store.WriteEnvironment
	}
	own := Outputs // also other branches evaluate their file
	if need == Write {
		own = Write // but only what the settings name is published without a user
	}
	return p.Scope[Configuration]&own != 0 || p.requestedByWriter(e)
}

func (p Principal) onEnvironment(e store.GrantedEnvironment) store.EnvironmentPermission {
	switch role := p.Role(e.OrgID); {
	case role == "":
		return store.NoEnvironment
	case role == RoleAdmin, e.CreatedBy != "" && e.CreatedBy == p.Creator():
		return store.AdminEnvironment
	case role == RoleMember:
		return max(e.Granted, e.OrgPermission)
	default:
		return e.Granted
	}
}

// SeesEnvironments reports whether a caller may know the names of all environments of an organization: callers who see the
// organization, except the tokens of its teams and jobs.
func (p Principal) SeesEnvironments(orgID string) bool {
	return p.Kind != KindJob && p.CanReadOrg(orgID) && p.TeamID == ""
}

// SeesEnvironment reports whether a caller may know that an environment exists.
func (p Principal) SeesEnvironment(e store.GrantedEnvironment) bool {
	return p.SeesEnvironments(e.OrgID) || p.OnEnvironment(e) > store.NoEnvironment
}

// EnvironmentReach returns which environments of an organization a user or an organization token sees, and on which it has
// permissions. It is empty for a job, whose user does not decide what other jobs open.
func (p Principal) EnvironmentReach(orgID string) store.EnvironmentReach {
	role := p.Role(orgID)
	if role == "" || p.Kind != KindUser && p.Kind != KindOrg {
		return store.EnvironmentReach{}
	}
	return store.EnvironmentReach{
		All: role == RoleAdmin, ByDefault: role == RoleMember, Names: p.SeesEnvironments(orgID), Creator: p.Creator(), UserID: p.User.ID, TeamID: p.TeamID,
	}
}

// CheckEnvironment returns nil if a caller has a permission on an environment, and otherwise the error for the response.
func (p Principal) CheckEnvironment(e store.GrantedEnvironment, need store.EnvironmentPermission) error {
	switch {
	case p.OnEnvironment(e) >= need:
		return nil
	case !p.SeesEnvironment(e):
		return p.NoEnvironment(e.OrgName, e.Project, e.Name)
	case p.Kind == KindJob:
		return fault.Forbidden("only users and organization tokens may do this with environment %s, and this is the token of a deployment", e.Ref())
	default:
		return fault.Forbidden("%s may not do this with environment %s: it needs the permission %q on the environment", p.Name(), e.Ref(), need.String())
	}
}

// NoEnvironment returns the error for an environment that does not exist or is hidden.
func (p Principal) NoEnvironment(org, project, name string) error {
	return fault.NotFound("environment '%s/%s/%s' does not exist, or you may not see it", org, project, name)
}
