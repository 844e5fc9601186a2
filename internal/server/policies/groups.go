package policies

import (
	"context"
	"errors"
	"slices"
	"strings"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/workflow"
)

const (
	maxGroups     = 500 // of an organization
	maxGroupPacks = 100 // that a group enables
	maxChanges    = 100 // of a group, in one request
	// maxEnabled bounds the bytes of the policies and configurations that the groups of an organization enable. An update
	// of a stack can have to obey all of them.
	maxEnabled     = 16 << 20
	membersAtOnce  = 500 // that one statement reads
	reservedByPath = "metadata"
)

// Summary is a group with the numbers of its members and packs.
type Summary struct {
	store.PolicyGroup
	Stacks, Packs int64
}

// Group is a group with its members and packs.
type Group struct {
	store.PolicyGroup
	Members []store.MemberName // those that the caller may see, by project and name
	Packs   []store.EnabledPack
}

// NewGroup describes a group to create.
type NewGroup struct {
	Name       string
	EntityType string // "" means [Stacks], or [Accounts] if Mode is ""
	Mode       string // "" means [Preventative] for stacks, and [Audit] for accounts
	PoolID     string // of evaluations; "" for the organization's default
	// EvaluationHours is the interval of evaluations without another cause, 0 for none; nil means [DefaultEvaluationHours].
	EvaluationHours *int64
}

const (
	// DefaultEvaluationHours is the interval at which new audit groups evaluate their stacks without another cause.
	DefaultEvaluationHours = 24
	// MaxEvaluationHours is the longest one. Evaluations are kept as long.
	MaxEvaluationHours = 30 * 24
)

// defaults returns the groups that an organization has although they have no row.
func defaults(orgID string) []store.PolicyGroup {
	return []store.PolicyGroup{
		{OrgID: orgID, Name: DefaultAccountsGroup, EntityType: Accounts, Mode: Audit, IsDefault: true, EvaluationHours: DefaultEvaluationHours},
		{OrgID: orgID, Name: DefaultGroup, EntityType: Stacks, Mode: Preventative, IsDefault: true, AllStacks: true, EvaluationHours: DefaultEvaluationHours},
	}
}

// all returns the groups of an organization, by name.
func all(tx *store.Tx, orgID string) ([]store.PolicyGroup, error) {
	list, err := tx.PolicyGroups(orgID)
	for _, d := range defaults(orgID) {
		if !slices.ContainsFunc(list, func(g store.PolicyGroup) bool { return g.Name == d.Name }) {
			list = append(list, d)
		}
	}
	slices.SortFunc(list, func(a, b store.PolicyGroup) int { return strings.Compare(a.Name, b.Name) })
	return list, err
}

// GroupByName returns a group of an organization, or [store.ErrNotFound]. A default group without a row has no id.
func GroupByName(tx *store.Tx, orgID, name string) (store.PolicyGroup, error) {
	g, err := tx.PolicyGroupByName(orgID, name)
	if errors.Is(err, store.ErrNotFound) {
		for _, d := range defaults(orgID) {
			if d.Name == name {
				return d, nil
			}
		}
	}
	return g, err
}

func findGroup(tx *store.Tx, org store.Organization, name string) (store.PolicyGroup, error) {
	g, err := GroupByName(tx, org.ID, name)
	if errors.Is(err, store.ErrNotFound) {
		return g, fault.NotFound("organization %s has no policy group %q; run pulumi policy group ls %s", org.Name, name, org.Name)
	}
	return g, err
}

// Groups returns the groups of an organization, by name.
func (s *Service) Groups(ctx context.Context, orgID string) ([]Summary, error) {
	out, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]Summary, error) {
		groups, err := all(tx, orgID)
		if err != nil {
			return nil, err
		}
		return summaries(tx, groups)
	})
	return out, fault.While(err, "listing policy groups")
}

// GroupsOf returns the groups of which a stack is a member, by name.
func (s *Service) GroupsOf(ctx context.Context, st store.Stack) ([]Summary, error) {
	out, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]Summary, error) {
		groups, err := tx.GroupsOfStack(st.OrgID, st.ID)
		if err != nil {
			return nil, err
		}
		if _, err := tx.PolicyGroupByName(st.OrgID, DefaultGroup); errors.Is(err, store.ErrNotFound) {
			groups = append(groups, defaults(st.OrgID)[1])
			slices.SortFunc(groups, func(a, b store.PolicyGroup) int { return strings.Compare(a.Name, b.Name) })
		}
		return summaries(tx, groups)
	})
	return out, fault.While(err, "listing the policy groups of a stack")
}

func summaries(tx *store.Tx, groups []store.PolicyGroup) ([]Summary, error) {
	out := make([]Summary, len(groups))
	for i, g := range groups {
		out[i].PolicyGroup = g
		var err error
		if out[i].Stacks, err = tx.CountGroupMembers(g); err != nil {
			return nil, err
		}
		if out[i].Packs, err = tx.CountEnabledPacks(g.ID); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Group returns a group with the members that a caller may see.
func (s *Service) Group(ctx context.Context, p identity.Principal, org store.Organization, name string) (Group, error) {
	out, err := store.Read(ctx, s.db, func(tx *store.Tx) (g Group, err error) {
		if g.PolicyGroup, err = findGroup(tx, org, name); err != nil {
			return g, err
		}
		if g.Packs, err = tx.EnabledPacks(g.ID); err != nil {
			return g, err
		}
		for after := [2]string{}; ; {
			page, err := tx.GroupMemberNames(g.PolicyGroup, p.Reach(org.ID), after, membersAtOnce)
			if err != nil {
				return g, err
			}
			g.Members = append(g.Members, page...)
			if len(page) < membersAtOnce {
				return g, nil
			}
			after = [2]string{page[len(page)-1].Project, page[len(page)-1].Name}
		}
	})
	return out, err
}

// Member is a stack of a group with its tags.
type Member struct {
	store.MemberName
	Tags map[string]string
}

// MemberPage returns up to limit stacks of a group that a caller may see and that follow the stack with the id after,
// by id. next is the id after which the next page begins, or "" for the last page.
func (s *Service) MemberPage(ctx context.Context, p identity.Principal, org store.Organization, name, after string, limit int) (out []Member, next string, err error) {
	err = s.db.Read(ctx, func(tx *store.Tx) error {
		g, err := findGroup(tx, org, name)
		if err != nil {
			return err
		}
		page, err := tx.GroupMembersByID(g, p.Reach(org.ID), after, limit+1)
		if err != nil {
			return err
		}
		if len(page) > limit {
			page = page[:limit]
			next = page[limit-1].ID
		}
		ids := make([]string, len(page))
		for i, m := range page {
			ids[i] = m.ID
		}
		tags, err := tx.TagsOfStacks(ids)
		out = make([]Member, len(page))
		for i, m := range page {
			out[i] = Member{m, tags[m.ID]}
		}
		return err
	})
	return out, next, err
}

// CreateGroup adds a group without members and packs.
func (s *Service) CreateGroup(ctx context.Context, org store.Organization, n NewGroup) error {
	g, err := groupOf(org, n)
	if err != nil {
		return err
	}
	err = s.db.Write(ctx, scope.Organization(org.ID), func(tx *store.Tx) error {
		list, err := tx.PolicyGroups(org.ID)
		if err != nil {
			return err
		}
		if len(list) >= maxGroups {
			return fault.Invalid("an organization can have at most %d policy groups; delete one first", maxGroups)
		}
		if err := checkPool(tx, org, g.PoolID); err != nil {
			return err
		}
		g.CreatedAt, g.ModifiedAt = tx.Now(), tx.Now()
		if err := tx.InsertPolicyGroup(g); err != nil {
			return err
		}
		return recordGroup(ctx, tx, audit.PolicyGroupCreated, g, map[string]any{"mode": g.Mode, "entityType": g.EntityType, "pool": g.PoolID})
	})
	return store.IfConflict(err, groupExists(org, g.Name))
}

func groupExists(org store.Organization, name string) error {
	return fault.Conflict("organization %s already has a policy group %q", org.Name, name)
}

func groupOf(org store.Organization, n NewGroup) (store.PolicyGroup, error) {
	if n.EntityType == "" {
		n.EntityType = Stacks
	}
	if n.Mode == "" {
		if n.Mode = Preventative; n.EntityType == Accounts {
			n.Mode = Audit
		}
	}
	if err := checkGroupName(org, n.Name); err != nil {
		return store.PolicyGroup{}, err
	}
	switch {
	case n.EntityType != Stacks && n.EntityType != Accounts:
		return store.PolicyGroup{}, fault.Invalid("the entity type of a policy group must be stacks or accounts")
	case n.Mode != Preventative && n.Mode != Audit:
		return store.PolicyGroup{}, fault.Invalid("the mode of a policy group must be audit or preventative")
	case n.EntityType == Accounts && n.Mode != Audit:
		return store.PolicyGroup{}, fault.Invalid("a policy group of accounts can only have the mode audit")
	}
	g := store.PolicyGroup{ID: identity.NewID(), OrgID: org.ID, Name: n.Name, EntityType: n.EntityType, Mode: n.Mode, PoolID: n.PoolID, EvaluationHours: DefaultEvaluationHours}
	if n.EvaluationHours != nil {
		g.EvaluationHours = *n.EvaluationHours
		return g, checkHours(g)
	}
	return g, nil
}

// checkHours returns an error if a group cannot have its interval of evaluations.
func checkHours(g store.PolicyGroup) error {
	switch {
	case g.Mode != Audit || g.EntityType != Stacks:
		return fault.Invalid("policy group %s has no interval of evaluations: only groups of stacks with mode audit evaluate states", g.Name)
	case g.EvaluationHours < 0 || g.EvaluationHours > MaxEvaluationHours:
		return fault.Invalid("the interval of evaluations must be a whole number of hours, from 1 to %d, or 0 for never", MaxEvaluationHours)
	}
	return nil
}

// checkGroupName returns an error if a group cannot get a name.
func checkGroupName(org store.Organization, name string) error {
	switch {
	case !workflow.MadeOf(name, 100, "_.-", "_. -") || strings.HasSuffix(name, " ") || name == "." || name == ".." || name == reservedByPath:
		return fault.Invalid("the name of a policy group must consist of 1 to 100 letters, digits, '-', '_', '.' and spaces, not begin or end with a space, and not be %q", reservedByPath)
	case slices.ContainsFunc(defaults(""), func(g store.PolicyGroup) bool { return g.Name == name }):
		return groupExists(org, name)
	}
	return nil
}

func checkPool(tx *store.Tx, org store.Organization, id string) error {
	if id == "" {
		return nil
	}
	_, err := tx.Pool(org.ID, id)
	return store.IfMissing(err, fault.Invalid("organization %s has no agent pool with the id %q", org.Name, id))
}

// DeleteGroup removes a group. The default groups cannot be removed.
func (s *Service) DeleteGroup(ctx context.Context, org store.Organization, name string) error {
	return s.db.Write(ctx, scope.Organization(org.ID), func(tx *store.Tx) error {
		g, err := findGroup(tx, org, name)
		if err != nil {
			return err
		}
		if g.IsDefault {
			return fault.Invalid("policy group %s exists in each organization and cannot be deleted; remove its members or its policy packs instead", name)
		}
		if err := tx.DeletePolicyGroup(g.ID); err != nil {
			return err
		}
		if err := recordGroup(ctx, tx, audit.PolicyGroupDeleted, g, nil); err != nil {
			return err
		}
		return s.changed(ctx, tx, g)
	})
}

// changed calls the hook.
func (s *Service) changed(ctx context.Context, tx *store.Tx, g store.PolicyGroup) error {
	if s.hooks.GroupChanged == nil {
		return nil
	}
	return fault.While(s.hooks.GroupChanged(ctx, tx, g), "following the change of a policy group")
}

func recordGroup(ctx context.Context, tx *store.Tx, action audit.Action, g store.PolicyGroup, detail map[string]any) error {
	return audit.Record(ctx, tx, audit.Entry{
		OrgID: g.OrgID, Action: action, Subject: audit.Subject{Kind: "policy-group", ID: g.ID, Name: g.Name}, Detail: detail,
	})
}

// CheckGroup returns an error if an organization has no group of a name.
func (s *Service) CheckGroup(ctx context.Context, org store.Organization, name string) error {
	return s.db.Read(ctx, func(tx *store.Tx) error {
		_, err := findGroup(tx, org, name)
		return err
	})
}

// Coverage returns the numbers of an organization's stacks to which packs apply.
func (s *Service) Coverage(ctx context.Context, orgID string) (store.PolicyCoverage, error) {
	out, err := store.ReadOne(ctx, s.db, func(tx *store.Tx) (store.PolicyCoverage, error) { return tx.PolicyCoverage(orgID) })
	return out, fault.While(err, "counting the stacks with policy packs")
}
