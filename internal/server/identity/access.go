package identity

import (
	"maps"
	"slices"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
)

// The roles of users in an organization.
const (
	RoleAdmin          = "admin"              // administers the organization and all its stacks
	RoleMember         = "member"             // has the organization's default permission on every stack
	RoleBillingManager = "billing-manager"    // sees the organization; has only granted permissions on stacks
	RoleCollaborator   = "stack-collaborator" // has only granted permissions on stacks
)

// Roles returns the roles of users in an organization.
func Roles() []string { return []string{RoleAdmin, RoleMember, RoleBillingManager, RoleCollaborator} }

// This file contains all decisions about the permissions of callers.

// abilitiesOf lists the abilities of users with a permission on a stack.
var abilitiesOf = map[store.Permission]Ability{
	store.ReadPermission:  reading,
	store.WritePermission: reading | Write | Operate,
	store.AdminPermission: everything,
}

// Readers can run previews, which decrypt secrets.
const reading = StateRead | Outputs | Decrypt | DecryptConfig | Encrypt | Preview

// Role returns a caller's role in an organization, or "". A team has the rights of a collaborator. An
// administrator of the server has no role in organizations without being a member.
func (p Principal) Role(orgID string) string {
	switch {
	case p.Kind == KindOrg && p.Org.ID != orgID:
		return ""
	case p.Kind == KindOrg && p.TeamID != "":
		return RoleCollaborator
	case p.Kind == KindOrg && p.Admin, p.operator:
		return RoleAdmin
	case p.Kind == KindOrg:
		return RoleMember
	default:
		return p.Roles[orgID]
	}
}

// limit gives a job's user at most a role in the job's organization.
func (p *Principal) limit(role string) {
	// The order in which roles include each other. The last two differ only outside stacks.
	order := []string{RoleAdmin, RoleMember, RoleBillingManager, RoleCollaborator}
	have := p.Role(p.Org.ID)
	if have != "" && slices.Index(order, have) < slices.Index(order, role) {
		have = role
	}
	p.User.SiteAdmin = false
	p.Roles = map[string]string{p.Org.ID: have}
}

// CanReadOrg reports whether a caller may see an organization. Only users and organization tokens
// may read an organization's lists. A job may read only its own organization.
func (p Principal) CanReadOrg(orgID string) bool {
	switch p.Kind {
	case KindUser:
		role := p.Role(orgID)
		return role != "" && role != RoleCollaborator
	case KindOrg, KindJob:
		return p.Org.ID == orgID
	default:
		return false
	}
}

// CanReadPools reports whether a caller may see an organization's agent pools and their agents.
func (p Principal) CanReadPools(orgID string) bool { return p.Kind != KindJob && p.CanReadOrg(orgID) }

// CanAdminOrg reports whether a caller may change an organization's members, teams, tokens and
// agent pools.
func (p Principal) CanAdminOrg(orgID string) bool {
	return (p.Kind == KindUser || p.Kind == KindOrg) && p.Role(orgID) == RoleAdmin
}

// CanAdminServer reports whether a caller administers the whole server: sees the names and sizes of all
// organizations, sets their quotas, creates, renames and deletes them. It includes nothing that is in them.
func (p Principal) CanAdminServer() bool { return p.Kind == KindUser && p.User.SiteAdmin }

// CheckSuccessor returns an error if a caller who administers the server would take over what another user owns. The
// caller would get access to organizations with it.
func (p Principal) CheckSuccessor(login string) error {
	if login != p.User.Login {
		return nil
	}
	return fault.Forbidden("you cannot take over what another user owns: name another user, or let the operator do it on the server's machine")
}

// CanGrant reports whether a caller may make changes that keep acting: members, teams, permissions,
// tokens, agent pools, trusted issuers and their policies, schedules, deployment settings, webhooks,
// integrations, approvals, and a user's preferences. A caller with an exchanged token may not, because
// the change could outlive the token.
func (p Principal) CanGrant() bool { return !p.Exchanged }

// CanCreateStack reports whether a caller may create stacks. The creator of a stack administers it.
func (p Principal) CanCreateStack(orgID string) bool {
	switch p.Kind {
	case KindUser:
		role := p.Role(orgID)
		return role == RoleAdmin || role == RoleMember
	case KindOrg:
		return p.Org.ID == orgID
	default:
		return false
	}
}

// CanTransfer reports whether a caller may move a stack to another organization.
func (p Principal) CanTransfer(s store.Stack, orgID string) bool {
	return p.Can(s, Manage) && p.CanAdminOrg(s.OrgID) && p.CanAdminOrg(orgID) && p.CanGrant()
}

// Creator returns the id that stacks record for the caller who created them. It is "" for a team,
// which gets a permission on the stack instead.
func (p Principal) Creator() string {
	switch {
	case p.User.ID != "":
		return p.User.ID
	case p.Kind == KindOrg && p.TeamID == "":
		return p.Org.ID
	default:
		return ""
	}
}

// On returns the caller with the permission on a stack that was granted to the user or team. Call
// it before [Principal.Can] and [Principal.Check].
func (p Principal) On(tx *store.Tx, s store.Stack) (Principal, error) {
	p.grantedOn, p.granted = s.ID, store.NoPermission
	if p.Role(s.OrgID) == "" || p.permission(s) == store.AdminPermission {
		return p, nil
	}
	var err error
	p.granted, err = tx.Granted(s.ID, p.User.ID, p.TeamID)
	return p, err
}

// Granted returns the principal with a permission on a stack that was read together with the stack;
// see [store.Tx.StackFor].
func (p Principal) Granted(s store.Stack, granted store.Permission) Principal {
	p.grantedOn, p.granted = s.ID, store.NoPermission
	if p.Role(s.OrgID) != "" {
		p.granted = granted
	}
	return p
}

// Lent returns the principal of a job with the ability to read the outputs of a stack, if a grant covers the job's
// deployment; see [store.Tx.StackForJob].
func (p Principal) Lent(s store.Stack, lent bool) Principal {
	p.lentOn = ""
	if lent {
		p.lentOn = s.ID
	}
	return p
}

// permission returns the permission on a stack of a user, an organization or a team.
func (p Principal) permission(s store.Stack) store.Permission {
	granted := store.NoPermission
	if p.grantedOn == s.ID {
		granted = p.granted
	}
	switch role := p.Role(s.OrgID); {
	case role == "":
		return store.NoPermission
	case role == RoleAdmin, s.CreatedBy != "" && s.CreatedBy == p.Creator():
		return store.AdminPermission
	case role == RoleMember:
		return max(granted, s.OrgPermission)
	default:
		return granted
	}
}

func (p Principal) abilities(s store.Stack) Ability {
	switch p.Kind {
	case KindUser, KindOrg:
		return abilitiesOf[p.permission(s)]
	case KindJob:
		if p.Org.ID != s.OrgID {
			return 0
		}
		a := p.Scope[s.ID]
		if abilitiesOf[p.permission(s)]&Outputs != 0 {
			a |= p.Scope[OtherStacks] & Outputs
		}
		if p.lentOn != "" && p.lentOn == s.ID {
			a |= Outputs
		}
		return a
	default:
		return 0
	}
}

// Can reports whether a caller has one of the needed abilities.
func (p Principal) Can(s store.Stack, need Ability) bool { return p.abilities(s)&need != 0 }

// Check returns nil if a caller has one of the needed abilities, and otherwise the error for the
// response. To a job that may read only the stack's outputs, Check reports the stack as missing.
func (p Principal) Check(s store.Stack, need Ability) error {
	switch {
	case p.Can(s, need):
		return nil
	case !p.Can(s, everything&^Outputs):
		return p.NoStack(s.OrgName, s.Project, s.Name)
	case p.Kind != KindJob:
		return fault.Forbidden("%s may not do this with stack %s: it needs the permission %q on the stack", p.Name(), s.Ref(), needed(need))
	case need&^(Operate|Manage) == 0:
		return fault.Forbidden("only users and organization tokens may do this with stack %s, and this is the token of a deployment", s.Ref())
	default:
		return fault.Forbidden("%s may not do this with stack %s: the token of this deployment lacks the ability %q", p.Name(), s.Ref(), need)
	}
}

// needed returns the name of the lowest permission with one of the needed abilities.
func needed(need Ability) string {
	switch {
	case abilitiesOf[store.ReadPermission]&need != 0:
		return "read"
	case abilitiesOf[store.WritePermission]&need != 0:
		return "write"
	default:
		return "admin"
	}
}

// NoStack returns the error for a stack that does not exist or is hidden.
func (p Principal) NoStack(org, project, name string) error {
	const text = "stack '%s/%s/%s' does not exist, or you may not see it"
	if p.Kind == KindJob && p.Role(p.Org.ID) == "" {
		return fault.NotFound(text+": a deployment that no member of the organization requested sees only its own stack, and outputs that grants let it read", org, project, name)
	}
	return fault.NotFound(text, org, project, name)
}

// Reach selects the stacks that a caller may list in the given organizations, or in all of the
// caller's organizations if none is given. A job may list only its own stack, regardless of its user.
func (p Principal) Reach(orgIDs ...string) store.Reach {
	if len(orgIDs) == 0 {
		orgIDs = p.orgs()
	}
	if p.Kind == KindJob {
		if !slices.Contains(orgIDs, p.Org.ID) {
			return store.Reach{}
		}
		return store.Reach{One: []string{p.Org.ID}, StackID: p.StackID}
	}
	r := store.Reach{Creator: p.Creator(), UserID: p.User.ID, TeamID: p.TeamID}
	for _, id := range orgIDs {
		switch role := p.Role(id); {
		case role == RoleAdmin:
			r.All = append(r.All, id)
		case role == RoleMember:
			r.ByDefault = append(r.ByDefault, id)
		case role != "":
			r.Granted = append(r.Granted, id)
		}
	}
	return r
}

// ReachOfDeleted selects the deleted stacks of an organization that a caller may restore: those that the caller
// administered. A job may restore none.
func (p Principal) ReachOfDeleted(orgID string) store.Reach {
	if p.Kind != KindUser && p.Kind != KindOrg {
		return store.Reach{}
	}
	r := p.Reach(orgID)
	r.Least = store.AdminPermission
	return r
}

func (p Principal) orgs() []string {
	if p.Kind == KindUser && p.Org.ID == "" {
		return slices.Sorted(maps.Keys(p.Roles))
	}
	return []string{p.Org.ID}
}

// MayRun reports whether a user may still run an update that needs an ability. The token of a
// running update is valid only as long.
func MayRun(tx *store.Tx, userID, stackID string, need Ability) (bool, error) {
	u, st, role, err := tx.UserOnStack(userID, stackID)
	if err != nil {
		return false, err
	}
	p := Principal{Kind: KindUser, User: u, Roles: map[string]string{st.OrgID: role}}
	if p.Can(st, need) {
		return true, nil
	}
	if p, err = p.On(tx, st); err != nil {
		return false, err
	}
	return p.Can(st, need), nil
}

// MayAdminister reports whether a user, or the holder of a token if tokenID is not "", still administers an
// organization.
func MayAdminister(tx *store.Tx, userID, tokenID, orgID string) (bool, error) {
	if tokenID == "" {
		p, err := OfUser(tx, userID)
		return err == nil && p.CanAdminOrg(orgID), store.IgnoreMissing(err)
	}
	c, err := tx.CredentialByID(tokenID)
	if err != nil {
		return false, store.IgnoreMissing(err)
	}
	p, ok := principal(c)
	return ok && !expired(c.ExpiresAt, c.Now) && p.CanAdminOrg(orgID), nil
}

// Keeps reports whether a caller still has each role that it had before.
func (p Principal) Keeps(before Principal) bool {
	for org, role := range before.Roles {
		if p.Roles[org] != role {
			return false
		}
	}
	return p.User.SiteAdmin || !before.User.SiteAdmin
}

// StillAdministers reports whether a caller has not lost the administration of an organization meanwhile. The operator
// always has it.
func (p Principal) StillAdministers(tx *store.Tx, orgID string) (bool, error) {
	if p.operator {
		return true, nil
	}
	return MayAdminister(tx, p.User.ID, p.TokenID, orgID)
}

// TokenMay reports whether a token's holder still has an ability on a stack. A deleted token has
// none. An expired token keeps its abilities, because a clock must not interrupt work that has begun.
func TokenMay(tx *store.Tx, tokenID, stackID string, need Ability) (bool, error) {
	c, err := tx.CredentialByID(tokenID)
	if err != nil {
		return false, store.IgnoreMissing(err)
	}
	p, ok := principal(c)
	if !ok {
		return false, nil
	}
	st, err := tx.Stack(stackID)
	if err != nil {
		return false, err
	}
	on, err := p.On(tx, st)
	return err == nil && on.Can(st, need), err
}
