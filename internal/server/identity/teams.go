package identity

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/workflow"
)

// Lengths of a team's texts in bytes.
const (
	maxDisplayName = 200
	maxDescription = 2000
)

// TeamInfo is a team with its members, and the stacks and environments on which it has a permission, as far as the
// caller can see them.
type TeamInfo struct {
	store.Team
	Members      []store.TeamMember
	Stacks       []store.TeamStack
	Environments []store.TeamEnvironment
}

// Teams returns an organization's teams, ordered by name.
func (s *Service) Teams(ctx context.Context, p Principal, orgID string) ([]TeamInfo, error) {
	out, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]TeamInfo, error) {
		list, err := tx.Teams(orgID)
		if err != nil {
			return nil, err
		}
		return describe(tx, p, orgID, "", list)
	})
	return out, fault.While(err, "listing teams")
}

// TeamInfo returns a team of an organization.
func (s *Service) TeamInfo(ctx context.Context, p Principal, orgID, name string) (TeamInfo, error) {
	return store.Read(ctx, s.db, func(tx *store.Tx) (TeamInfo, error) {
		t, err := team(tx, orgID, name)
		if err != nil {
			return TeamInfo{}, err
		}
		out, err := describe(tx, p, orgID, t.ID, []store.Team{t})
		if err != nil {
			return TeamInfo{}, err
		}
		return out[0], nil
	})
}

func describe(tx *store.Tx, p Principal, orgID, teamID string, list []store.Team) ([]TeamInfo, error) {
	members, err := tx.TeamMembers(orgID, teamID)
	if err != nil {
		return nil, err
	}
	stacks, err := tx.TeamStacks(orgID, teamID, p.Reach(orgID))
	if err != nil {
		return nil, err
	}
	out := make([]TeamInfo, len(list))
	at := map[string]*TeamInfo{}
	for i, t := range list {
		out[i].Team = t
		at[t.ID] = &out[i]
	}
	for _, m := range members {
		at[m.TeamID].Members = append(at[m.TeamID].Members, m)
	}
	for _, st := range stacks {
		at[st.TeamID].Stacks = append(at[st.TeamID].Stacks, st)
	}
	environments, err := tx.TeamEnvironments(orgID, teamID)
	for _, e := range environments {
		if p.TeamID == "" || p.TeamID == e.TeamID { // as in [Principal.SeesEnvironment]
			at[e.TeamID].Environments = append(at[e.TeamID].Environments, e)
		}
	}
	return out, err
}

// Team returns a team of an organization.
func (s *Service) Team(ctx context.Context, orgID, name string) (store.Team, error) {
	return store.Read(ctx, s.db, func(tx *store.Tx) (store.Team, error) { return team(tx, orgID, name) })
}

func team(tx *store.Tx, orgID, name string) (store.Team, error) {
	t, err := tx.TeamByName(orgID, name)
	return t, store.IfMissing(err, fault.NotFound("the team %q does not exist", name))
}

func checkTeamText(displayName, description string) error {
	if len(displayName) > maxDisplayName || len(description) > maxDescription {
		return fault.Invalid("a team's display name has at most %d bytes, and its description at most %d", maxDisplayName, maxDescription)
	}
	return nil
}

// CreateTeam creates a team without members.
func (s *Service) CreateTeam(ctx context.Context, org store.Organization, t store.Team) (store.Team, error) {
	if !workflow.MadeOf(t.Name, 100, "", "_.-") {
		return t, fault.Invalid("the team name %q is not valid; use 1 to 100 letters, digits, '-', '_' and '.'", t.Name)
	}
	if err := checkTeamText(t.DisplayName, t.Description); err != nil {
		return t, err
	}
	t.ID, t.OrgID = NewID(), org.ID
	t.DisplayName = cmp.Or(t.DisplayName, t.Name)
	err := s.db.Write(ctx, scope.Organization(org.ID), func(tx *store.Tx) error {
		t.CreatedAt = tx.Now()
		if err := tx.InsertTeam(t); err != nil {
			return err
		}
		return recordTeam(ctx, tx, audit.TeamCreated, t, nil)
	})
	return t, store.IfConflict(err, fault.Conflict("%s already has a team %q", org.Name, t.Name))
}

// DeleteTeam removes a team and its tokens.
func (s *Service) DeleteTeam(ctx context.Context, orgID, name string) error {
	return s.db.Write(ctx, scope.Organization(orgID), func(tx *store.Tx) error {
		t, err := team(tx, orgID, name)
		if err != nil {
			return err
		}
		if err := tx.DeleteTeam(t.ID); err != nil {
			return err
		}
		return recordTeam(ctx, tx, audit.TeamDeleted, t, nil)
	})
}

func recordTeam(ctx context.Context, tx *store.Tx, action audit.Action, t store.Team, detail map[string]any) error {
	return audit.Record(ctx, tx, audit.Entry{OrgID: t.OrgID, Action: action, Subject: audit.Subject{Kind: "team", ID: t.ID, Name: t.Name}, Detail: detail})
}

// StackGrant is a change of a permission on a stack.
type StackGrant struct {
	Project, Stack string
	Permission     store.Permission
}

// EnvironmentGrant is a change of a permission on an environment.
type EnvironmentGrant struct {
	Project, Name string
	Permission    store.EnvironmentPermission
}

// TeamChange is a change of a team. Empty fields change nothing.
type TeamChange struct {
	DisplayName, Description string
	Member, Action           string // a login, and add, remove, promote or demote
	Grants                   []StackGrant
	Environments             []EnvironmentGrant
}

// detail returns what the audit log records about a change of the team itself.
func (c TeamChange) detail() map[string]any {
	detail := map[string]any{}
	for key, v := range map[string]string{"displayName": c.DisplayName, "description": c.Description, "member": c.Member, "memberAction": c.Action} {
		if v != "" {
			detail[key] = v
		}
	}
	return detail
}

// ChangeTeam changes a team. Administrators of the organization or the team may change its
// description and members; administrators of a stack or an environment may change the team's permission on it.
func (s *Service) ChangeTeam(ctx context.Context, p Principal, org store.Organization, name string, c TeamChange) error {
	if err := checkTeamText(c.DisplayName, c.Description); err != nil {
		return err
	}
	return s.db.Write(ctx, scope.Organization(org.ID), func(tx *store.Tx) error {
		t, err := team(tx, org.ID, name)
		if err != nil {
			return err
		}
		for _, g := range c.Grants {
			if err := grantTeam(tx, p, org, t, g); err != nil {
				return err
			}
			detail := map[string]any{"stack": org.Name + "/" + g.Project + "/" + g.Stack, "permission": g.Permission}
			if err := recordTeam(ctx, tx, audit.TeamChanged, t, detail); err != nil {
				return err
			}
		}
		for _, g := range c.Environments {
			if err := grantEnvironment(tx, p, org, t, g); err != nil {
				return err
			}
			detail := map[string]any{"environment": org.Name + "/" + g.Project + "/" + g.Name, "permission": g.Permission.String()}
			if err := recordTeam(ctx, tx, audit.TeamChanged, t, detail); err != nil {
				return err
			}
		}
		if c.DisplayName == "" && c.Description == "" && c.Member == "" {
			return nil
		}
		switch ok, err := adminsTeam(tx, p, t); {
		case err != nil:
			return err
		case !ok:
			return fault.Forbidden("only administrators of %s and of the team %s may do this", org.Name, t.Name)
		}
		if c.DisplayName != "" || c.Description != "" {
			if c.DisplayName != "" {
				t.DisplayName = c.DisplayName
			}
			if c.Description != "" {
				t.Description = c.Description
			}
			if err := tx.DescribeTeam(t); err != nil {
				return err
			}
		}
		if err := changeTeamMember(tx, org, t, c.Member, c.Action); err != nil {
			return err
		}
		return recordTeam(ctx, tx, audit.TeamChanged, t, c.detail())
	})
}

func adminsTeam(tx *store.Tx, p Principal, t store.Team) (bool, error) {
	if p.CanAdminOrg(t.OrgID) || p.Kind != KindUser {
		return p.CanAdminOrg(t.OrgID), nil
	}
	m, err := tx.TeamMember(t.ID, p.User.ID)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return m.Role == RoleAdmin && p.Role(t.OrgID) != "", err
}

func changeTeamMember(tx *store.Tx, org store.Organization, t store.Team, login, action string) error {
	if login == "" {
		return nil
	}
	m, err := member(tx, org, login)
	if err != nil {
		return err
	}
	in, err := tx.TeamMember(t.ID, m.UserID)
	belongs := err == nil
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	switch {
	case action == "add" && belongs:
		return fault.Conflict("%s is already a member of the team %s", login, t.Name)
	case action == "add":
		return tx.SaveTeamMember(store.TeamMember{TeamID: t.ID, UserID: m.UserID, Role: RoleMember, CreatedAt: tx.Now()})
	case action == "remove" && belongs:
		return tx.DeleteTeamMember(t.ID, m.UserID)
	case action == "remove":
		return nil
	case !slices.Contains([]string{"promote", "demote"}, action):
		return fault.Invalid("member \"memberAction\" must be add, remove, promote or demote")
	case !belongs:
		return fault.Invalid("%s is not a member of the team %s", login, t.Name)
	}
	in.Role = map[string]string{"promote": RoleAdmin, "demote": RoleMember}[action]
	return tx.SaveTeamMember(in)
}

func grantTeam(tx *store.Tx, p Principal, org store.Organization, t store.Team, g StackGrant) error {
	if err := checkPermission(g.Permission); err != nil {
		return err
	}
	st, err := tx.StackByName(org.Name, g.Project, g.Stack)
	if err != nil {
		return store.IfMissing(err, p.NoStack(org.Name, g.Project, g.Stack))
	}
	if p, err = p.On(tx, st); err != nil {
		return err
	}
	if err := p.Check(st, Manage); err != nil {
		return err
	}
	if g.Permission != store.NoPermission {
		return tx.SaveTeamStack(store.TeamStack{TeamID: t.ID, StackID: st.ID, Permission: g.Permission})
	}
	return store.IgnoreMissing(tx.DeleteTeamStack(t.ID, st.ID))
}

func grantEnvironment(tx *store.Tx, p Principal, org store.Organization, t store.Team, g EnvironmentGrant) error {
	e, err := tx.EnvironmentFor(org.Name, g.Project, g.Name, p.User.ID, p.TeamID)
	if err != nil {
		return store.IfMissing(err, p.NoEnvironment(org.Name, g.Project, g.Name))
	}
	if err := p.CheckEnvironment(e, store.AdminEnvironment); err != nil {
		return err
	}
	if g.Permission != store.NoEnvironment {
		return tx.SaveTeamEnvironment(store.TeamEnvironment{TeamID: t.ID, EnvironmentID: e.ID, Permission: g.Permission})
	}
	return store.IgnoreMissing(tx.DeleteTeamEnvironment(t.ID, e.ID))
}

func checkPermission(p store.Permission) error {
	switch p {
	case store.NoPermission, store.ReadPermission, store.WritePermission, store.AdminPermission:
		return nil
	default:
		return fault.Invalid("the permission %d is unknown; use 0 (none), 101 (read), 102 (write) or 103 (admin)", p)
	}
}

// TeamsOf returns the names of the teams of a member.
func (s *Service) TeamsOf(ctx context.Context, org store.Organization, login string) ([]string, error) {
	return store.Read(ctx, s.db, func(tx *store.Tx) ([]string, error) {
		m, err := member(tx, org, login)
		if err != nil {
			return nil, err
		}
		names := []string{}
		list, err := tx.TeamsOfUser(org.ID, m.UserID)
		for _, t := range list {
			names = append(names, t.Name)
		}
		return names, err
	})
}

// StackAccess lists the explicit permissions on a stack.
type StackAccess struct {
	Creator       store.User // zero if no user created the stack
	Collaborators []store.Collaborator
	Teams         []StackTeam
}

// StackTeam is a team with a permission on a stack.
type StackTeam struct {
	store.Team
	Permission store.Permission
	IsMember   bool // the caller belongs to the team
}

// StackAccess returns the explicit permissions on a stack.
func (s *Service) StackAccess(ctx context.Context, p Principal, st store.Stack) (StackAccess, error) {
	var a StackAccess
	err := s.db.Read(ctx, func(tx *store.Tx) (err error) {
		a = StackAccess{}
		if a.Creator, err = tx.User(st.CreatedBy); store.IgnoreMissing(err) != nil {
			return err
		}
		if a.Collaborators, err = tx.Collaborators(st.ID); err != nil {
			return err
		}
		list, err := tx.Teams(st.OrgID)
		if err != nil {
			return err
		}
		granted, err := tx.TeamsOfStack(st.ID)
		if err != nil {
			return err
		}
		mine, err := tx.TeamsOfUser(st.OrgID, p.User.ID)
		if err != nil {
			return err
		}
		for _, t := range list {
			i := slices.IndexFunc(granted, func(g store.TeamStack) bool { return g.TeamID == t.ID })
			if i < 0 {
				continue
			}
			isMember := slices.ContainsFunc(mine, func(m store.Team) bool { return m.ID == t.ID })
			a.Teams = append(a.Teams, StackTeam{Team: t, Permission: granted[i].Permission, IsMember: isMember})
		}
		return nil
	})
	return a, fault.While(err, "reading the permissions on a stack")
}

// SetCollaborator sets the permission of a member on a stack. [store.NoPermission] removes it.
func (s *Service) SetCollaborator(ctx context.Context, st store.Stack, login string, to store.Permission) error {
	if err := checkPermission(to); err != nil {
		return err
	}
	return s.db.Write(ctx, st.Scope(), func(tx *store.Tx) error {
		m, err := member(tx, store.Organization{ID: st.OrgID, Name: st.OrgName}, login)
		if err != nil {
			return err
		}
		if err := audit.Record(ctx, tx, audit.Entry{
			OrgID: st.OrgID, Action: audit.StackPermissionChanged, Subject: audit.Stack(st),
			Detail: map[string]any{"user": login, "permission": to},
		}); err != nil {
			return err
		}
		if to != store.NoPermission {
			return tx.SaveCollaborator(store.Collaborator{StackID: st.ID, UserID: m.UserID, Permission: to})
		}
		err = tx.DeleteCollaborator(st.ID, m.UserID)
		return store.IfMissing(err, fault.NotFound("%s has no permission of their own on stack %s", login, st.Ref()))
	})
}

// CheckTeams returns the teams with the given names, or an error if one does not exist.
func CheckTeams(tx *store.Tx, org store.Organization, names []string) ([]store.Team, error) {
	var out []store.Team
	for _, name := range names {
		t, err := tx.TeamByName(org.ID, name)
		if err != nil {
			return nil, store.IfMissing(err, fault.Invalid("%s has no team %q", org.Name, name))
		}
		out = append(out, t)
	}
	return out, nil
}
