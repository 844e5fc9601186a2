package identity

import (
	"maps"
	"slices"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
)

// RoleAdmin is the role of organization administrators.
const RoleAdmin = "admin"

// RoleMember is the role of members who are not administrators.
const RoleMember = "member"

// This file contains all decisions about the permissions of callers.

// CanReadOrg reports whether a caller may see an organization. Only users and organization tokens
// may read an organization's lists. A job may read only its own organization.
func (p Principal) CanReadOrg(orgID string) bool {
	switch p.Kind {
	case KindUser:
		return p.isMember(orgID)
	case KindOrg, KindJob:
		return p.Org.ID == orgID
	default:
		return false
	}
}

func (p Principal) isMember(orgID string) bool {
	return p.User.SiteAdmin || p.Roles[orgID] != ""
}

// CanAdminOrg reports whether a caller may change an organization's tokens and agent pools.
func (p Principal) CanAdminOrg(orgID string) bool {
	switch p.Kind {
	case KindUser:
		return p.User.SiteAdmin || p.Roles[orgID] == RoleAdmin
	case KindOrg:
		return p.Org.ID == orgID && p.Admin
	default:
		return false
	}
}

// CanGrant reports whether a caller may change lasting access: tokens, agent pools, trusted issuers
// and their policies, and a user's preferences. A caller with an exchanged token may not, because
// the change could outlive the token.
func (p Principal) CanGrant() bool { return !p.Exchanged }

// CanCreateStack reports whether a caller may create stacks.
func (p Principal) CanCreateStack(orgID string) bool {
	return (p.Kind == KindUser || p.Kind == KindOrg) && p.CanReadOrg(orgID)
}

func (p Principal) abilities(s store.Stack) Ability {
	if !p.CanReadOrg(s.OrgID) {
		return 0
	}
	if p.Kind != KindJob {
		return everything
	}
	a := p.Scope[s.ID]
	if p.isMember(s.OrgID) {
		a |= p.Scope[OtherStacks] & Outputs
	}
	return a
}

// Can reports whether a caller has one of the needed abilities.
func (p Principal) Can(s store.Stack, need Ability) bool { return p.abilities(s)&need != 0 }

// Check returns nil if a caller has one of the needed abilities, and otherwise the error for the
// response. To a job that may read only the stack's outputs, Check reports the stack as missing.
func (p Principal) Check(s store.Stack, need Ability) error {
	switch {
	case p.Can(s, need):
		return nil
	case need == Manage && p.Can(s, everything&^Outputs):
		return fault.Forbidden("Forbidden: only users and organization tokens may do this with stack %s, and this is the token of a deployment", s.Ref())
	case p.Can(s, everything&^Outputs):
		return fault.Forbidden("Forbidden: %s may not do this with stack %s: the token of this deployment lacks the ability %q", p.Name(), s.Ref(), need)
	default:
		return p.NoStack(s.OrgName, s.Project, s.Name)
	}
}

// NoStack returns the error for a stack that does not exist or is hidden.
func (p Principal) NoStack(org, project, name string) error {
	const text = "Not Found: stack '%s/%s/%s' does not exist, or you may not see it"
	if p.Kind == KindJob && !p.isMember(p.Org.ID) {
		return fault.NotFound(text+": a deployment that no member of the organization requested sees only its own stack", org, project, name)
	}
	return fault.NotFound(text, org, project, name)
}

// ReadableOrgs returns the organizations whose stacks a caller may list. A job may list only its
// own organization's stacks.
func (p Principal) ReadableOrgs() []string {
	var ids []string
	if p.Org.ID != "" && p.CanReadOrg(p.Org.ID) {
		ids = append(ids, p.Org.ID)
	}
	if p.Kind == KindUser {
		ids = slices.AppendSeq(ids, maps.Keys(p.Roles))
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}
