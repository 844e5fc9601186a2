package store

import (
	"fmt"
	"time"

	"workflowagent/internal/server/store/database"
)

// PackRelease is a complete version of a policy pack, without the texts that describe its policies.
type PackRelease struct {
	PackID      string        `read:"p.id"`
	Name        string        `read:"p.name"`
	Runtime     string        `read:"p.runtime"`
	VersionID   string        `read:"v.id"`
	DisplayName string        `read:"v.display_name"`
	Number      int64         `read:"v.number"`
	Tag         string        `read:"v.tag"`
	Levels      []PolicyLevel `read:"v.levels"`
	Size        int64         `read:"v.size"`
	CreatedBy   string        `read:"v.created_by"`
	CompletedAt time.Time     `read:"v.completed_at"`
}

// PackUse is a version of a policy pack that a group enables.
type PackUse struct {
	PackID    string `read:"p.id"`
	Pack      string `read:"p.name"`
	GroupID   string `read:"g.id"`
	Group     string `read:"g.name"`
	Mode      string `read:"g.mode"`
	VersionID string `read:"v.id"`
	Number    int64  `read:"v.number"`
	Tag       string `read:"v.tag"`
}

var (
	packReleases = database.NewTable[PackRelease]("policy_pack_versions v JOIN policy_packs p ON p.id = v.pack_id")
	packUses     = database.NewTable[PackUse](`policy_group_packs e JOIN policy_groups g ON g.id = e.group_id
		JOIN policy_packs p ON p.id = e.pack_id JOIN policy_pack_versions v ON v.id = e.version_id`)
)

// NewestPackReleases returns the newest complete version of up to limit packs of an organization that follow the pack
// with the name after, by name of the pack. Only packs whose name contains the words of a text are among them.
func (tx *Tx) NewestPackReleases(orgID, words, after string, limit int) ([]PackRelease, error) {
	return packReleases.All(tx.Tx, fmt.Sprintf(`WHERE p.org_id = $1 AND v.status = 'complete' AND p.name > $2 AND LOWER(p.name) LIKE LOWER($3) ESCAPE '\'
		AND NOT EXISTS (SELECT 1 FROM policy_pack_versions n WHERE n.pack_id = v.pack_id AND n.status = 'complete' AND n.number > v.number)
		ORDER BY p.name LIMIT %d`, limit), orgID, after, containing(words))
}

// PackReleases returns up to limit complete versions of a pack, the newest first.
func (tx *Tx) PackReleases(packID string, limit int) ([]PackRelease, error) {
	return packReleases.All(tx.Tx, fmt.Sprintf("WHERE v.pack_id = $1 AND v.status = 'complete' ORDER BY v.number DESC LIMIT %d", limit), packID)
}

// UsesOfPacks returns the groups that enable any of the given packs, by name of the group.
func (tx *Tx) UsesOfPacks(packIDs []string) ([]PackUse, error) {
	if len(packIDs) == 0 {
		return nil, nil
	}
	where, args := among("p.id", packIDs, nil)
	return packUses.All(tx.Tx, "WHERE "+where+" ORDER BY g.name, p.name", args...)
}

// UsesInGroups returns the packs that any of the given groups enable, by name of the pack.
func (tx *Tx) UsesInGroups(groupIDs []string) ([]PackUse, error) {
	if len(groupIDs) == 0 {
		return nil, nil
	}
	where, args := among("g.id", groupIDs, nil)
	return packUses.All(tx.Tx, "WHERE "+where+" ORDER BY p.name, g.name", args...)
}

// MemberName is a stack of a policy group.
type MemberName struct{ ID, Project, Name string }

// GroupMemberNames returns up to limit stacks of a group that r selects and that follow the one with the names in after,
// by project and name.
func (tx *Tx) GroupMemberNames(g PolicyGroup, r Reach, after [2]string, limit int) ([]MemberName, error) {
	return tx.memberNames(g, r, limit, func(arg func(any) string) (follows, order string) {
		return "(s.project > " + arg(after[0]) + " OR s.project = " + arg(after[0]) + " AND s.name > " + arg(after[1]) + ")", "s.project, s.name"
	})
}

// GroupMembersByID returns up to limit stacks of a group that r selects and that follow the one with the id after, by id.
func (tx *Tx) GroupMembersByID(g PolicyGroup, r Reach, after string, limit int) ([]MemberName, error) {
	return tx.memberNames(g, r, limit, func(arg func(any) string) (follows, order string) { return "s.id > " + arg(after), "s.id" })
}

func (tx *Tx) memberNames(g PolicyGroup, r Reach, limit int, page func(arg func(any) string) (follows, order string)) ([]MemberName, error) {
	where, args := membersOf(g)
	arg := argumentsOf(&args)
	visible, err := tx.visibleStacks(g.OrgID, r, arg)
	if err != nil || visible == "" {
		return nil, err
	}
	follows, order := page(arg)
	return database.Collect(tx.Tx, func(scan database.Scan) (m MemberName, err error) {
		err = scan(&m.ID, &m.Project, &m.Name)
		return m, err
	}, "SELECT s.id, s.project, s.name FROM live_stacks s "+where+" AND "+visible+" AND "+follows+fmt.Sprintf(" ORDER BY %s LIMIT %d", order, limit), args...)
}
