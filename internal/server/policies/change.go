package policies

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/words"
)

// StackName names a stack of the group's organization.
type StackName struct{ Project, Name string }

// PackRef names a version of a pack, with its configuration in a group.
type PackRef struct {
	Name         string
	Tag          string // tag or number; "" if Number says it, and else the newest version
	Number       int64
	Config       map[string]json.RawMessage
	Environments []string
}

// Change is a change of a group. Parts that are not set keep the current value. A list replaces all members or packs.
type Change struct {
	NewName                 *string
	PoolID                  *string // "" means the organization's default
	EvaluationHours         *int64  // 0 means never
	AddStack, RemoveStack   *StackName
	AddPack, RemovePack     *PackRef
	Stacks                  []StackName // nil keeps the members
	Packs                   []PackRef   // nil keeps the packs
	AddAccount, MatchesTags bool        // ask for what the server does not offer
}

// ErrMatchRules reports that a client asks for rules that match members by tags.
var ErrMatchRules = fault.Invalid("this server does not offer rules that match stacks by tags; add the stacks to the policy group")

// changing is a group during a change.
type changing struct {
	tx      *store.Tx
	org     store.Organization
	group   store.PolicyGroup
	packs   []store.EnabledPack // of the group, after it was read
	read    bool                // packs
	deeds   map[string][]string // what has changed, for the audit log
	effects bool                // packs, members or the pool have changed
	grows   bool                // packs were enabled
	notes   []string            // warnings for the client
}

// beginChange returns a group for its change. A default group gets a row.
func beginChange(tx *store.Tx, org store.Organization, name string) (*changing, error) {
	g, err := findGroup(tx, org, name)
	if err != nil {
		return nil, err
	}
	c := &changing{tx: tx, org: org, group: g, deeds: map[string][]string{}}
	if g.ID != "" {
		return c, nil
	}
	c.group.ID, c.group.CreatedAt, c.group.ModifiedAt = identity.NewID(), tx.Now(), tx.Now()
	return c, tx.InsertPolicyGroup(c.group)
}

// errChecked ends the transaction of a change that is only checked.
var errChecked = errors.New("the change was checked")

// CheckChange returns the error with which a change of a group would fail now, and changes nothing.
func (s *Service) CheckChange(ctx context.Context, org store.Organization, name string, change Change) error {
	err := s.db.Write(ctx, scope.Organization(org.ID), func(tx *store.Tx) error {
		c, err := beginChange(tx, org, name)
		if err != nil {
			return err
		}
		if err := c.apply(change); err != nil {
			return err
		}
		if c.grows {
			if err := checkSize(tx, org); err != nil {
				return err
			}
		}
		return errChecked
	})
	if errors.Is(err, errChecked) {
		return nil
	}
	return err
}

// ChangeGroup makes all changes of a group, or none. It returns warnings for the client.
func (s *Service) ChangeGroup(ctx context.Context, org store.Organization, name string, changes []Change) (warnings []string, err error) {
	if len(changes) > maxChanges {
		return nil, fault.Invalid("a request can make at most %d changes of a policy group, and this one has %d: make several requests", maxChanges, len(changes))
	}
	err = s.db.Write(ctx, scope.Organization(org.ID), func(tx *store.Tx) error {
		c, err := beginChange(tx, org, name)
		if err != nil {
			return err
		}
		for _, change := range changes {
			if err := c.apply(change); err != nil {
				return err
			}
		}
		if c.grows {
			if err := checkSize(tx, org); err != nil {
				return err
			}
		}
		if warnings = c.notes; len(c.deeds) == 0 {
			return nil
		}
		c.group.ModifiedAt = tx.Now()
		if err := tx.SavePolicyGroup(c.group); err != nil {
			return store.IfConflict(err, groupExists(org, c.group.Name))
		}
		if err := recordGroup(ctx, tx, audit.PolicyGroupChanged, c.group, c.detail()); err != nil || !c.effects {
			return err
		}
		return s.changed(ctx, tx, c.group)
	})
	return warnings, err
}

// did records what has changed.
func (c *changing) did(what, object string) { c.deeds[what] = append(c.deeds[what], object) }

// detail returns what has changed, for the audit log.
func (c *changing) detail() map[string]any {
	const most = 20 // names
	out := map[string]any{}
	for what, list := range c.deeds {
		if len(list) > most {
			list = append(slices.Clone(list[:most]), fmt.Sprintf("and %d more", len(list)-most))
		}
		out[what] = list
	}
	return out
}

func (c *changing) apply(change Change) error {
	if change.AddAccount {
		return fault.Invalid("this server does not offer Pulumi Insights, so policy groups have no accounts")
	}
	if change.MatchesTags {
		return ErrMatchRules
	}
	for _, step := range []func(Change) error{c.rename, c.setPool, c.setInterval, c.changeStacks, c.changePacks} {
		if err := step(change); err != nil {
			return err
		}
	}
	return nil
}

func (c *changing) rename(change Change) error {
	if change.NewName == nil || *change.NewName == c.group.Name {
		return nil
	}
	if c.group.IsDefault {
		return fault.Invalid("policy group %s exists in each organization and cannot be renamed", c.group.Name)
	}
	if err := checkGroupName(c.org, *change.NewName); err != nil {
		return err
	}
	c.did("renamed from", c.group.Name)
	c.group.Name = *change.NewName
	return nil
}

func (c *changing) setPool(change Change) error {
	if change.PoolID == nil || *change.PoolID == c.group.PoolID {
		return nil
	}
	if err := checkPool(c.tx, c.org, *change.PoolID); err != nil {
		return err
	}
	c.group.PoolID, c.effects = *change.PoolID, true
	c.did("agent pool", *change.PoolID)
	return nil
}

func (c *changing) setInterval(change Change) error {
	if change.EvaluationHours == nil || *change.EvaluationHours == c.group.EvaluationHours {
		return nil
	}
	c.group.EvaluationHours = *change.EvaluationHours
	if err := checkHours(c.group); err != nil {
		return err
	}
	every := "never"
	if c.group.EvaluationHours > 0 {
		every = words.Count(c.group.EvaluationHours, "hour")
	}
	c.did("interval of evaluations", every)
	return nil
}

func (c *changing) changeStacks(change Change) error {
	for _, single := range []struct {
		stack  *StackName
		member bool
	}{{change.AddStack, true}, {change.RemoveStack, false}} {
		if single.stack == nil {
			continue
		}
		name, id, err := c.stack(*single.stack)
		if err != nil {
			return err
		}
		is, err := c.tx.IsGroupMember(c.group, id)
		if err != nil {
			return err
		}
		if is != single.member {
			if err := c.setMember(name, id, single.member); err != nil {
				return err
			}
		}
	}
	if change.Stacks == nil {
		return nil
	}
	return c.replaceStacks(change.Stacks)
}

// stack returns the name and the id of a stack. A name without a project, which clients permit, must be that of only one
// stack.
func (c *changing) stack(name StackName) (StackName, string, error) {
	missing := fault.NotFound("organization %s has no stack %s", c.org.Name, strings.TrimPrefix(name.Project+"/"+name.Name, "/"))
	if name.Project != "" {
		id, err := c.tx.StackID(c.org.ID, name.Project, name.Name)
		return name, id, store.IfMissing(err, missing)
	}
	list, err := c.tx.StacksNamed(c.org.ID, name.Name, 2)
	switch {
	case err != nil:
		return name, "", err
	case len(list) == 0:
		return name, "", missing
	case len(list) > 1:
		return name, "", fault.Invalid("several stacks of organization %s have the name %s: name the project, as in %s/%s", c.org.Name, name.Name, list[0].Project, name.Name)
	}
	return StackName{list[0].Project, list[0].Name}, list[0].ID, nil
}

func (c *changing) setMember(name StackName, id string, member bool) error {
	if c.group.EntityType == Accounts {
		return fault.Invalid("policy group %s is for accounts of Pulumi Insights and can have no stacks", c.group.Name)
	}
	what := "removed stacks"
	if member {
		what = "added stacks"
	}
	c.did(what, name.Project+"/"+name.Name)
	c.effects = true
	if member == c.group.AllStacks { // as for stacks without a row
		return c.tx.DeleteGroupStack(c.group.ID, id)
	}
	return c.tx.SaveGroupStack(store.GroupStack{GroupID: c.group.ID, StackID: id, Member: member})
}

// replaceStacks makes the stacks of a list the only members.
func (c *changing) replaceStacks(list []StackName) error {
	members := map[StackName]string{}
	for after := ""; ; {
		page, err := c.tx.GroupMembers(c.group, after, membersAtOnce)
		if err != nil {
			return err
		}
		for _, st := range page {
			members[StackName{st.Project, st.Name}], after = st.ID, st.ID
		}
		if len(page) < membersAtOnce {
			break
		}
	}
	wanted := map[StackName]bool{}
	for _, name := range list {
		if _, is := members[name]; is || wanted[name] {
			wanted[name] = true
			continue
		}
		name, id, err := c.stack(name)
		if err != nil {
			return err
		}
		if _, is := members[name]; !is && !wanted[name] {
			if err := c.setMember(name, id, true); err != nil {
				return err
			}
		}
		wanted[name] = true
	}
	for name, id := range members {
		if !wanted[name] {
			if err := c.setMember(name, id, false); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *changing) changePacks(change Change) error {
	if change.AddPack == nil && change.RemovePack == nil && change.Packs == nil {
		return nil
	}
	if !c.read { // once for all changes, because the levels and the configurations can be large
		var err error
		if c.packs, err = c.tx.EnabledPacks(c.group.ID); err != nil {
			return err
		}
		c.read = true
	}
	if ref := change.RemovePack; ref != nil {
		if err := c.disable(*ref); err != nil {
			return err
		}
	}
	wanted := change.Packs
	if change.AddPack != nil {
		wanted = append(slices.Clone(wanted), *change.AddPack)
	}
	if len(wanted) > maxGroupPacks {
		return errManyPacks
	}
	names := map[string]bool{}
	for _, ref := range wanted {
		if names[ref.Name] {
			return fault.Invalid("a policy group can have only one version of policy pack %s", ref.Name)
		}
		names[ref.Name] = true
		if err := c.enable(ref); err != nil {
			return err
		}
	}
	if change.Packs != nil {
		for _, e := range slices.Clone(c.packs) {
			if !names[e.PackName] {
				if err := c.disable(PackRef{Name: e.PackName}); err != nil {
					return err
				}
			}
		}
	}
	if len(c.packs) > maxGroupPacks {
		return errManyPacks
	}
	return nil
}

var errManyPacks = fault.Invalid("a policy group can have at most %d policy packs", maxGroupPacks)

// checkSize returns an error if what the groups of an organization enable is too much for an update that must obey all
// of it.
func checkSize(tx *store.Tx, org store.Organization) error {
	size, err := tx.EnabledSize(org.ID)
	if err != nil || size <= maxEnabled {
		return err
	}
	return fault.Invalid("the policy packs in the groups of organization %s would have more than %d MiB of policies and configurations: shorten configurations, or disable versions of packs", org.Name, maxEnabled>>20)
}

// label returns the tag or the number of a reference, or "" if it names no version.
func (r PackRef) label() string {
	if r.Tag == "" && r.Number > 0 {
		return strconv.FormatInt(r.Number, 10)
	}
	return r.Tag
}

// find returns the complete version that a reference names. A number without a tag is only a number, and never a tag.
func (c *changing) find(ref PackRef) (store.PolicyPack, store.PolicyPackVersion, error) {
	if ref.Tag != "" || ref.Number <= 0 {
		return findVersion(c.tx, c.org, ref.Name, ref.Tag, false)
	}
	pack, err := c.tx.PolicyPackByName(c.org.ID, ref.Name)
	if err != nil {
		return pack, store.PolicyPackVersion{}, store.IfMissing(err, noPack(c.org, ref.Name))
	}
	version, err := c.tx.PackVersionByNumber(pack.ID, ref.Number)
	if err == nil && version.Status != store.PackComplete {
		err = store.ErrNotFound
	}
	return pack, version, store.IfMissing(err, noVersion(c.org, ref.Name, ref.label()))
}

func (c *changing) enable(ref PackRef) error {
	pack, version, err := c.find(ref)
	if err != nil {
		return err
	}
	opens, err := c.environments(pack, ref)
	if err != nil {
		return err
	}
	config, err := configOf(ref.Name, version.Levels, ref.Config)
	if err != nil {
		return err
	}
	if config != "" && !version.Configurable {
		c.notes = append(c.notes, fmt.Sprintf("Policy pack %s cannot be configured, so the configuration and its enforcement levels have no effect", ref.Name))
	}
	at := slices.IndexFunc(c.packs, func(e store.EnabledPack) bool { return e.PackID == pack.ID })
	if at >= 0 && c.packs[at].VersionID == version.ID && c.packs[at].Config == config && slices.Equal(c.packs[at].Environments, ref.Environments) && !opens.changed {
		return nil
	}
	c.effects, c.grows = true, true
	c.did("enabled", ref.Name+" "+label(version))
	e := store.EnabledPack{
		GroupID: c.group.ID, PackID: pack.ID, VersionID: version.ID, Config: config, Environments: ref.Environments, ModifiedAt: c.tx.Now(),
		PackName: pack.Name, Number: version.Number, Tag: version.Tag,
	}
	if at >= 0 {
		c.packs[at] = e
	} else {
		c.packs = append(c.packs, e)
	}
	if err := c.tx.SaveEnabledPack(e); err != nil || !opens.changed {
		return err
	}
	c.did("environments", strings.Join(append([]string{ref.Name + ":"}, ref.Environments...), " "))
	return c.tx.SetPackEnvironments(c.group.ID, pack.ID, opens.ids)
}

// disable disables a pack. If the reference names a version, it must be the enabled one.
func (c *changing) disable(ref PackRef) error {
	for at, e := range c.packs {
		if e.PackName != ref.Name {
			continue
		}
		if v := ref.label(); v != "" {
			_, version, err := c.find(ref)
			if err != nil {
				return err
			}
			if version.ID != e.VersionID {
				return fault.NotFound("policy group %s does not enable version %s of policy pack %s, but %s", c.group.Name, v, ref.Name, Label(e.Tag, e.Number))
			}
		}
		c.effects = true
		c.did("disabled", e.PackName+" "+Label(e.Tag, e.Number))
		c.packs = slices.Delete(c.packs, at, at+1)
		return c.tx.DeleteEnabledPack(c.group.ID, e.PackID)
	}
	return fault.NotFound("policy group %s does not enable policy pack %s", c.group.Name, ref.Name)
}
