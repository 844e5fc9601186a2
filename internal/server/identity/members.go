package identity

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/workflow"
)

// Members returns up to limit members of an organization, ordered by login, and whether more
// follow. The list begins behind the login after.
func (s *Service) Members(ctx context.Context, orgID, words, after string, limit int) (list []store.Member, more bool, err error) {
	list, err = store.Read(ctx, s.db, func(tx *store.Tx) ([]store.Member, error) { return tx.Members(orgID, words, after, limit+1) })
	if err != nil {
		return nil, false, fmt.Errorf("listing members: %w", err)
	}
	return list[:min(limit, len(list))], len(list) > limit, nil
}

// Counts returns the numbers of an organization's members, and of its stacks that the caller sees.
func (s *Service) Counts(ctx context.Context, p Principal, orgID string) (members, stacks int64, err error) {
	err = s.db.Read(ctx, func(tx *store.Tx) (err error) {
		if members, err = tx.CountMembers(orgID); err == nil {
			stacks, err = tx.CountStacks(p.Reach(orgID))
		}
		return err
	})
	return members, stacks, fault.While(err, "counting members and stacks")
}

// CountEnvironments returns the number of an organization's environments, whose names the caller may see.
func (s *Service) CountEnvironments(ctx context.Context, p Principal, orgID string) (int64, error) {
	if p.TeamID != "" { // sees only those that were granted; see [Principal.SeesEnvironment]
		return 0, nil
	}
	n, err := store.ReadOne(ctx, s.db, func(tx *store.Tx) (int64, error) { return tx.CountEnvironments(orgID) })
	return n, fault.While(err, "counting environments")
}

func checkRole(role string) error {
	if slices.Contains(Roles(), role) {
		return nil
	}
	return fault.Invalid("the role %q is unknown; use one of %s", role, strings.Join(Roles(), ", "))
}

// AddMember adds an existing user to an organization.
func (s *Service) AddMember(ctx context.Context, org store.Organization, login, role string) (store.Member, error) {
	if err := checkRole(role); err != nil {
		return store.Member{}, err
	}
	u, err := store.Read(ctx, s.db, func(tx *store.Tx) (store.User, error) { return tx.UserByLogin(login) })
	if err != nil {
		return store.Member{}, store.IfMissing(err, fault.NotFound("the user %q does not exist; the server's operator creates users", login))
	}
	return store.Write(ctx, s.db, scope.Organization(org.ID).And(scope.User(u.ID)), func(tx *store.Tx) (added store.Member, err error) {
		if err := tx.InsertMember(store.Member{OrgID: org.ID, UserID: u.ID, Role: role, CreatedAt: tx.Now()}); err != nil {
			return added, store.IfConflict(err, fault.Conflict("%s is already a member of %s", login, org.Name))
		}
		if added, err = tx.Member(org.ID, u.ID); err != nil {
			return added, err
		}
		return added, recordMember(ctx, tx, audit.MemberAdded, added.OrgID, u.ID, login, map[string]any{"role": role})
	})
}

// Appoint makes a user an administrator of an organization, also one who is not a member of it.
func (s *Service) Appoint(ctx context.Context, org store.Organization, login string) error {
	u, err := s.UserByLogin(ctx, login)
	if err != nil {
		return err
	}
	if u.Disabled() {
		return fault.Invalid("the user %q is disabled: an organization needs an administrator who can sign in", login)
	}
	err = s.db.Write(ctx, scope.Organization(org.ID).And(scope.User(u.ID)), func(tx *store.Tx) error { return setRole(ctx, tx, org, u, RoleAdmin, "") })
	return fault.While(err, "appointing an administrator")
}

// Role returns a member's role.
func (s *Service) Role(ctx context.Context, org store.Organization, login string) (string, error) {
	m, err := store.Read(ctx, s.db, func(tx *store.Tx) (store.Member, error) { return member(tx, org, login) })
	return m.Role, err
}

// SetRole changes a member's role.
func (s *Service) SetRole(ctx context.Context, org store.Organization, login, role string) error {
	if err := checkRole(role); err != nil {
		return err
	}
	return s.changeMember(ctx, org, login, func(tx *store.Tx, m store.Member) error {
		if err := tx.SetRole(org.ID, m.UserID, role); err != nil {
			return err
		}
		return recordMember(ctx, tx, audit.MemberRoleChanged, org.ID, m.UserID, login, map[string]any{"from": m.Role, "to": role})
	})
}

func recordMember(ctx context.Context, tx *store.Tx, action audit.Action, orgID, userID, login string, detail map[string]any) error {
	return audit.Record(ctx, tx, audit.Entry{OrgID: orgID, Action: action, Subject: audit.Subject{Kind: "user", ID: userID, Name: login}, Detail: detail})
}

// SetSoleAdmin makes a member the only administrator of an organization. The other administrators
// become members.
func (s *Service) SetSoleAdmin(ctx context.Context, org store.Organization, login string) error {
	return s.changeMember(ctx, org, login, func(tx *store.Tx, m store.Member) error {
		if err := checkEnabled(tx, m.UserID); err != nil {
			return err
		}
		if err := tx.SetRole(org.ID, m.UserID, RoleAdmin); err != nil {
			return err
		}
		if err := tx.DemoteOthers(org.ID, m.UserID, RoleAdmin, RoleMember); err != nil {
			return err
		}
		return recordMember(ctx, tx, audit.MemberRoleChanged, org.ID, m.UserID, login, map[string]any{"from": m.Role, "to": RoleAdmin, "sole": true})
	})
}

// RemoveMember removes a user from an organization. From then on, the user's tokens and running
// updates cannot reach the organization. The user's deployments continue, without access to other
// stacks.
func (s *Service) RemoveMember(ctx context.Context, org store.Organization, login string) error {
	return s.changeMember(ctx, org, login, func(tx *store.Tx, m store.Member) error {
		if err := tx.DeleteMember(org.ID, m.UserID); err != nil {
			return err
		}
		tx.Notify(SessionTopic, m.UserID) // open pages of the organization end
		return recordMember(ctx, tx, audit.MemberRemoved, org.ID, m.UserID, login, map[string]any{"role": m.Role})
	})
}

// changeMember calls change in a transaction, unless the organization would lose its last
// administrator.
func (s *Service) changeMember(ctx context.Context, org store.Organization, login string, change func(*store.Tx, store.Member) error) error {
	found, err := store.Read(ctx, s.db, func(tx *store.Tx) (store.Member, error) { return member(tx, org, login) })
	if err != nil {
		return err
	}
	return s.db.Write(ctx, scope.Organization(org.ID).And(scope.User(found.UserID)), func(tx *store.Tx) error {
		m, err := member(tx, org, login) // the user never changes
		if err != nil {
			return err
		}
		if err := change(tx, m); err != nil {
			return err
		}
		admins, err := tx.CountEnabled(org.ID, RoleAdmin)
		if err == nil && admins == 0 && m.Role == RoleAdmin {
			err = fault.Invalid("%s is the last administrator of %s; make another member an administrator first", login, org.Name)
		}
		return err
	})
}

func member(tx *store.Tx, org store.Organization, login string) (store.Member, error) {
	m, err := tx.MemberByLogin(org.ID, login)
	return m, store.IfMissing(err, fault.NotFound("%q is not a member of %s", login, org.Name))
}

// SetStackPermission sets the permission of an organization's members on all its stacks.
func (s *Service) SetStackPermission(ctx context.Context, orgID string, p store.Permission) error {
	if err := checkPermission(p); err != nil {
		return err
	}
	return s.db.Write(ctx, scope.Organization(orgID), func(tx *store.Tx) error {
		if err := tx.SetStackPermission(orgID, p); err != nil {
			return err
		}
		return audit.Record(ctx, tx, audit.Entry{
			OrgID: orgID, Action: audit.DefaultPermissionSet, Subject: audit.Subject{Kind: "organization", ID: orgID}, Detail: map[string]any{"permission": p},
		})
	})
}

// SetEnvironmentPermission sets the permission of an organization's members on all its environments.
func (s *Service) SetEnvironmentPermission(ctx context.Context, orgID string, p store.EnvironmentPermission) error {
	return s.db.Write(ctx, scope.Organization(orgID), func(tx *store.Tx) error {
		if err := tx.SetEnvironmentPermission(orgID, p); err != nil {
			return err
		}
		return audit.Record(ctx, tx, audit.Entry{
			OrgID: orgID, Action: audit.DefaultEnvironmentSet, Subject: audit.Subject{Kind: "organization", ID: orgID}, Detail: map[string]any{"permission": p.String()},
		})
	})
}

// SetProjectReads sets whether updates of a stack may read the outputs of the other stacks of its project.
func (s *Service) SetProjectReads(ctx context.Context, orgID string, may bool) error {
	return s.db.Write(ctx, scope.Organization(orgID), func(tx *store.Tx) error {
		if err := tx.SetProjectReads(orgID, may); err != nil {
			return err
		}
		return audit.Record(ctx, tx, audit.Entry{
			OrgID: orgID, Action: audit.ProjectReadsSet, Subject: audit.Subject{Kind: "organization", ID: orgID}, Detail: map[string]any{"projectReads": may},
		})
	})
}

// SetPulumiVersion sets the range of versions of pulumi for deployments whose settings name none, in the
// form of [workflow.ParseVersionRange]; "" means any version.
func (s *Service) SetPulumiVersion(ctx context.Context, orgID, version string) error {
	if version != "" {
		if _, err := workflow.ParseVersionRange(version); err != nil {
			return fault.Invalid("the organization's version of pulumi: %v", err)
		}
	}
	return s.db.Write(ctx, scope.Organization(orgID), func(tx *store.Tx) error {
		if err := tx.SetPulumiVersion(orgID, version); err != nil {
			return err
		}
		return audit.Record(ctx, tx, audit.Entry{
			OrgID: orgID, Action: audit.PulumiVersionSet, Subject: audit.Subject{Kind: "organization", ID: orgID}, Detail: map[string]any{"version": version},
		})
	})
}

// isLogin reports whether a text has the form of a login.
func isLogin(text string) bool { return workflow.MadeOf(text, 100, "", "._@-") }

// deletedLogin matches the logins by which histories name deleted users. No other user can have one: the deletion would
// fail.
var deletedLogin = regexp.MustCompile(`(?i)-deleted-[0-9a-f]{8}$`)

// CheckLogin returns an error if a user cannot have a login.
func CheckLogin(login string) error {
	if !isLogin(login) {
		return fault.Invalid("the login %q is not valid: use up to 100 letters, digits, '-', '_', '.' and '@'", login)
	}
	if deletedLogin.MatchString(login) {
		return fault.Invalid("the login %q is reserved for deleted users: choose another login", login)
	}
	if links.Reserved(login) {
		return fault.Invalid("the login %q is reserved for the server's own pages: choose another login", login)
	}
	return nil
}

// NewUser describes a user to create.
type NewUser struct {
	Login, Name, Email string
	SiteAdmin          bool
	Org, Role          string // "" for no organization
}

// CreateUser creates a user, adds the user to an organization, and returns an access token.
func (s *Service) CreateUser(ctx context.Context, n NewUser) (token string, err error) {
	if err := CheckLogin(n.Login); err != nil {
		return "", err
	}
	if n.Org != "" {
		if err := checkRole(n.Role); err != nil {
			return "", err
		}
	}
	token, hash := NewToken()
	u := store.User{ID: NewID(), Login: n.Login, Name: n.Name, Email: n.Email, SiteAdmin: n.SiteAdmin}
	owners := scope.User(u.ID)
	var o store.Organization
	if n.Org != "" {
		o, err = store.Read(ctx, s.db, func(tx *store.Tx) (store.Organization, error) { return tx.OrganizationByName(n.Org) })
		if errors.Is(err, store.ErrNotFound) {
			return "", noOrganization(n.Org)
		}
		if err != nil {
			return "", fmt.Errorf("creating a user: %w", err)
		}
		u.DefaultOrg = o.Name // n.Org can be a former name
		owners = owners.And(scope.Organization(o.ID))
	}
	err = s.db.Write(ctx, owners, func(tx *store.Tx) error {
		now := tx.Now()
		u.CreatedAt = now
		if err := tx.InsertUser(u); err != nil {
			return err
		}
		if o.ID != "" {
			if err := tx.InsertMember(store.Member{OrgID: o.ID, UserID: u.ID, Role: n.Role, CreatedAt: now}); err != nil {
				return err
			}
		}
		if err := tx.InsertToken(store.Token{
			ID: NewID(), Hash: hash, Kind: store.PersonalToken, Description: "created with the user", UserID: u.ID, CreatedBy: u.ID, CreatedAt: now,
		}); err != nil {
			return err
		}
		return recordMember(ctx, tx, audit.UserCreated, "", u.ID, u.Login, map[string]any{"siteAdmin": u.SiteAdmin, "organization": n.Org, "role": n.Role})
	})
	switch {
	case errors.Is(err, store.ErrConflict):
		return "", fault.Conflict("the user %q already exists; to create another token, use \"workflow-server token create --user %s\"", n.Login, n.Login)
	case err != nil:
		return "", fmt.Errorf("creating a user: %w", err)
	}
	return token, nil
}
