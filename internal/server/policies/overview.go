package policies

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// PackInUse is the newest version of a pack, with the groups that enable any version of it, by name.
type PackInUse struct {
	store.PackRelease
	Uses []store.PackUse
}

// PackPage returns up to limit packs of an organization whose names contain a text and that follow the pack with the
// name after, by name. more reports whether others follow.
func (s *Service) PackPage(ctx context.Context, orgID, words, after string, limit int) (out []PackInUse, more bool, err error) {
	err = s.db.Read(ctx, func(tx *store.Tx) error {
		list, err := tx.NewestPackReleases(orgID, words, after, limit+1)
		if err != nil {
			return err
		}
		if more = len(list) > limit; more {
			list = list[:limit]
		}
		out = make([]PackInUse, len(list))
		ids := make([]string, len(list))
		for i, r := range list {
			out[i].PackRelease, ids[i] = r, r.PackID
		}
		uses, err := tx.UsesOfPacks(ids)
		for _, u := range uses {
			at := slices.Index(ids, u.PackID)
			out[at].Uses = append(out[at].Uses, u)
		}
		return err
	})
	return out, more, fault.While(err, "listing policy packs")
}

// Names returns the names of the packs of an organization, in their order.
func (s *Service) Names(ctx context.Context, orgID string) ([]string, error) {
	list, err := store.ReadOne(ctx, s.db, func(tx *store.Tx) ([]store.PolicyPack, error) { return tx.PolicyPacks(orgID) })
	out := make([]string, len(list))
	for i, each := range list {
		out[i] = each.Name
	}
	return out, fault.While(err, "listing policy packs")
}

// PackHistory is a version of a pack with all of its versions.
type PackHistory struct {
	store.PolicyPack
	Version  store.PolicyPackVersion
	Policies []Policy
	Details  Details
	Releases []store.PackRelease // the newest first, at most as many as asked for
	Uses     []store.PackUse     // of any version
}

// PackHistory returns a version of a pack by its tag or number, or the newest one if v is "".
func (s *Service) PackHistory(ctx context.Context, org store.Organization, name, v string, releases int) (h PackHistory, err error) {
	err = s.db.Read(ctx, func(tx *store.Tx) (err error) {
		if h.PolicyPack, h.Version, err = findVersion(tx, org, name, v, false); err != nil {
			return err
		}
		if h.Releases, err = tx.PackReleases(h.PolicyPack.ID, releases); err != nil {
			return err
		}
		h.Uses, err = tx.UsesOfPacks([]string{h.PolicyPack.ID})
		return err
	})
	if err != nil {
		return h, err
	}
	if h.Policies, err = PoliciesOf(h.Version); err != nil {
		return h, fault.While(err, "reading the policies of a policy pack")
	}
	err = json.Unmarshal([]byte(cmp.Or(h.Version.Details, "{}")), &h.Details)
	return h, fault.While(err, "reading the description of a policy pack")
}

// GroupInUse is a group with the numbers of its members and packs, and with its packs.
type GroupInUse struct {
	Summary
	Uses []store.PackUse
}

// GroupPage returns up to limit groups for stacks of an organization that follow the group with the name after, by name.
// more reports whether others follow.
func (s *Service) GroupPage(ctx context.Context, orgID, after string, limit int) (out []GroupInUse, more bool, err error) {
	err = s.db.Read(ctx, func(tx *store.Tx) error {
		groups, err := all(tx, orgID)
		if err != nil {
			return err
		}
		groups = slices.DeleteFunc(groups, func(g store.PolicyGroup) bool { return g.EntityType != Stacks || g.Name <= after })
		if more = len(groups) > limit; more {
			groups = groups[:limit]
		}
		list, err := summaries(tx, groups)
		if err != nil {
			return err
		}
		out = make([]GroupInUse, len(list))
		ids := make([]string, len(list))
		for i, g := range list {
			out[i].Summary, ids[i] = g, g.ID
		}
		uses, err := tx.UsesInGroups(ids)
		for _, u := range uses {
			at := slices.Index(ids, u.GroupID)
			out[at].Uses = append(out[at].Uses, u)
		}
		return err
	})
	return out, more, fault.While(err, "listing policy groups")
}

// GroupDetail is a group with the number of its members, and its packs with their configuration.
type GroupDetail struct {
	store.PolicyGroup
	Stacks int64
	Packs  []store.EnabledPack
}

// GroupDetail returns a group without its members; see [Service.MemberPage].
func (s *Service) GroupDetail(ctx context.Context, org store.Organization, name string) (g GroupDetail, err error) {
	err = s.db.Read(ctx, func(tx *store.Tx) (err error) {
		if g.PolicyGroup, err = findGroup(tx, org, name); err != nil {
			return err
		}
		if g.Stacks, err = tx.CountGroupMembers(g.PolicyGroup); err != nil {
			return err
		}
		g.Packs, err = tx.EnabledPacks(g.ID)
		return err
	})
	return g, err
}

// MemberNames returns up to limit stacks of a group that a caller sees and that follow the one with the names in after,
// by project and name.
func (s *Service) MemberNames(ctx context.Context, p identity.Principal, g store.PolicyGroup, after [2]string, limit int) ([]store.MemberName, error) {
	out, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]store.MemberName, error) {
		return tx.GroupMemberNames(g, p.Reach(g.OrgID), after, limit)
	})
	return out, fault.While(err, "reading the stacks of a policy group")
}

// HasStack reports whether a stack is a member of a group.
func (s *Service) HasStack(ctx context.Context, org store.Organization, group string, name StackName) (bool, error) {
	return store.Read(ctx, s.db, func(tx *store.Tx) (bool, error) {
		g, err := findGroup(tx, org, group)
		if err != nil {
			return false, err
		}
		id, err := tx.StackID(org.ID, name.Project, name.Name)
		switch {
		case err != nil:
			return false, store.IgnoreMissing(err)
		case g.ID == "": // a default group without a row
			return g.AllStacks, nil
		}
		return tx.IsGroupMember(g, id)
	})
}
