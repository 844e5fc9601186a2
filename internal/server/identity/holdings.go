package identity

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/words"
)

// maxHoldings bounds the list of what a user owns.
const maxHoldings = 1000

// Holdings are what a user owns and must hand over before the user can be deleted: stacks, and what the user has
// created for organizations or what acts on behalf of the user.
type Holdings struct {
	// Last are the names of the organizations whose last administrator the user is.
	Last []string
	// List contains at most 1,000 entries, by organization, kind and name.
	List   []store.Holding
	Counts map[store.HoldingKind]int64
}

// Total returns the number of what a user owns.
func (h Holdings) Total() (n int64) {
	for _, count := range h.Counts {
		n += count
	}
	return n
}

// String returns the numbers of what a user owns, such as "2 stacks and 1 schedule".
func (h Holdings) String() string {
	var parts []string
	for _, kind := range []store.HoldingKind{store.HeldStack, store.HeldSchedule, store.HeldWebhook, store.HeldIntegration, store.HeldEnvironment, store.HeldToken} {
		if n := h.Counts[kind]; n > 0 {
			parts = append(parts, words.Count(n, string(kind)))
		}
	}
	return english.WordSeries(parts, "and")
}

func holder(userID string) store.Holder {
	return store.Holder{UserID: userID, Actor: actorUser + ":" + userID, Member: actorMember + ":" + userID}
}

// Holdings returns what a user owns. It contains the names only from organizations that p administers.
func (s *Service) Holdings(ctx context.Context, p Principal, login string) (h Holdings, err error) {
	err = s.db.Read(ctx, func(tx *store.Tx) error {
		u, err := tx.UserByLogin(login)
		if err != nil {
			return store.IfMissing(err, noUser(login))
		}
		if h.Last, err = lastAdministratorOf(tx, u); err != nil {
			return err
		}
		if h.List, err = tx.Holdings(holder(u.ID), maxHoldings); err != nil {
			return err
		}
		for i, held := range h.List {
			if !p.CanAdminOrg(held.OrgID) {
				h.List[i].Name = ""
			}
		}
		h.Counts, err = tx.CountHoldings(holder(u.ID))
		return err
	})
	return h, fault.During(err, "listing what a user owns")
}

// HandOver gives all that a user owns to another user, who becomes the owner of the stacks, and on whose behalf
// schedules and webhooks act from then on. If the user is the last administrator of an organization, the other one
// must be an administrator of it, or becomes one if p is the operator. Tokens of organizations, teams and pools remain valid.
//
// The other user must belong to each of the organizations, and must be permitted to run what the schedules do.
func (s *Service) HandOver(ctx context.Context, p Principal, login, to string) (h Holdings, err error) {
	if to == "" {
		return h, fault.Invalid("name the user who takes over what %s owns", login)
	}
	err = s.changeUser(ctx, login, func(tx *store.Tx, u store.User) error {
		h, err = handOver(ctx, tx, p, u, to)
		return err
	})
	return h, fault.During(err, "handing over what a user owns")
}

func handOver(ctx context.Context, tx *store.Tx, p Principal, u store.User, login string) (h Holdings, err error) {
	to, err := tx.UserByLogin(login)
	switch {
	case err != nil:
		return h, store.IfMissing(err, noUser(login))
	case to.ID == u.ID:
		return h, fault.Invalid("%s cannot take over from themselves; name another user", login)
	case to.Disabled():
		return h, fault.Conflict("%s is disabled, and cannot take over what %s owns", login, u.Login)
	}
	if h.Last, err = lastAdministratorOf(tx, u); err != nil {
		return h, err
	}
	if h.Counts, err = tx.CountHoldings(holder(u.ID)); err != nil {
		return h, err
	}
	if err := admitSuccessor(ctx, tx, p, u, to, h.Last); err != nil {
		return h, err
	}
	scheduled, err := tx.StacksOfSchedules(holder(u.ID))
	if err != nil {
		return h, err
	}
	if err := tx.HandOver(holder(u.ID), holder(to.ID)); err != nil {
		return h, err
	}
	return h, checkSchedules(tx, to, scheduled)
}

// admitSuccessor ensures that a user belongs to all organizations in which another user owns something, and
// administers those of which the other one is the last administrator. It records in each what is handed over.
func admitSuccessor(ctx context.Context, tx *store.Tx, p Principal, from, to store.User, last []string) error {
	owned, err := tx.OrganizationsOfHoldings(holder(from.ID))
	if err != nil {
		return err
	}
	for _, name := range last {
		o, err := tx.OrganizationByName(name)
		if err != nil {
			return err
		}
		if _, ok := owned[o.ID]; !ok {
			owned[o.ID] = 0
		}
	}
	var missing []string
	for orgID, n := range owned {
		o, err := tx.Organization(orgID)
		if err != nil {
			return err
		}
		belongs, err := succeed(ctx, tx, p, o, to, slices.Contains(last, o.Name))
		if err != nil {
			return err
		}
		if !belongs {
			missing = append(missing, o.Name)
			continue
		}
		if err := recordMember(ctx, tx, audit.UserHandedOver, orgID, from.ID, from.Login, map[string]any{"to": to.Login, "objects": n}); err != nil {
			return err
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return fault.Conflict("%s does not belong to %s, in which %s owns something; add %s there first, or let the operator do it: workflow-server org appoint ORGANIZATION %s", to.Login, english.WordSeries(missing, "and"), from.Login, to.Login, to.Login)
	}
	return recordMember(ctx, tx, audit.UserHandedOver, "", from.ID, from.Login, map[string]any{"to": to.Login})
}

// succeed makes a member of an organization its administrator if it has no other one. It reports false if the user does
// not belong to it. Only the operator gives the user more access to an organization than it has: an administrator of the
// server could otherwise let in an accomplice.
func succeed(ctx context.Context, tx *store.Tx, p Principal, o store.Organization, to store.User, administer bool) (bool, error) {
	m, err := tx.Member(o.ID, to.ID)
	if store.IgnoreMissing(err) != nil {
		return false, err
	}
	need := RoleMember
	if administer {
		need = RoleAdmin
	}
	switch {
	case m.Role == "":
		return false, nil
	case !p.operator && m.Role != RoleAdmin && m.Role != need:
		return false, fault.Conflict("%s has the role %s in %s, and would get more access to it: name a user with the role %s there, or let the operator hand over: workflow-server user hand-over", to.Login, m.Role, o.Name, need)
	case administer && m.Role != RoleAdmin:
		if err := tx.SetRole(o.ID, to.ID, RoleAdmin); err != nil {
			return false, err
		}
		return true, recordMember(ctx, tx, audit.MemberRoleChanged, o.ID, to.ID, to.Login, map[string]any{"from": m.Role, "to": RoleAdmin})
	}
	return true, nil
}

// checkSchedules returns an error if a user may not do what the schedules of stacks do.
func checkSchedules(tx *store.Tx, u store.User, stacks []string) error {
	var refused []string
	for _, id := range stacks {
		st, err := tx.Stack(id)
		if err != nil {
			return err
		}
		p, err := ActAs(tx, st, Principal{Kind: KindUser, User: u}.Actor())
		if err != nil && fault.KindOf(err) != fault.KindForbidden {
			return err
		}
		if err != nil || !p.Can(st, Operate) {
			refused = append(refused, st.Ref())
		}
	}
	if len(refused) == 0 {
		return nil
	}
	slices.Sort(refused)
	more := ""
	if len(refused) > shownStacks {
		more = fmt.Sprintf(" and %d more", len(refused)-shownStacks)
		refused = refused[:shownStacks]
	}
	return fault.Conflict("%s may not deploy %s%s, which schedules do; grant %s the permission \"write\" there first", u.Login, strings.Join(refused, ", "), more, u.Login)
}

// shownStacks is the number of stacks that an error names.
const shownStacks = 3
