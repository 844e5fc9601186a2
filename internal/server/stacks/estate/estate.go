package estate

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// Service lists stacks.
type Service struct {
	db  *store.DB
	log *logrus.Entry
}

// New returns a service on a database.
func New(db *store.DB, log *logrus.Entry) *Service { return &Service{db, log} }

// PageSize is the number of stacks on a page of [Service.List].
const PageSize = 100

// maxPage bounds the number of a page.
const maxPage = 10_000

// Query selects the stacks of [Service.List]. An empty field selects all.
type Query struct {
	Project string
	// Text contains parts of names, owners, repositories and tags, in any order.
	Text    string
	States  []State
	Starred bool
	// TagName and TagValue select the stacks with a tag; without a value, with any.
	TagName, TagValue string
	Owner             string
	Drift             string // "found", "none" or "never"
	Group             store.EstateGroup
	// Folded are groups of which the list contains no stacks, by the value that their stacks have in common.
	Folded []string
	Sort   store.EstateSort
	Page   int // from 1
}

// Stack is a stack in a list.
type Stack struct {
	store.EstateRow
	State State
}

// By returns the name of the user who requested the last run; "" if there was none, or if no user did.
func (s Stack) By() string { return cmp.Or(s.ByName, s.ByLogin, s.LastWho) }

// Group is a group of stacks in a list.
type Group struct {
	Value             string // that they have in common; "" for those without
	Stacks, Resources int64
	States            map[State]int64
	// Folded says that the list contains none of the group's stacks, and Rows which they are otherwise: those on the page.
	Folded bool
	Rows   []Stack
}

// List is a page of stacks.
type List struct {
	Stacks []Stack
	Groups []Group         // those of the stacks, and folded ones between them; none in a list without groups
	All    int64           // without the query's states and stars
	States map[State]int64 // of these
	Stars  int64           // of these
	Owners []string        // of these, or of all if the query selects one, in order
	More   bool            // there is a next page
}

// Bounds of a query.
const (
	maxText  = 200
	maxWords = 8
	maxFolds = 100
)

// rowMemory is the approximate size of a stack in a [List], in bytes.
const rowMemory = 8 << 10

// ofDrift are the values of Query.Drift.
var ofDrift = map[string]store.Drift{"found": store.DriftFound, "none": store.NoDrift, "never": ""}

func (q Query) filter(p identity.Principal, orgID string) (store.EstateFilter, error) {
	f := store.EstateFilter{
		OrgID: orgID, Reach: p.Reach(orgID), UserID: p.User.ID, Project: q.Project, Words: strings.Fields(q.Text), Starred: q.Starred,
		TagName: q.TagName, TagValue: q.TagValue, Owner: q.Owner, Group: q.Group, Sort: q.Sort,
		Limit: PageSize + 1, Offset: (max(1, min(q.Page, maxPage)) - 1) * PageSize,
	}
	switch {
	case len(q.Text) > maxText || len(f.Words) > maxWords:
		return f, fault.Invalid("the filter is longer than %d bytes or %d words", maxText, maxWords)
	case len(q.Folded) > maxFolds || slices.ContainsFunc(q.Folded, func(name string) bool { return len(name) > maxText }):
		return f, fault.Invalid("more than %d groups are folded, or one has a name of more than %d bytes", maxFolds, maxText)
	case len(q.TagName)+len(q.TagValue)+len(q.Owner)+len(q.Group) > maxText:
		return f, fault.Invalid("the tag, owner or group is longer than %d bytes", maxText)
	}
	for _, s := range q.States {
		rank := slices.Index(States, s)
		if rank < 0 {
			return f, fault.Invalid("%q is not a state of stacks", s)
		}
		f.Ranks = append(f.Ranks, store.EstateRank(rank))
	}
	if drift, ok := ofDrift[q.Drift]; ok {
		f.Drift = &drift
	} else if q.Drift != "" {
		return f, fault.Invalid("%q is not found, none or never", q.Drift)
	}
	switch q.Group {
	case store.Ungrouped, store.GroupByProject, store.GroupByOwner, store.GroupByRepository:
	default:
		if name, isTag := strings.CutPrefix(string(q.Group), string(store.GroupByTag)); !isTag || name == "" {
			return f, fault.Invalid("stacks cannot be grouped by %q", q.Group)
		}
	}
	switch q.Sort {
	case "", store.SortByState, store.SortByName, store.SortByChange, store.SortByResources, store.SortByDrift:
	default:
		return f, fault.Invalid("stacks cannot be sorted by %q", q.Sort)
	}
	return f, nil
}

// List returns a page of the stacks of an organization that the caller sees.
func (s *Service) List(ctx context.Context, p identity.Principal, orgID string, q Query) (List, error) {
	f, err := q.filter(p, orgID)
	if err != nil {
		return List{}, err
	}
	if err := budget.Of(ctx).Take(ctx, int64(f.Limit)*rowMemory); err != nil {
		return List{}, err
	}
	l, err := store.ReadLong(ctx, s.db, func(tx *store.Tx) (l List, err error) {
		var order []Group
		if f.Group != store.Ungrouped {
			if order, err = groupsOf(tx, &f, q.Folded); err != nil {
				return l, err
			}
		}
		rows, err := tx.EstateRows(f)
		if err != nil {
			return l, err
		}
		if l.More = len(rows) > PageSize; l.More {
			rows = rows[:PageSize]
		}
		l.Stacks = stacksOf(rows)
		l.divide(order)
		return l, l.count(tx, f)
	})
	return l, fault.While(err, "listing stacks")
}

// count sets the numbers of stacks, and the owners.
func (l *List) count(tx *store.Tx, f store.EstateFilter) error {
	l.States = map[State]int64{}
	err := tx.CountEstate(f, func(c store.EstateCount) {
		l.All += c.Stacks
		l.States[stateOf(c.Rank)] += c.Stacks
		if c.Group != "" && len(l.Owners) < maxOwners && !slices.Contains(l.Owners, c.Group) {
			l.Owners = append(l.Owners, c.Group)
		}
	})
	if err != nil {
		return err
	}
	if f.Owner != "" {
		if l.Owners, err = tx.EstateOwners(f, maxOwners); err != nil {
			return err
		}
	}
	l.Stars, err = tx.CountStarred(f)
	return err
}

func stacksOf(rows []store.EstateRow) []Stack {
	list := make([]Stack, len(rows))
	for i, r := range rows {
		list[i] = Stack{r, Of(r.Estate)}
	}
	return list
}

// divide sets the groups on the page, of those that begin there, are continued there or follow.
func (l *List) divide(order []Group) {
	rest := l.Stacks
	for _, g := range order {
		n := 0
		for n < len(rest) && rest[n].Group == g.Value {
			n++
		}
		switch g.Rows, rest = rest[:n], rest[n:]; {
		case n > 0:
		case !g.Folded:
			return // its first stack is on the next page
		case len(rest) == 0 && len(l.Stacks) == PageSize:
			l.More = true
			return
		}
		l.Groups = append(l.Groups, g)
	}
}

// groupsOf returns the groups from the beginning of a page of a list, and lets f select those on it. Sorted by state, groups
// with stacks that need attention are first. Stacks without a group are last.
func groupsOf(tx *store.Tx, f *store.EstateFilter, folded []string) ([]Group, error) {
	counts, err := tx.CountEstateGroups(*f, maxGroupCounts+1) // by group and rank
	if err != nil {
		return nil, err
	}
	if len(counts) > maxGroupCounts {
		return nil, fault.Invalid("the stacks are in too many groups: filter them, or group them by something else")
	}
	// There can be many groups, so that only those on the page are made.
	var order [][]store.EstateCount
	for i, first := 0, 0; i < len(counts); i++ {
		if last := i + 1; last == len(counts) || counts[last].Group != counts[first].Group {
			order = append(order, counts[first:last])
			first = last
		}
	}
	slices.SortStableFunc(order, func(x, y []store.EstateCount) int {
		a, b := x[0], y[0]
		switch {
		case (a.Group == "") != (b.Group == ""):
			return cmp.Compare(b.Group, a.Group)
		case f.Sort == "" || f.Sort == store.SortByState:
			return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Group, b.Group))
		default:
			return cmp.Compare(a.Group, b.Group)
		}
	})
	needed, before, groups := int64(f.Limit), int64(f.Offset), []Group{}
	for _, parts := range order {
		g := groupOf(parts)
		if g.Folded = slices.Contains(folded, g.Value); g.Folded {
			// A folded group is on the page of the stack that would follow it.
			if before == 0 {
				groups = append(groups, g)
			}
			continue
		}
		if before >= g.Stacks {
			before -= g.Stacks
			continue
		}
		if needed <= 0 {
			break
		}
		groups, f.Groups = append(groups, g), append(f.Groups, g.Value)
		if len(f.Groups) == 1 {
			f.Offset = int(before)
		}
		needed, before = needed-(g.Stacks-before), 0
	}
	return groups, nil
}

// groupOf returns the group with the counts.
func groupOf(counts []store.EstateCount) Group {
	g := Group{Value: counts[0].Group, States: map[State]int64{}}
	for _, c := range counts {
		g.Stacks, g.Resources = g.Stacks+c.Stacks, g.Resources+c.Resources
		g.States[stateOf(c.Rank)] += c.Stacks
	}
	return g
}

// maxGroupCounts bounds the groups of a [List], counted once for each state of their stacks, and with them the memory of
// a request.
const maxGroupCounts = 20_000

// maxOwners bounds the owners of a [List].
const maxOwners = 50

// maxStarred bounds the stacks of [Service.Starred].
const maxStarred = 20

// Starred returns the stacks of an organization that the caller has marked, by name.
func (s *Service) Starred(ctx context.Context, p identity.Principal, orgID string) ([]Stack, error) {
	if p.User.ID == "" {
		return nil, nil
	}
	f := store.EstateFilter{OrgID: orgID, Reach: p.Reach(orgID), UserID: p.User.ID, Starred: true, Sort: store.SortByName, Limit: maxStarred}
	rows, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]store.EstateRow, error) { return tx.EstateRows(f) })
	return stacksOf(rows), fault.While(err, "listing starred stacks")
}

// Get returns the row of a stack that the caller may see, with the caller's star.
func (s *Service) Get(ctx context.Context, p identity.Principal, st store.Stack) (Stack, error) {
	row, err := store.ReadOne(ctx, s.db, func(tx *store.Tx) (store.EstateRow, error) { return tx.EstateRow(st.ID, p.User.ID) })
	return Stack{row, Of(row.Estate)}, fault.While(store.IgnoreMissing(err), "reading the state of %s", st.Ref())
}

// SetStar marks a stack for the caller, who must be a user, or removes the mark.
func (s *Service) SetStar(ctx context.Context, p identity.Principal, st store.Stack, on bool) error {
	if p.User.ID == "" {
		return fault.Forbidden("only users can star stacks")
	}
	if err := p.Check(st, identity.StateRead); err != nil {
		return err
	}
	err := s.db.Write(ctx, scope.User(p.User.ID).And(st.Scope().Shared()), func(tx *store.Tx) error {
		tx.Notify(stacks.Topic, st.OrgID+"/"+st.ID)
		if on {
			return tx.Star(p.User.ID, st.ID)
		}
		return tx.Unstar(p.User.ID, st.ID)
	})
	return fault.While(err, "starring a stack")
}

// repairs is the time between two calls of [store.DB.RepairEstate], for servers of an earlier version that share the
// database.
const repairs = time.Hour

// Run repairs, until ctx is done, what servers of earlier versions have left behind.
func (s *Service) Run(ctx context.Context) error {
	ticker := time.NewTicker(repairs)
	defer ticker.Stop()
	for {
		n, err := s.db.RepairEstate(ctx)
		if err != nil {
			return fault.While(err, "repairing the list of stacks")
		}
		if n > 0 {
			s.log.WithField("stacks", n).Info("read the runs of stacks again that an earlier version of the server has changed")
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// Check returns an error if the query is invalid.
func (q Query) Check() error {
	_, err := q.filter(identity.Principal{}, "")
	return err
}
