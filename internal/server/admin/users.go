package admin

import (
	"cmp"
	"context"
	"time"

	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/links"
)

// The operations on users.
var (
	ListUsers      = Operation[UsersAfter, Page[User]]{"user-list", (*Service).listUsers}
	CreateUser     = Operation[NewUser, CreatedUser]{"user-create", (*Service).createUser}
	DisableUser    = Operation[Disabling, Ended]{"user-disable", (*Service).disableUser}
	EnableUser     = Operation[Login, None]{"user-enable", (*Service).enableUser}
	DeleteUser     = Operation[Login, Ended]{"user-delete", (*Service).deleteUser}
	ListSessions   = Operation[Login, []Session]{"user-sessions", (*Service).listSessions}
	EndSessions    = Operation[Login, Ended]{"user-end-sessions", (*Service).endSessions}
	MakeSignInLink = Operation[Login, SignInLink]{"sign-in-link", (*Service).makeSignInLink}
)

// Login names a user.
type Login struct {
	Login string `json:"login"`
}

// UsersAfter selects the users whose login follows another one.
type UsersAfter struct {
	Login string `json:"login,omitempty"`
}

// Next returns the request for the users after u.
func (UsersAfter) Next(u User) UsersAfter { return UsersAfter{Login: u.Login} }

// User is a user in a list.
type User struct {
	Login     string            `json:"login"`
	ID        string            `json:"id"`
	Name      string            `json:"name"`
	Email     string            `json:"email"`
	SiteAdmin bool              `json:"siteAdmin"`
	Roles     map[string]string `json:"roles"` // by organization
	Created   time.Time         `json:"created"`
	LastSeen  *time.Time        `json:"lastSeen,omitempty"`
	Disabled  *time.Time        `json:"disabled,omitempty"`
}

// NewUser is a user to create.
type NewUser struct {
	Login        string `json:"login"`
	Name         string `json:"name,omitempty"`
	Email        string `json:"email,omitempty"`
	SiteAdmin    bool   `json:"siteAdmin,omitempty"`
	Organization string `json:"organization,omitempty"`
	Role         string `json:"role,omitempty"`
}

// CreatedUser is a new user with an access token.
type CreatedUser struct {
	Login string `json:"login"`
	ID    string `json:"id"`
	Token string `json:"token"`
}

// Disabling is a user to disable, even the last administrator of an organization if Force is set.
type Disabling struct {
	Login string `json:"login"`
	Force bool   `json:"force,omitempty"`
}

// Ended is the access that a user has lost.
type Ended struct {
	Sessions int64 `json:"sessions"`
	Tokens   int64 `json:"tokens"`
	// Shared is the number of tokens of organizations, teams and pools that the user has created, which remain
	// valid.
	Shared int64 `json:"shared"`
	// Login is the login by which histories and lists of tokens name the user.
	Login string `json:"login"`
}

// Session is a signed-in browser.
type Session struct {
	ID      string    `json:"id"`
	Way     string    `json:"way"`
	Address string    `json:"address"`
	Agent   string    `json:"agent"`
	Created time.Time `json:"created"`
	Seen    time.Time `json:"seen"`
	Ends    time.Time `json:"ends"`
}

// SignInLink is a link that signs a user in once.
type SignInLink struct {
	// Console is the server's address for browsers, or "" if it is not known.
	Console string `json:"console,omitempty"`
	Path    string `json:"path"`
}

func (s *Service) listUsers(ctx context.Context, q UsersAfter) (Page[User], error) {
	list, more, err := s.Identity.Users(ctx, q.Login, page)
	if err != nil {
		return Page[User]{}, err
	}
	p := Page[User]{Entries: []User{}, More: more}
	for _, u := range list {
		roles := u.Roles
		if roles == nil {
			roles = map[string]string{}
		}
		p.Entries = append(p.Entries, User{
			Login: u.Login, ID: u.ID, Name: u.Name, Email: u.Email, SiteAdmin: u.SiteAdmin, Roles: roles, Created: u.CreatedAt,
			LastSeen: known(u.LastSeen), Disabled: known(u.DisabledAt),
		})
	}
	return p, nil
}

func (s *Service) createUser(ctx context.Context, q NewUser) (CreatedUser, error) {
	token, err := s.Identity.CreateUser(ctx, identity.NewUser{
		Login: q.Login, Name: cmp.Or(q.Name, q.Login), Email: q.Email, SiteAdmin: q.SiteAdmin, Org: q.Organization, Role: q.Role,
	})
	if err != nil {
		return CreatedUser{}, err
	}
	u, err := s.Identity.UserByLogin(ctx, q.Login)
	return CreatedUser{Login: q.Login, ID: u.ID, Token: token}, err
}

func (s *Service) disableUser(ctx context.Context, q Disabling) (Ended, error) {
	ended, err := s.Identity.DisableUser(ctx, q.Login, q.Force)
	return Ended(ended), err
}

func (s *Service) enableUser(ctx context.Context, q Login) (None, error) {
	return None{}, s.Identity.EnableUser(ctx, q.Login)
}

func (s *Service) deleteUser(ctx context.Context, q Login) (Ended, error) {
	ended, err := s.Identity.DeleteUser(ctx, q.Login)
	return Ended(ended), err
}

func (s *Service) listSessions(ctx context.Context, q Login) ([]Session, error) {
	u, err := s.Identity.UserByLogin(ctx, q.Login)
	if err != nil {
		return nil, err
	}
	found, err := s.Sessions.Sessions(ctx, u.ID)
	list := []Session{}
	for _, v := range found {
		list = append(list, Session{ID: v.ID, Way: v.Way, Address: v.Address, Agent: v.Agent, Created: v.Created, Seen: v.Seen, Ends: v.Ends})
	}
	return list, err
}

func (s *Service) endSessions(ctx context.Context, q Login) (Ended, error) {
	u, err := s.Identity.UserByLogin(ctx, q.Login)
	if err != nil {
		return Ended{}, err
	}
	n, err := s.Sessions.EndAll(ctx, u)
	return Ended{Sessions: n, Login: u.Login}, err
}

func (s *Service) makeSignInLink(ctx context.Context, q Login) (SignInLink, error) {
	u, err := s.Identity.UserByLogin(ctx, q.Login)
	if err != nil {
		return SignInLink{}, err
	}
	key, err := s.Sessions.MakeLink(ctx, u)
	return SignInLink{Console: string(s.Console), Path: links.SignInPath(key)}, err
}
