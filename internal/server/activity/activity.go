// Package activity lists what changed in an organization: updates, deployments, and the audit log, in one list.
package activity

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// Service lists activity.
type Service struct {
	db  *store.DB
	log *logrus.Entry
}

// New returns a service on a database.
func New(db *store.DB, log *logrus.Entry) *Service { return &Service{db, log} }

// Part is a part of the activity.
type Part string

// The parts.
const (
	Everything Part = ""
	// Deletes are runs that deleted or replaced resources.
	Deletes    Part = "deletes"
	Production Part = "production"
	// Access is the whole audit log. The other parts contain its changes, but neither reads nor sign-ins.
	Access Part = "access"
	Mine   Part = "mine"
)

// What is a kind of run.
type What string

// The kinds of runs.
const (
	Anything     What = ""
	Updates      What = "update"
	Destroys     What = "destroy"
	Refreshes    What = "refresh"
	FoundDrift   What = "drift"
	ByCLI        What = "cli" // without a deployment
	ByDeployment What = "deployment"
)

// Query selects entries. An empty field selects all.
type Query struct {
	Part Part
	What What
	// Text contains parts of messages, commits, names and details, in any order.
	Text string
	// Who is the login of a user.
	Who string
	// Stack is a project, or a project and a stack with a slash between them.
	Stack string
	// Action and Way select entries of the audit log.
	Action, Way string
	// Since is inclusive, Before exclusive; the zero time is no bound.
	Since, Before time.Time
	// After is the position behind which the entries begin, and UpTo that of the newest one.
	After, UpTo string
}

// The numbers of entries.
const (
	PageSize = 50
	// Window is the number of entries that one step reads, and steps the number of steps that search a page.
	Window = 250
	steps  = 2
	// MaxNew bounds [Service.New].
	MaxNew = 100
	// maxStacks is the number of stacks up to which a query begins with the stacks and not with the time.
	maxStacks = 300
)

// Bounds of a query.
const (
	maxText  = 200
	maxWords = 8
)

// entryMemory is the approximate size of an entry in memory, in bytes.
const entryMemory = 4 << 10

// quiet are the actions of the audit log that change neither settings nor access, or that other entries show.
var quiet = []string{
	string(audit.DeploymentCreated), string(audit.TokenExchanged), string(audit.SignedIn), string(audit.SignInFailed), string(audit.SessionEnded),
}

// List is a page of entries, newest first.
type List struct {
	Entries []Entry
	// Next is the position behind which the next page begins, or "".
	Next string
	// Found are the entries of the page, and others that were found on the way to it. All reports whether these are all
	// entries behind Query.After.
	Found []Entry
	All   bool
	// Whole are the newest entries of all parts, and WholeAll reports whether these are all. They are missing behind the
	// first page.
	Whole    []Entry
	WholeAll bool
	// Newest is the position of the newest entry, or if there is none, of now.
	Newest string
	// Audit reports whether the caller may read the audit log.
	Audit bool
}

// List returns a page of the activity of an organization, as far as the caller sees its stacks and may read its audit
// log.
func (s *Service) List(ctx context.Context, p identity.Principal, orgID string, q Query) (List, error) {
	l := List{Audit: p.CanAdminOrg(orgID)}
	f, err := filter(p, orgID, q)
	if err != nil {
		return l, err
	}
	if err := budget.Of(ctx).Take(ctx, 2*Window*entryMemory); err != nil {
		return l, err
	}
	m := matcher{q: q, user: p.User.ID, words: strings.Fields(strings.ToLower(q.Text))}
	err = s.db.ReadLong(ctx, func(tx *store.Tx) error {
		if f.Stacks, m.project, err = stacksOf(tx, f, q.Stack); err != nil {
			return err
		}
		if q.After == "" {
			whole := f
			whole.Runs, whole.Audit, whole.Actor, whole.Action, whole.Way = true, store.NoAudit, "", "", ""
			if l.Audit {
				whole.Audit = store.AuditedChanges
			}
			if l.Whole, l.WholeAll, err = window(tx, &whole); err != nil {
				return err
			}
			l.Whole = slices.DeleteFunc(l.Whole, func(e Entry) bool { return !m.ofProject(e) })
		}
		return l.search(tx, f, m)
	})
	if err != nil {
		return l, fault.While(err, "listing the activity of an organization")
	}
	l.Newest = q.UpTo
	switch newest := slices.Concat(l.Entries, l.Whole); {
	case q.UpTo != "":
	case len(newest) == 0 || q.After != "":
		l.Newest = position(store.FeedKey{At: time.Now(), ID: "0"})
	default:
		l.Newest = position(slices.MaxFunc(newest, func(a, b Entry) int { return compare(a.FeedKey, b.FeedKey) }).FeedKey)
	}
	return l, nil
}

// search sets the entries of the page.
func (l *List) search(tx *store.Tx, f store.FeedFilter, m matcher) error {
	if m.q.Part == Everything && m.q.After == "" { // the first step is already done
		l.Found, l.All = slices.Clone(l.Whole), l.WholeAll
		if !l.All {
			f.After = l.Whole[len(l.Whole)-1].FeedKey
		}
		l.Found = slices.DeleteFunc(l.Found, func(e Entry) bool { return !m.matches(e) })
	}
	for step := 0; step < steps && !l.All && len(l.Found) <= PageSize; step++ {
		list, all, err := window(tx, &f)
		if err != nil {
			return err
		}
		l.All = all
		l.Found = append(l.Found, slices.DeleteFunc(list, func(e Entry) bool { return !m.ofProject(e) || !m.matches(e) })...)
	}
	l.Entries = l.Found
	switch {
	case len(l.Found) > PageSize:
		l.Entries = l.Found[:PageSize]
		l.Next = position(l.Entries[PageSize-1].FeedKey)
	case !l.All:
		l.Next = position(f.After)
	}
	return nil
}

// window returns the next entries of a filter, moves its position behind them, and reports whether they are the last.
func window(tx *store.Tx, f *store.FeedFilter) (list []Entry, last bool, err error) {
	f.Limit = Window
	keys, err := tx.FeedKeys(*f)
	if err != nil || len(keys) == 0 {
		return nil, true, err
	}
	f.After = keys[len(keys)-1]
	rows, err := tx.FeedEntries(keys)
	list = make([]Entry, len(rows))
	for i, r := range rows {
		list[i] = Entry{r}
	}
	return list, len(keys) < Window, err
}

// New returns the number of the selected entries that are newer than q.UpTo, at most [MaxNew].
func (s *Service) New(ctx context.Context, p identity.Principal, orgID string, q Query) (int, error) {
	f, err := filter(p, orgID, q)
	if err != nil {
		return 0, err
	}
	f.Newer, f.UpTo, f.After = f.UpTo, store.FeedKey{}, store.FeedKey{}
	m := matcher{q: q, user: p.User.ID, words: strings.Fields(strings.ToLower(q.Text))}
	n, err := store.ReadLong(ctx, s.db, func(tx *store.Tx) (n int, err error) {
		if f.Stacks, m.project, err = stacksOf(tx, f, q.Stack); err != nil {
			return 0, err
		}
		f.Limit = MaxNew
		keys, err := tx.FeedKeys(f)
		if err != nil || len(keys) == 0 {
			return 0, err
		}
		rows, err := tx.FeedEntries(keys)
		for _, r := range rows {
			if e := (Entry{r}); m.ofProject(e) && m.matches(e) {
				n++
			}
		}
		return n, err
	})
	return n, fault.While(err, "counting new activity")
}

func filter(p identity.Principal, orgID string, q Query) (f store.FeedFilter, err error) {
	f = store.FeedFilter{OrgID: orgID, Reach: p.Reach(orgID), Runs: q.Part != Access, Quiet: quiet, Since: q.Since, Before: q.Before}
	switch {
	case p.Role(orgID) == "":
		return f, fault.Forbidden("%s does not belong to the organization", p.Name())
	case len(q.Text) > maxText || len(strings.Fields(q.Text)) > maxWords:
		return f, fault.Invalid("the filter is longer than %d bytes or %d words", maxText, maxWords)
	case len(q.Stack)+len(q.Who)+len(q.Action)+len(q.Way) > 2*maxText:
		return f, fault.Invalid("the filter is too long")
	case !slices.Contains([]Part{Everything, Deletes, Production, Access, Mine}, q.Part):
		return f, fault.Invalid("%q is no part of the activity", string(q.Part))
	case !slices.Contains([]What{Anything, Updates, Destroys, Refreshes, FoundDrift, ByCLI, ByDeployment}, q.What):
		return f, fault.Invalid("%q is no kind of run", string(q.What))
	}
	switch admin := p.CanAdminOrg(orgID); {
	case q.Part == Access && !admin:
		return f, fault.Forbidden("only administrators of the organization may read its audit log")
	case q.Part == Access:
		f.Audit, f.Actor, f.Action, f.Way = store.WholeAudit, q.Who, q.Action, q.Way
	case admin && q.What == Anything && q.Part != Deletes && q.Part != Production:
		f.Audit = store.AuditedChanges
	}
	if f.After, err = parsePosition(q.After); err != nil {
		return f, err
	}
	f.UpTo, err = parsePosition(q.UpTo)
	return f, err
}

// stacksOf returns the stacks with which a query begins; nil means that it begins with the time. Then the entries are
// compared with the returned project.
func stacksOf(tx *store.Tx, f store.FeedFilter, text string) (ids []string, project string, err error) {
	project, name, _ := strings.Cut(text, "/")
	ids, err = tx.FeedStacks(f, project, name, maxStacks)
	if ids != nil {
		project = ""
	}
	return ids, project, err
}

// position returns an entry's place as text.
func position(k store.FeedKey) string { return strconv.FormatInt(k.At.UnixMicro(), 10) + "-" + k.ID }

// parsePosition returns a key with the time and id of a position; "" is the zero key.
func parsePosition(text string) (k store.FeedKey, err error) {
	if text == "" {
		return k, nil
	}
	at, id, ok := strings.Cut(text, "-")
	micros, err := strconv.ParseInt(at, 10, 64)
	if !ok || err != nil || id == "" || len(id) > 64 {
		return k, fault.Invalid("the position in the list is not valid")
	}
	return store.FeedKey{At: time.UnixMicro(micros).UTC(), ID: id}, nil
}

func compare(a, b store.FeedKey) int {
	if c := a.At.Compare(b.At); c != 0 {
		return c
	}
	return strings.Compare(a.ID, b.ID)
}
