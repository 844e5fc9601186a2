package identity

import (
	"slices"

	"workflowagent/internal/server/store"
)

// RoleAdmin is the role of members who administer their organization.
const RoleAdmin = "admin"

// RoleMember is the role of members who work with stacks.
const RoleMember = "member"

// This file is the only place that decides what a caller may do.

// CanReadOrg tells whether a caller may see an organization and its lists.
func (p Principal) CanReadOrg(orgID string) bool {
	switch p.Kind {
	case KindUser:
		return p.User.SiteAdmin || p.Roles[orgID] != ""
	case KindOrg:
		return p.Org.ID == orgID
	case KindJob:
		return p.Org.ID == orgID && (p.User.ID == "" || p.User.SiteAdmin || p.Roles[orgID] != "")
	default:
		return false
	}
}

// CanAdminOrg tells whether a caller may change an organization: its tokens,
// its agent pools.
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

// CanReadStack tells whether a caller may read a stack, its state and secrets.
func (p Principal) CanReadStack(s store.Stack) bool {
	if p.Kind == KindJob && p.StackID == s.ID {
		return true
	}
	return p.CanReadOrg(s.OrgID)
}

// CanWriteStack tells whether a caller may change a stack. A job may change
// only the stack that it was started for.
func (p Principal) CanWriteStack(s store.Stack) bool {
	switch p.Kind {
	case KindUser, KindOrg:
		return p.CanReadOrg(s.OrgID)
	case KindJob:
		return p.StackID == s.ID
	default:
		return false
	}
}

// CanManageStack tells whether a caller may decide about a stack as a whole:
// delete or rename it, set its deployment settings, start deployments. A job
// must not, or a program could change what the next deployment of its stack
// runs.
func (p Principal) CanManageStack(s store.Stack) bool {
	return p.Kind != KindJob && p.CanWriteStack(s)
}

// CanDeleteStack tells whether a caller may delete a stack. A job may, when its
// deployment was told to remove the stack after destroying it.
func (p Principal) CanDeleteStack(s store.Stack) bool {
	return p.CanManageStack(s) || p.Kind == KindJob && p.Admin && p.StackID == s.ID
}

// CanCreateStack tells whether a caller may create stacks.
func (p Principal) CanCreateStack(orgID string) bool {
	return (p.Kind == KindUser || p.Kind == KindOrg) && p.CanReadOrg(orgID)
}

// CanGrant tells whether a caller's identity lasts, which is the condition for
// changing whatever gives access beyond the life of a token: tokens, agent
// pools, trusted issuers and their policies, a user's preferences. A token that
// was exchanged for an identity token must not, or it could outlive itself.
func (p Principal) CanGrant() bool { return !p.Exchanged }

// ReadableOrgs returns the organizations whose stacks a caller may list.
func (p Principal) ReadableOrgs() []string {
	var ids []string
	if p.Org.ID != "" && p.CanReadOrg(p.Org.ID) {
		ids = append(ids, p.Org.ID)
	}
	if p.Kind == KindUser {
		for id := range p.Roles {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}
