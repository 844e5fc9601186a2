package estate

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// Change is a stack with its last run that writes.
type Change struct {
	Stack
	// Changes are the numbers of changed resources by operation of the engine; nil if they are unknown.
	Changes map[string]int64
	// Initiator is what started the deployment; "" if the run is none.
	Initiator string
	Update    store.Update // that the run started; zero if it started none
	Cause     *store.Cause // why the deployment failed; nil if it did not or if that is unknown
}

// Drifted returns the numbers of resources that the newest detection found different, by operation of the engine.
func (s Stack) Drifted() map[string]int64 { return Counts(s.DriftChanges) }

// Locked reports whether a client outside of the server's deployments holds the stack.
func (s Stack) Locked() bool { return s.HeldBy != "" && s.LastDeployment == 0 }

// Counts returns the numbers of resources by operation that an update reported; nil if they are unknown.
func Counts(text string) map[string]int64 {
	var counts map[string]int64
	if json.Unmarshal([]byte(text), &counts) != nil {
		return nil
	}
	return counts
}

// Glance is an organization at a glance, as far as the caller sees its stacks.
type Glance struct {
	All    int64
	States map[State]int64
	// Attention are failed stacks, and then those with drift, each the last changed first. There can be more.
	Attention []Change
	// Direct are stacks that an update outside of deployments holds, and Recent those that changed last.
	Direct []Stack
	Recent []Change
}

// The numbers of stacks in a [Glance].
const (
	glanceAttention = 20
	glanceRunning   = 50 // among which those without a deployment are searched
	glanceDirect    = 10
	glanceRecent    = 10
)

// Glance returns an organization at a glance.
func (s *Service) Glance(ctx context.Context, p identity.Principal, orgID string) (Glance, error) {
	g := Glance{States: map[State]int64{}}
	if err := budget.Of(ctx).Take(ctx, 2*glanceRunning*rowMemory); err != nil {
		return g, err
	}
	f := store.EstateFilter{OrgID: orgID, Reach: p.Reach(orgID), UserID: p.User.ID}
	err := s.db.ReadLong(ctx, func(tx *store.Tx) error {
		err := tx.CountEstate(f, func(c store.EstateCount) {
			g.All += c.Stacks
			g.States[stateOf(c.Rank)] += c.Stacks
		})
		if err != nil {
			return err
		}
		if g.Attention, err = attention(tx, f); err != nil {
			return err
		}
		if g.States[Running] > 0 {
			if g.Direct, err = direct(tx, f); err != nil {
				return err
			}
		}
		g.Recent, err = recent(tx, f)
		return err
	})
	return g, fault.While(err, "reading the state of the organization")
}

func attention(tx *store.Tx, f store.EstateFilter) ([]Change, error) {
	f.Ranks, f.Sort, f.Limit = []store.EstateRank{store.RankFailed, store.RankDrift}, store.SortByState, glanceAttention
	rows, err := tx.EstateRows(f)
	if err != nil {
		return nil, err
	}
	list := stacksOf(rows)
	slices.SortStableFunc(list, func(a, b Stack) int {
		return cmp.Or(cmp.Compare(slices.Index(States, a.State), slices.Index(States, b.State)), b.Since().Compare(a.Since()))
	})
	return changesOf(tx, list)
}

func direct(tx *store.Tx, f store.EstateFilter) ([]Stack, error) {
	f.Ranks, f.Sort, f.Limit = []store.EstateRank{store.RankRunning}, store.SortByChange, glanceRunning
	rows, err := tx.EstateRows(f)
	var list []Stack
	for _, s := range stacksOf(rows) {
		if s.Locked() && s.LastResult == store.RunRunning && len(list) < glanceDirect {
			list = append(list, s)
		}
	}
	return list, err
}

func recent(tx *store.Tx, f store.EstateFilter) ([]Change, error) {
	f.Sort, f.Limit = store.SortByChange, 2*glanceRecent
	rows, err := tx.EstateRows(f)
	if err != nil {
		return nil, err
	}
	list := slices.DeleteFunc(stacksOf(rows), func(s Stack) bool { return s.LastKind == "" || s.LastResult == store.RunRunning })
	return changesOf(tx, list[:min(len(list), glanceRecent)])
}

func changesOf(tx *store.Tx, list []Stack) ([]Change, error) {
	out := make([]Change, len(list))
	for i, s := range list {
		c, err := tx.LastChange(s.Estate)
		if err != nil {
			return nil, err
		}
		out[i] = Change{Stack: s, Changes: Counts(c.Update.ResourceChanges), Update: c.Update, Initiator: c.Initiator, Cause: c.Cause}
	}
	return out, nil
}

// LastChange returns the last run of a stack that writes.
func (s *Service) LastChange(ctx context.Context, st Stack) (Change, error) {
	list, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]Change, error) { return changesOf(tx, []Stack{st}) })
	if err != nil {
		return Change{}, fault.While(err, "reading the last run of a stack")
	}
	return list[0], nil
}

// Since returns the time since which a stack needs attention.
func (s Stack) Since() time.Time {
	if s.State == Drift {
		return s.DriftAt
	}
	return s.ChangedAt
}

// Newest returns the stack of an organization that changed last, of those that the caller sees, and reports whether there
// is one.
func (s *Service) Newest(ctx context.Context, p identity.Principal, orgID string) (st Stack, ok bool, err error) {
	f := store.EstateFilter{OrgID: orgID, Reach: p.Reach(orgID), UserID: p.User.ID, Sort: store.SortByChange, Limit: 1}
	rows, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]store.EstateRow, error) { return tx.EstateRows(f) })
	if err != nil || len(rows) == 0 {
		return st, false, fault.While(err, "reading the newest stack")
	}
	return stacksOf(rows)[0], true, nil
}

// NumbersLimit is the number up to which [Service.Numbers] counts.
const NumbersLimit = 1000

// Numbers returns the numbers of an organization's stacks, up to [NumbersLimit], if the caller sees all of them. It reports
// whether the caller does.
func (s *Service) Numbers(ctx context.Context, p identity.Principal, orgID string) (n store.EstateNumbers, all bool, err error) {
	err = s.db.Read(ctx, func(tx *store.Tx) (err error) {
		n, all, err = tx.EstateNumbers(orgID, p.Reach(orgID), NumbersLimit)
		return err
	})
	return n, all, fault.While(err, "counting stacks")
}
