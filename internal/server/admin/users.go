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
	DisableUser    = Operation[Leaving, Ended]{"user-disable", (*Service).disableUser}
	EnableUser     = Operation[Login, None]{"user-enable", (*Service).enableUser}
	DeleteUser     = Operation[Leaving, Ended]{"user-delete", (*Service).deleteUser}
	ListHoldings   = Operation[Login, Holdings]{"user-holdings", (*Service).listHoldings}
	HandOver       = Operation[Leaving, Holdings]{"user-hand-over", (*Service).handOver}
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

// Leaving is a user who leaves, and the login of the one who takes over what the user owns, or "".
type Leaving struct {
	Login string `json:"login"`
	To    string `json:"to,omitempty"`
}

// Ended is the access that a user has lost.
type Ended struct {
	Sessions int64 `json:"sessions"`
	Tokens   int64 `json:"tokens"`
	// Paused is the number of the user's schedules that were paused.
	Paused int64 `json:"pausedSchedules"`
	// Owned is the number of what the user still owns.
	Owned int64 `json:"owned"`
	// Login is the login by which histories and lists of tokens name the user.
	Login string `json:"login"`
}

// Holdings are what a user owns.
type Holdings struct {
	// LastAdministratorOf are the organizations without another administrator.
	LastAdministratorOf []string `json:"lastAdministratorOf"`
	// Owned contains at most 1,000 entries, Total counts all, and Summary says how many there are of each kind.
	Owned   []Holding `json:"owned"`
	Total   int64     `json:"total"`
	Summary string    `json:"summary"`
}

// Holding is something that a user owns.
type Holding struct {
	Kind         string `json:"kind"`
	Organization string `json:"organization"`
	Name         string `json:"name"`
	ID           string `json:"id"`
}

// HoldingsOf returns what a user owns in the form of answers.
func HoldingsOf(h identity.Holdings) Holdings {
	out := Holdings{LastAdministratorOf: append([]string{}, h.Last...), Owned: []Holding{}, Total: h.Total(), Summary: h.String()}
	for _, v := range h.List {
		out.Owned = append(out.Owned, Holding{Kind: string(v.Kind), Organization: v.Organization, Name: v.Name, ID: v.ID})
	}
	return out
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
	list, more, err := s.Identity.Users(ctx, "", q.Login, page)
	if err != nil {
		return Page[User]{}, err
	}
	p := Page[User]{Entries: []User{}, More: more}
	for _, u := range list {
		p.Entries = append(p.Entries, UserOf(u))
	}
	return p, nil
}

// UserOf returns a user in the form of answers.
func UserOf(u identity.UserSummary) User {
	roles := u.Roles
	if roles == nil {
		roles = map[string]string{}
	}
	return User{
		Login: u.Login, ID: u.ID, Name: u.Name, Email: u.Email, SiteAdmin: u.SiteAdmin, Roles: roles, Created: u.CreatedAt,
		LastSeen: known(u.LastSeen), Disabled: known(u.DisabledAt),
	}
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

func (s *Service) listHoldings(ctx context.Context, q Login) (Holdings, error) {
	h, err := s.Identity.Holdings(ctx, operator, q.Login)
	return HoldingsOf(h), err
}

func (s *Service) handOver(ctx context.Context, q Leaving) (Holdings, error) {
	h, err := s.Identity.HandOver(ctx, operator, q.Login, q.To)
	return HoldingsOf(h), err
}

func (s *Service) disableUser(ctx context.Context, q Leaving) (Ended, error) {
	ended, err := s.Identity.DisableUser(ctx, operator, q.Login, q.To)
	return Ended(ended), err
}

func (s *Service) enableUser(ctx context.Context, q Login) (None, error) {
	return None{}, s.Identity.EnableUser(ctx, q.Login)
}

func (s *Service) deleteUser(ctx context.Context, q Leaving) (Ended, error) {
	ended, err := s.Identity.DeleteUser(ctx, operator, q.Login, q.To)
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
