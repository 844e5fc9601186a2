package identity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/termtext"
)

// External is what an identity provider says about a user who has signed in there.
type External struct {
	// Issuer and Subject identify the user. Providers can give the other values to another user
	// later, or let users choose them.
	Issuer, Subject string
	// Provider is the provider's name for people.
	Provider string
	// Login is the wanted login of a new user.
	Login       string
	Name, Email string
	// Allowed reports whether the user may use this server.
	Allowed bool
	// Roles are the roles in the organizations for which the provider decides, by the organization's
	// name. The role "" is none.
	Roles map[string]string
	// Teams are the teams for which the provider decides, ordered by organization and name.
	Teams []ExternalTeam
}

// ExternalTeam is the role in a team that a provider gives a user; "" is none. Only members of the organization can
// belong to its teams.
type ExternalTeam struct{ Organization, Team, Role string }

const (
	maxExternalName = 200
	// maxLogins bounds the search for a free login.
	maxLogins = 100
	// maxTries bounds the attempts of first sign-ins that happen at the same time.
	maxTries = 5
)

// label returns how the provider names a user, for display.
func (e External) label() string {
	for _, text := range []string{e.Email, e.Login, e.Name, e.Subject} {
		if text = termtext.OneLine(text, maxExternalName); text != "" {
			return text
		}
	}
	return ""
}

// FromProvider returns the user who has signed in at an identity provider, with the roles that the
// provider decides. The first sign-in creates the user. If the provider's users may not use this
// server any more, FromProvider removes their roles and returns a [fault.KindForbidden] error.
func (s *Service) FromProvider(ctx context.Context, e External) (Principal, error) {
	p, known, err := s.fromProvider(ctx, e)
	for tries := 1; errors.Is(err, store.ErrConflict) && tries < maxTries; tries++ {
		// Another first sign-in has taken the identity or the login at the same time.
		p, known, err = s.fromProvider(ctx, e)
	}
	if err != nil {
		return Principal{}, fmt.Errorf("signing in a user of %s: %w", e.Issuer, err)
	}
	if p.User.Disabled() {
		return Principal{}, fault.Forbidden("%s signed in at %s, but is disabled on this server. Ask its operator.", e.label(), e.Provider)
	}
	if !known || !e.Allowed {
		return Principal{}, fault.Forbidden("%s signed in at %s, but may not use this server. Ask its operator for access.", e.label(), e.Provider)
	}
	return p, nil
}

func (s *Service) fromProvider(ctx context.Context, e External) (p Principal, known bool, err error) {
	before, err := store.Read(ctx, s.db, func(tx *store.Tx) (affected, error) { return affectedBy(tx, e) })
	if known = before.userID != "" || e.Allowed; err != nil || !known {
		return p, known, err
	}
	newID := NewID()
	err = s.db.Write(ctx, before.scopes(newID), func(tx *store.Tx) error {
		now, err := affectedBy(tx, e)
		if err != nil {
			return err
		}
		if !now.equal(before) {
			return fmt.Errorf("%w: the user's memberships have changed at the same time", store.ErrConflict)
		}
		u, err := userOf(ctx, tx, e, newID)
		if err == nil {
			err = s.applyRoles(ctx, tx, u, e)
		}
		if err == nil {
			err = s.applyTeams(ctx, tx, u, e)
		}
		if err != nil {
			return err
		}
		p, err = OfUser(tx, u.ID)
		return err
	})
	return p, known, err
}

// affected is what a sign-in at an identity provider affects.
type affected struct {
	userID string // "" for a new user
	// changed are the ids of the organizations in which the user's role changes, and kept of those in which
	// it does not.
	changed, kept []string
}

func (a affected) equal(b affected) bool {
	return a.userID == b.userID && slices.Equal(a.changed, b.changed) && slices.Equal(a.kept, b.kept)
}

// scopes returns the owners of what is affected. newID is the id of a new user.
func (a affected) scopes(newID string) scope.Set {
	owners := scope.User(cmp.Or(a.userID, newID))
	for _, id := range a.changed {
		owners = owners.And(scope.Organization(id))
	}
	for _, id := range a.kept {
		owners = owners.And(scope.Organization(id).Shared())
	}
	return owners
}

func affectedBy(tx *store.Tx, e External) (a affected, err error) {
	id, err := tx.Identity(e.Issuer, e.Subject)
	if store.IgnoreMissing(err) != nil {
		return a, err
	}
	a.userID = id.UserID
	for _, name := range e.organizations() {
		org, err := tx.OrganizationByName(name)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return a, err
		}
		changes, err := e.changes(tx, org, name, a.userID)
		if err != nil {
			return a, err
		}
		if changes {
			a.changed = append(a.changed, org.ID)
		} else {
			a.kept = append(a.kept, org.ID)
		}
	}
	return a, nil
}

// organizations returns the names of the organizations for which the provider decides, in order.
func (e External) organizations() []string {
	names := slices.Collect(maps.Keys(e.Roles))
	for _, t := range e.Teams {
		names = append(names, t.Organization)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// changes reports whether the provider changes a user's role in an organization, which the provider calls name, or in
// one of its teams.
func (e External) changes(tx *store.Tx, org store.Organization, name, userID string) (bool, error) {
	m, err := tx.Member(org.ID, userID)
	if store.IgnoreMissing(err) != nil {
		return false, err
	}
	if _, decides := e.Roles[name]; decides && m.Role != e.role(name) {
		return true, nil
	}
	for _, t := range e.Teams {
		if t.Organization != name {
			continue
		}
		_, have, err := inTeam(tx, org, t.Team, userID)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return false, err
		}
		if err == nil && have.Role != e.teamRole(t, m.Role) {
			return true, nil
		}
	}
	return false, nil
}

// inTeam returns a team and a user's membership in it, which is zero for none. It returns [store.ErrNotFound] if the
// team does not exist.
func inTeam(tx *store.Tx, org store.Organization, name, userID string) (t store.Team, m store.TeamMember, err error) {
	if t, err = tx.TeamByName(org.ID, name); err != nil {
		return t, m, err
	}
	m, err = tx.TeamMember(t.ID, userID)
	return t, m, store.IgnoreMissing(err)
}

// teamRole returns the role in a team of a user with a role in the organization.
func (e External) teamRole(t ExternalTeam, role string) string {
	if !e.Allowed || role == "" {
		return ""
	}
	return t.Role
}

// role returns the role in an organization for which the provider decides.
func (e External) role(org string) string {
	if !e.Allowed {
		return ""
	}
	return e.Roles[org]
}

// userOf returns the user of an identity, and creates the user at the first sign-in, with a new id.
func userOf(ctx context.Context, tx *store.Tx, e External, newID string) (store.User, error) {
	now := tx.Now()
	id, err := tx.Identity(e.Issuer, e.Subject)
	if err == nil {
		id.Name, id.UsedAt = e.label(), now
		if err := tx.TouchIdentity(id); err != nil {
			return store.User{}, err
		}
		u, err := tx.User(id.UserID)
		if err != nil {
			return store.User{}, fmt.Errorf("finding the user of an identity: %w", err)
		}
		if e.Allowed && (u.Name != e.name(u.Name) || u.Email != e.email(u.Email)) {
			u.Name, u.Email = e.name(u.Name), e.email(u.Email)
			err = tx.NameUser(u.ID, u.Name, u.Email)
		}
		return u, err
	}
	if !errors.Is(err, store.ErrNotFound) {
		return store.User{}, err
	}
	u := store.User{ID: newID, Email: e.email(""), CreatedAt: now}
	if u.Login, err = freeLogin(tx, e.Login); err != nil {
		return store.User{}, err
	}
	u.Name = e.name(u.Login)
	if err := tx.InsertUser(u); err != nil {
		return store.User{}, err
	}
	if err := tx.InsertIdentity(store.Identity{Issuer: e.Issuer, Subject: e.Subject, UserID: u.ID, Name: e.label(), CreatedAt: now, UsedAt: now}); err != nil {
		return store.User{}, err
	}
	return u, recordMember(byServer(ctx), tx, audit.UserCreated, "", u.ID, u.Login, map[string]any{"provider": e.Provider, "issuer": e.Issuer, "subject": e.Subject})
}

func (e External) name(old string) string {
	if name := termtext.OneLine(e.Name, maxExternalName); name != "" {
		return name
	}
	return old
}

func (e External) email(old string) string {
	if email := termtext.OneLine(e.Email, maxExternalName); email != "" {
		return email
	}
	return old
}

// byServer returns a context whose changes the server makes: the provider decides, and not the
// visitor.
func byServer(ctx context.Context) context.Context {
	return audit.As(ctx, audit.Actor{Kind: audit.ActorServer, Name: audit.ActorServer})
}

// freeLogin returns an unused login that resembles a wish. It never returns a login that differs from
// another one only by case.
func freeLogin(tx *store.Tx, wish string) (string, error) {
	base := strings.Map(func(r rune) rune {
		if r < 0x80 && isLogin("a"+string(r)) {
			return r
		}
		return '-'
	}, strings.ToLower(wish))
	base = strings.Trim(base[:min(len(base), 80)], "-._@")
	if base == "" || links.Reserved(base) || deletedLogin.MatchString(base) {
		base = "user"
	}
	for n := 1; n <= maxLogins; n++ {
		login := base
		if n > 1 {
			login += "-" + strconv.Itoa(n)
		}
		if taken, err := tx.LoginTaken(login); err != nil || !taken {
			return login, err
		}
	}
	return base + "-" + NewID(), nil
}

// applyRoles makes the user's memberships agree with the provider.
func (s *Service) applyRoles(ctx context.Context, tx *store.Tx, u store.User, e External) error {
	ctx = byServer(ctx)
	for _, name := range slices.Sorted(maps.Keys(e.Roles)) {
		org, err := tx.OrganizationByName(name)
		if errors.Is(err, store.ErrNotFound) {
			s.log.WithField("organization", name).Warn("the sign-in file names an organization that does not exist")
			continue
		}
		if err != nil {
			return err
		}
		if err := setRole(ctx, tx, org, u, e.role(name), e.Provider); err != nil {
			return err
		}
	}
	return nil
}

// applyTeams makes the user's teams agree with the provider, after the roles.
func (s *Service) applyTeams(ctx context.Context, tx *store.Tx, u store.User, e External) error {
	ctx = byServer(ctx)
	for _, t := range e.Teams {
		org, err := tx.OrganizationByName(t.Organization)
		if errors.Is(err, store.ErrNotFound) {
			s.log.WithField("organization", t.Organization).Warn("the sign-in file names an organization that does not exist")
			continue
		}
		if err != nil {
			return err
		}
		switch err := setTeam(ctx, tx, org, u, e, t); {
		case errors.Is(err, store.ErrNotFound):
			s.log.WithFields(map[string]any{"organization": org.Name, "team": t.Team}).Warn("the sign-in file names a team that does not exist")
		case err != nil:
			return err
		}
	}
	return nil
}

// setTeam gives a user a role in a team, or takes the membership away. It returns [store.ErrNotFound] if the team does
// not exist.
func setTeam(ctx context.Context, tx *store.Tx, org store.Organization, u store.User, e External, wanted ExternalTeam) error {
	t, have, err := inTeam(tx, org, wanted.Team, u.ID)
	if err != nil {
		return err
	}
	m, err := tx.Member(org.ID, u.ID)
	if store.IgnoreMissing(err) != nil {
		return err
	}
	role := e.teamRole(wanted, m.Role)
	detail := map[string]any{"member": u.Login, "from": have.Role, "to": role, "provider": e.Provider}
	switch role {
	case have.Role:
		return nil
	case "":
		err = tx.DeleteTeamMember(t.ID, u.ID)
	default:
		err = tx.SaveTeamMember(store.TeamMember{TeamID: t.ID, UserID: u.ID, Role: role, CreatedAt: tx.Now()})
	}
	if err != nil {
		return fmt.Errorf("changing the members of a team: %w", err)
	}
	return recordTeam(ctx, tx, audit.TeamChanged, t, detail)
}

// setRole gives a user a role in an organization, or takes the membership away, as a provider says, or the operator if
// provider is "". The last administrator of an organization keeps the role.
func setRole(ctx context.Context, tx *store.Tx, org store.Organization, u store.User, role, provider string) error {
	m, err := tx.Member(org.ID, u.ID)
	if err != nil && !errors.Is(err, store.ErrNotFound) || m.Role == role {
		return store.IgnoreMissing(err)
	}
	if m.Role == RoleAdmin && !u.Disabled() {
		admins, err := tx.CountEnabled(org.ID, RoleAdmin)
		if err != nil {
			return err
		}
		if admins <= 1 {
			return recordMember(ctx, tx, audit.MemberRoleKept, org.ID, u.ID, u.Login, map[string]any{
				"role": m.Role, "because": "last administrator", "wanted": role, "provider": provider,
			})
		}
	}
	action, detail := audit.MemberRoleChanged, map[string]any{"from": m.Role, "to": role}
	if provider != "" {
		detail["provider"] = provider
	}
	switch {
	case err != nil:
		action = audit.MemberAdded
		err = tx.InsertMember(store.Member{OrgID: org.ID, UserID: u.ID, Role: role, CreatedAt: tx.Now()})
		if err == nil && u.DefaultOrg == "" {
			err = tx.SetDefaultOrg(u.ID, org.Name)
		}
	case role == "":
		action = audit.MemberRemoved
		err = tx.DeleteMember(org.ID, u.ID)
		tx.Notify(SessionTopic, u.ID)
	default:
		err = tx.SetRole(org.ID, u.ID, role)
	}
	if err != nil {
		return err
	}
	return recordMember(ctx, tx, action, org.ID, u.ID, u.Login, detail)
}

// Connect lets a user sign in with an identity from now on.
func (s *Service) Connect(ctx context.Context, u store.User, e External) error {
	if !e.Allowed {
		return fault.Forbidden("%s signed in at %s, but may not use this server. Ask its operator for access.", e.label(), e.Provider)
	}
	errTaken := fault.Conflict("%s of %s belongs to another user of this server, who must remove it first.", e.label(), e.Provider)
	err := s.db.Write(ctx, scope.User(u.ID), func(tx *store.Tx) error {
		now := tx.Now()
		id, err := tx.Identity(e.Issuer, e.Subject)
		switch {
		case err == nil && id.UserID == u.ID:
			return nil
		case err == nil:
			return errTaken
		case !errors.Is(err, store.ErrNotFound):
			return err
		}
		if err := tx.InsertIdentity(store.Identity{Issuer: e.Issuer, Subject: e.Subject, UserID: u.ID, Name: e.label(), CreatedAt: now, UsedAt: now}); err != nil {
			return err
		}
		return recordMember(ctx, tx, audit.IdentityConnected, "", u.ID, u.Login, map[string]any{"provider": e.Provider, "issuer": e.Issuer, "subject": e.Subject})
	})
	return store.IfConflict(err, errTaken)
}

// Identities returns a user's identities, oldest first.
func (s *Service) Identities(ctx context.Context, userID string) ([]store.Identity, error) {
	list, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]store.Identity, error) { return tx.IdentitiesOf(userID) })
	return list, fault.While(err, "listing identities")
}

// Disconnect removes an identity of a user.
func (s *Service) Disconnect(ctx context.Context, u store.User, issuer, subject string) error {
	return s.db.Write(ctx, scope.User(u.ID), func(tx *store.Tx) error {
		if err := tx.DeleteIdentity(u.ID, issuer, subject); err != nil {
			return store.IgnoreMissing(err)
		}
		return recordMember(ctx, tx, audit.IdentityRemoved, "", u.ID, u.Login, map[string]any{"issuer": issuer, "subject": subject})
	})
}
