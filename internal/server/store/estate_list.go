package store

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"workflowagent/internal/server/store/database"
)

// EstateGroup is what the stacks of a group have in common: one of these, or a tag with the prefix [GroupByTag].
type EstateGroup string

// The groups.
const (
	Ungrouped         EstateGroup = ""
	GroupByProject    EstateGroup = "project"
	GroupByOwner      EstateGroup = "owner"
	GroupByRepository EstateGroup = "repository"
	GroupByTag        EstateGroup = "tag:"
)

// EstateSort is the order of a list of stacks.
type EstateSort string

// The orders. Numbers and times begin with the largest.
const (
	SortByState     EstateSort = "state"
	SortByName      EstateSort = "name"
	SortByChange    EstateSort = "changed"
	SortByResources EstateSort = "resources"
	SortByDrift     EstateSort = "drift"
)

var estateOrders = map[EstateSort]string{
	SortByState:     "e.rank",
	SortByName:      "",
	SortByChange:    "e.changed_at DESC",
	SortByResources: "e.resources DESC",
	SortByDrift:     "CASE e.drift WHEN 'found' THEN 0 WHEN '' THEN 1 ELSE 2 END, e.drift_at",
}

// EstateFilter selects, groups and sorts stacks of an organization. An empty field selects all.
type EstateFilter struct {
	OrgID   string // required
	Reach   Reach
	UserID  string // whose stars count
	Project string
	// Words are parts of the name, owner, repository or tags, in any case and order.
	Words []string
	// Names are parts of the name, in any case and order. An index contains what they are compared with.
	Names []string
	// Deployments is the least number of the newest deployment.
	Deployments       int64
	Ranks             []EstateRank
	Starred           bool
	TagName, TagValue string
	Owner             string
	Drift             *Drift
	Group             EstateGroup
	// Groups selects groups by the value that their stacks have in common, and says their order. It is required for a
	// list of groups.
	Groups        []string
	Sort          EstateSort // "" means [SortByState]
	Limit, Offset int
}

// EstateRow is a stack in a list.
type EstateRow struct {
	Estate
	Group   string // value that the stack's group has in common; "" without one
	Starred bool
	ByName  string // name of the user who requested the last run; "" if no user did or the user is gone
	ByLogin string
}

// EstateCount is a number of stacks with the same group and rank.
type EstateCount struct {
	Group     string
	Rank      EstateRank
	Stacks    int64
	Resources int64
}

// estateQuery is a query for stacks of an organization.
type estateQuery struct {
	from, where, group string
	args               []any
	arg                func(any) string
}

// estateQuery returns the parts of a query; where is "" if the filter selects nothing.
func (tx *Tx) estateQuery(f EstateFilter) (*estateQuery, error) {
	q := &estateQuery{}
	q.arg = argumentsOf(&q.args)
	arg := q.arg
	q.from = "estate e"
	where := []string{"e.org_id = " + arg(f.OrgID)}
	all, err := tx.reachesAll(f.OrgID, f.Reach)
	if err != nil {
		return q, err
	}
	if !all {
		visible := f.Reach.granted(f.OrgID, "e.stack_id", arg)
		if visible == "" {
			return q, nil
		}
		where = append(where, visible)
	}
	switch name, isTag := strings.CutPrefix(string(f.Group), string(GroupByTag)); {
	case isTag:
		q.from += " LEFT JOIN stack_tags gt ON gt.stack_id = e.stack_id AND gt.name = " + arg(name)
		q.group = "COALESCE(gt.value, '')"
	case f.Group == GroupByOwner:
		q.group = "e.owner"
	case f.Group == GroupByRepository:
		q.group = "e.repository"
	case f.Group == GroupByProject:
		q.group = "e.project"
	default:
		q.group = "''"
	}
	if f.Project != "" {
		where = append(where, "e.project = "+arg(f.Project))
	}
	for _, word := range f.Words {
		pattern := arg("%" + likeText.Replace(strings.ToLower(word)) + "%")
		where = append(where, fmt.Sprintf(`(LOWER(e.project || '/' || e.name) LIKE %[1]s ESCAPE '\' OR e.tags LIKE %[1]s ESCAPE '\' OR LOWER(e.repository) LIKE %[1]s ESCAPE '\')`, pattern))
	}
	for _, word := range f.Names {
		where = append(where, "LOWER(e.project || '/' || e.name) LIKE "+arg(containing(strings.ToLower(word)))+` ESCAPE '\'`)
	}
	if f.Deployments > 0 {
		where = append(where, "e.deployments >= "+arg(f.Deployments))
	}
	if f.TagName != "" {
		cond := "EXISTS (SELECT 1 FROM stack_tags t WHERE t.stack_id = e.stack_id AND t.name = " + arg(f.TagName)
		if f.TagValue != "" {
			cond += " AND t.value = " + arg(f.TagValue)
		}
		where = append(where, cond+")")
	}
	if f.Owner != "" {
		where = append(where, "e.owner = "+arg(f.Owner))
	}
	if f.Drift != nil {
		where = append(where, "e.drift = "+arg(*f.Drift))
	}
	q.where = " WHERE " + strings.Join(where, " AND ")
	return q, nil
}

// narrow adds the conditions on states and stars, whose numbers [Tx.CountEstate] returns.
func (q *estateQuery) narrow(f EstateFilter) {
	if len(f.Ranks) > 0 {
		ranks := make([]string, len(f.Ranks))
		for i, r := range f.Ranks {
			ranks[i] = fmt.Sprint(int64(r))
		}
		q.where += " AND e.rank IN (" + strings.Join(ranks, ", ") + ")"
	}
	if f.Starred {
		q.where += " AND e.stack_id IN (SELECT m.stack_id FROM stars m WHERE m.user_id = " + q.arg(f.UserID) + ")"
	}
}

// reachesAll reports whether a caller sees all stacks of an organization, so that queries need not check each.
func (tx *Tx) reachesAll(orgID string, r Reach) (bool, error) {
	if slices.Contains(r.All, orgID) {
		return true, nil
	}
	if !slices.Contains(r.ByDefault, orgID) {
		return false, nil
	}
	least, err := database.Scalar[int64](tx.Tx, "SELECT stack_permission FROM organizations WHERE id = $1", orgID)
	return Permission(least) >= max(r.Least, ReadPermission), IgnoreMissing(err)
}

// visibleStacks returns the condition that the stack s belongs to an organization, and is one that a caller sees. It is ""
// if the caller sees none.
func (tx *Tx) visibleStacks(orgID string, r Reach, arg func(any) string) (string, error) {
	where := "s.org_id = " + arg(orgID)
	all, err := tx.reachesAll(orgID, r)
	if err != nil {
		return "", err
	}
	if all {
		return where, nil
	}
	visible := r.granted(orgID, "s.id", arg)
	if visible == "" {
		return "", nil
	}
	return where + " AND " + visible, nil
}

// StackNames returns the names of up to limit stacks of an organization that r selects, as project/name, in their order.
func (tx *Tx) StackNames(orgID string, r Reach, limit int) ([]string, error) {
	var args []any
	where, err := tx.visibleStacks(orgID, r, argumentsOf(&args))
	if err != nil || where == "" {
		return nil, err
	}
	return database.Scalars[string](tx.Tx, "SELECT s.project || '/' || s.name FROM live_stacks s WHERE "+where+
		fmt.Sprintf(" ORDER BY s.project, s.name LIMIT %d", limit), args...)
}

// order returns the order of a list, in which the place of a stack's group is an expression.
func (f EstateFilter) order(place string) string {
	var order []string
	if f.Group != Ungrouped {
		order = append(order, place)
	}
	if by := estateOrders[cmp.Or(f.Sort, SortByState)]; by != "" {
		order = append(order, by)
	}
	return strings.Join(append(order, "e.project", "e.name"), ", ")
}

// place returns an expression for the place of a stack's group.
func (f EstateFilter) place(q *estateQuery) string {
	if f.Group == Ungrouped {
		return "0"
	}
	var cases strings.Builder
	for i, value := range f.Groups {
		fmt.Fprintf(&cases, " WHEN %s THEN %d", q.arg(value), i)
	}
	return "CASE " + q.group + cases.String() + " ELSE " + fmt.Sprint(len(f.Groups)) + " END"
}

// EstateRows returns a page of stacks.
func (tx *Tx) EstateRows(f EstateFilter) ([]EstateRow, error) {
	q, err := tx.estateQuery(f)
	if err != nil || q.where == "" {
		return nil, err
	}
	q.narrow(f)
	if f.Group != Ungrouped && len(f.Groups) == 0 {
		return nil, nil
	}
	if f.Group != Ungrouped {
		var in string
		in, q.args = among(q.group, f.Groups, q.args)
		q.where += " AND " + in
	}
	// The page is found before its rows are completed.
	place, user := f.place(q), q.arg(f.UserID)
	query := fmt.Sprintf(`SELECT %s, p.group_value, CASE WHEN m.user_id IS NULL THEN 0 ELSE 1 END, COALESCE(w.name, ''), COALESCE(w.login, '')
		FROM (SELECT e.stack_id, %s AS group_value, %s AS place FROM %s%s ORDER BY %s LIMIT %d OFFSET %d) p
		JOIN estate e ON e.stack_id = p.stack_id LEFT JOIN users w ON w.id = e.last_by
		LEFT JOIN stars m ON m.stack_id = e.stack_id AND m.user_id = %s ORDER BY %s`,
		estates.Expressions(), q.group, place, q.from, q.where, f.order("place"), f.Limit, f.Offset, user, f.order("p.place"))
	return database.Collect(tx.Tx, readEstateRow, query, q.args...)
}

func readEstateRow(scan database.Scan) (r EstateRow, err error) {
	err = scan(append(estates.Fields(&r.Estate), &r.Group, &r.Starred, &r.ByName, &r.ByLogin)...)
	return r, err
}

// EstateRow returns the row of a stack, with a user's star.
func (tx *Tx) EstateRow(stackID, userID string) (EstateRow, error) {
	return database.One(tx.Tx, readEstateRow, "SELECT "+estates.Expressions()+`, '', CASE WHEN m.user_id IS NULL THEN 0 ELSE 1 END, COALESCE(w.name, ''), COALESCE(w.login, '')
		FROM estate e LEFT JOIN users w ON w.id = e.last_by LEFT JOIN stars m ON m.stack_id = e.stack_id AND m.user_id = $2 WHERE e.stack_id = $1`, stackID, userID)
}

// CountEstate counts the stacks of a filter by owner and rank, without its ranks and stars. It passes each count to a
// function, in order, because there can be many owners.
func (tx *Tx) CountEstate(f EstateFilter, each func(EstateCount)) error {
	f.Group = GroupByOwner
	q, err := tx.estateQuery(f)
	if err != nil || q.where == "" {
		return err
	}
	_, err = database.Collect(tx.Tx, func(scan database.Scan) (none struct{}, err error) {
		c, err := readEstateCount(scan)
		if err == nil {
			each(c)
		}
		return none, err
	}, q.counts(), q.args...)
	return err
}

// CountStarred counts the stacks of a filter that its user has marked.
func (tx *Tx) CountStarred(f EstateFilter) (int64, error) {
	f.Ranks, f.Starred = nil, true
	q, err := tx.estateQuery(f)
	if err != nil || q.where == "" {
		return 0, err
	}
	q.narrow(f)
	return database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM "+q.from+q.where, q.args...)
}

// CountEstateGroups counts the stacks of a filter by group and by rank, in order. It returns at most limit counts.
func (tx *Tx) CountEstateGroups(f EstateFilter, limit int) ([]EstateCount, error) {
	q, err := tx.estateQuery(f)
	if err != nil || q.where == "" {
		return nil, err
	}
	q.narrow(f)
	return database.Collect(tx.Tx, readEstateCount, q.counts()+fmt.Sprintf(" LIMIT %d", limit), q.args...)
}

// counts returns the query for the [EstateCount] of each group and rank.
func (q *estateQuery) counts() string {
	return fmt.Sprintf("SELECT %[1]s, e.rank, COUNT(*), CAST(SUM(e.resources) AS BIGINT) FROM %[2]s%[3]s GROUP BY %[1]s, e.rank ORDER BY 1, 2", q.group, q.from, q.where)
}

func readEstateCount(scan database.Scan) (c EstateCount, err error) {
	err = scan(&c.Group, &c.Rank, &c.Stacks, &c.Resources)
	return c, err
}

// EstateOwners returns, in order, up to limit values of the tag owner of the stacks of an organization that a caller sees.
func (tx *Tx) EstateOwners(f EstateFilter, limit int) ([]string, error) {
	q, err := tx.estateQuery(EstateFilter{OrgID: f.OrgID, Reach: f.Reach})
	if err != nil || q.where == "" {
		return nil, err
	}
	return database.Scalars[string](tx.Tx, fmt.Sprintf("SELECT DISTINCT e.owner FROM %s%s AND e.owner <> '' ORDER BY e.owner LIMIT %d", q.from, q.where, limit), q.args...)
}
