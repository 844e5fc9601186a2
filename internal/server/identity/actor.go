package identity

import (
	"errors"
	"fmt"
	"strings"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
)

// Actor is the stored form of the user, team or organization on whose behalf the server acts later,
// for example when a schedule is due. It names no token: the holder's later tokens, and the expiry
// or the removal of the caller's token, change nothing.
type Actor string

// The kinds of actors.
const (
	actorUser     = "user"      // with the rights of the user at the time of use
	actorMember   = "member"    // the same, without site administration
	actorTeam     = "team"      // with the rights of the team at the time of use
	actorOrg      = "org"       // with the rights of an organization token
	actorOrgAdmin = "org-admin" // with the rights of an administrative organization token
)

// Actor returns the stored form of a caller. It is "" for callers on whose behalf nothing can
// happen later, for example jobs.
func (p Principal) Actor() Actor {
	name := func(kind, id string) Actor { return Actor(kind + ":" + id) }
	switch {
	case p.Kind == KindUser && p.Exchanged: // see confine
		return name(actorMember, p.User.ID)
	case p.Kind == KindUser:
		return name(actorUser, p.User.ID)
	case p.Kind == KindOrg && p.TeamID != "":
		return name(actorTeam, p.TeamID)
	case p.Kind == KindOrg && p.Admin:
		return name(actorOrgAdmin, p.Org.ID)
	case p.Kind == KindOrg:
		return name(actorOrg, p.Org.ID)
	default:
		return ""
	}
}

// AuditActor returns a caller as the audit log names it.
func (p Principal) AuditActor() audit.Actor {
	a := audit.Actor{Kind: string(p.Kind), ID: p.User.ID, Name: p.Name(), TokenID: p.TokenID, TokenName: p.TokenName}
	switch p.Kind {
	case KindOrg:
		a.ID = p.Org.ID
		if p.TeamID != "" {
			a.ID = p.TeamID
		}
	case KindPool:
		a.ID = p.PoolID
	case KindJob, KindRunner:
		a.ID = p.DeploymentID
	case KindUser:
	}
	return a
}

// ActAs returns the principal for an action on a stack on behalf of an actor, with the actor's
// current rights. It returns a [fault.KindForbidden] error if the actor no longer exists, is disabled or has
// left the stack's organization. The caller must still check the needed ability, for example with
// [Principal.Check].
func ActAs(tx *store.Tx, st store.Stack, actor Actor) (Principal, error) {
	p, err := actor.load(tx, st.OrgID)
	if errors.Is(err, store.ErrNotFound) {
		return Principal{}, fault.Forbidden("the user, team or organization on whose behalf this happens no longer exists")
	}
	if err != nil {
		return Principal{}, fmt.Errorf("loading the actor %q: %w", actor, err)
	}
	if p.User.Disabled() {
		return Principal{}, fault.Forbidden("%s, on whose behalf this happens, is disabled", p.Name())
	}
	if p.Role(st.OrgID) == "" {
		return Principal{}, fault.Forbidden("%s, on whose behalf this happens, does not belong to the stack's organization", p.Name())
	}
	return p.On(tx, st)
}

func (a Actor) load(tx *store.Tx, orgID string) (p Principal, err error) {
	kind, id, _ := strings.Cut(string(a), ":")
	switch kind {
	case actorUser, actorMember:
		if p, err = OfUser(tx, id); err != nil {
			return p, err
		}
		if kind == actorMember {
			p.Org.ID, p.Exchanged = orgID, true
			p.confine()
		}
		return p, nil
	case actorTeam:
		team, err := tx.Team(id)
		if err != nil {
			return p, err
		}
		p.Kind, p.TeamID, p.Team, p.TokenName = KindOrg, team.ID, team.Name, team.Name
		p.Org, err = tx.Organization(team.OrgID)
		return p, err
	case actorOrg, actorOrgAdmin:
		p.Kind, p.Admin = KindOrg, kind == actorOrgAdmin
		p.Org, err = tx.Organization(id)
		return p, err
	default:
		return p, errors.New("unknown kind of actor")
	}
}
