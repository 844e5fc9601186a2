// Package exceptions keeps exceptions from the policies of required packs. An administrator of an organization gives
// one for policies of a pack and for targets, the URNs of resources. Newer clients receive it with the pack, and do not
// fail because of what it covers. Older ones ignore it, unless it covers the whole stack; see [Apply].
package exceptions

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/policies"
	"workflowagent/internal/server/storage/quota"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// Bounds of an exception. Those of the public API, except maxSize, maxOfStack and MaxActive.
const (
	maxEntries = 100
	maxList    = 100 // policies or targets of an entry
	maxURN     = 2048
	maxReason  = 2048 // characters
	maxPolicy  = 200
	maxLasts   = 3650 * 24 * time.Hour
	maxSize    = 64 << 10 // bytes of the entries as JSON
	// maxOfStack bounds the exceptions that apply to a stack. Each update of the stack receives them.
	maxOfStack = 100
	// MaxActive bounds the exceptions of an organization that apply.
	MaxActive = 1000
)

// New is what an administrator asks for.
type New struct {
	Pack    string // name
	Entries []store.ExceptionEntry
	Reason  string
	Lasts   time.Duration // 0 for an exception without an end
	// WholeStack makes the policies advisory for the stack of the targets, also for clients that do not know exceptions.
	WholeStack bool
}

// Service manages exceptions. Its methods may be called concurrently.
type Service struct {
	db    *store.DB
	quota *quota.Quota
}

// NewService returns a service on a database. A nil quota means no limit.
func NewService(db *store.DB, q *quota.Quota) *Service { return &Service{db: db, quota: q} }

// check returns the bytes of the entries as JSON, or an error unless the request is valid.
func (n New) check() (size int64, err error) {
	switch {
	case strings.TrimSpace(n.Reason) == "" || utf8.RuneCountInString(n.Reason) > maxReason:
		return 0, fault.Invalid("an exception needs a reason of at most %d characters", maxReason)
	case len(n.Entries) == 0 || len(n.Entries) > maxEntries:
		return 0, fault.Invalid("member \"match\" must have 1 to %d entries", maxEntries)
	case n.Lasts != 0 && (n.Lasts < time.Hour || n.Lasts > maxLasts || n.Lasts%time.Hour != 0):
		return 0, fault.Invalid("member \"expiresInSeconds\" must be a whole number of hours, from 1 hour to 3650 days")
	}
	for i, e := range n.Entries {
		switch {
		case len(e.Policies) == 0 || len(e.Policies) > maxList:
			return 0, fault.Invalid("match[%d] must name 1 to %d policies", i, maxList)
		case len(e.Targets) == 0 || len(e.Targets) > maxList:
			return 0, fault.Invalid("match[%d] must have 1 to %d targets", i, maxList)
		}
		for _, policy := range e.Policies {
			if strings.TrimSpace(policy) == "" || len(policy) > maxPolicy || policy == policies.EveryPolicy {
				return 0, fault.Invalid("match[%d] must name single policies, each with at most %d bytes", i, maxPolicy)
			}
		}
		for _, target := range e.Targets {
			if _, _, ok := stackOf(target); !ok || len(target) > maxURN {
				return 0, fault.Invalid("match[%d] has a target that is not a URN of at most %d bytes", i, maxURN)
			}
		}
	}
	text, err := json.Marshal(n.Entries)
	if err == nil && len(text) > maxSize {
		return 0, fault.Invalid("the policies and targets of an exception can have at most %d KiB: give several exceptions", maxSize>>10)
	}
	return int64(len(text)), err
}

func (n New) digest(packID string, stackIDs []string) (string, error) {
	text, err := json.Marshal([]any{packID, stackIDs, n.Entries, n.Reason, int64(n.Lasts / time.Second), n.WholeStack})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// Create gives an exception. existed reports that the same was asked for before and still applies.
func (s *Service) Create(ctx context.Context, p identity.Principal, o store.Organization, n New) (e store.PolicyException, existed bool, err error) {
	if err := mayChange(p, o); err != nil {
		return e, false, err
	}
	size, err := n.check()
	if err != nil {
		return e, false, err
	}
	pack, err := s.packOf(ctx, o, n)
	if err != nil {
		return e, false, fault.During(err, "giving an exception from policies")
	}
	err = s.db.Write(ctx, scope.Organization(o.ID), func(tx *store.Tx) error {
		e, existed = store.PolicyException{}, false
		if err := mayCover(tx, pack, n); err != nil {
			return err
		}
		stackIDs, err := stacksOf(tx, o, n)
		if err != nil {
			return err
		}
		digest, err := n.digest(pack.ID, stackIDs)
		if err != nil {
			return err
		}
		if e, err = tx.PolicyExceptionByDigest(o.ID, digest); !errors.Is(err, store.ErrNotFound) {
			existed = err == nil
			return err
		}
		count, err := tx.CountActiveExceptions(o.ID)
		if err != nil {
			return err
		}
		if count >= MaxActive {
			return fault.Conflict("%s has %d exceptions; remove one first", o.Name, count)
		}
		for _, id := range stackIDs {
			of, err := tx.CountExceptionsOfStack(o.ID, id)
			if err != nil {
				return err
			}
			if of >= maxOfStack {
				return fault.Conflict("a stack of the targets has %d exceptions already; remove one first, or name several targets in one", of)
			}
		}
		e = store.PolicyException{
			ID: identity.NewID(), OrgID: o.ID, PackID: pack.ID, Pack: pack.Name, Reason: n.Reason, Entries: n.Entries, WholeStack: n.WholeStack,
			Digest: digest, CreatedBy: p.Name(), CreatorID: p.User.ID, CreatedAt: tx.Now(),
		}
		if err := s.quota.AdmitText(tx, o.ID, size); err != nil {
			return err
		}
		if n.Lasts > 0 {
			e.ExpiresAt = e.CreatedAt.Add(n.Lasts)
		}
		if e, err = tx.InsertPolicyException(e, stackIDs); err != nil {
			return err
		}
		return audit.Record(ctx, tx, audit.Entry{OrgID: o.ID, Action: audit.ExceptionGiven, Subject: subject(e), Detail: detail(e)})
	})
	return e, existed, fault.During(err, "giving an exception from policies")
}

// mayChange returns an error unless a caller may give and remove exceptions.
func mayChange(p identity.Principal, o store.Organization) error {
	if !p.CanAdminOrg(o.ID) || !p.CanGrant() {
		return fault.Forbidden("only administrators of %s may give and remove exceptions from policies", o.Name)
	}
	return nil
}

// versionsAtOnce bounds the versions of a pack that one statement reads.
const versionsAtOnce = 20

// packOf returns the pack of an exception. One of its complete versions must have the policies. It reads the versions
// before the write, and in parts, because a pack can have many.
func (s *Service) packOf(ctx context.Context, o store.Organization, n New) (store.PolicyPack, error) {
	unknown := map[string]bool{}
	for _, e := range n.Entries {
		for _, policy := range e.Policies {
			unknown[policy] = true
		}
	}
	return store.ReadLong(ctx, s.db, func(tx *store.Tx) (store.PolicyPack, error) {
		missing := fault.NotFound("%s has no policy pack %q", o.Name, n.Pack)
		pack, err := tx.PolicyPackByName(o.ID, n.Pack)
		if err != nil {
			return pack, store.IfMissing(err, missing)
		}
		left := maps.Clone(unknown)
		for before := int64(math.MaxInt64); len(left) > 0; {
			versions, err := tx.PackLevels(pack.ID, before, versionsAtOnce)
			switch {
			case err != nil:
				return pack, err
			case len(versions) == 0 && before == math.MaxInt64:
				return pack, missing
			case len(versions) == 0:
				return pack, fault.Invalid("policy pack %q has no policy %q", n.Pack, slices.Min(slices.Collect(maps.Keys(left))))
			}
			for _, v := range versions {
				for _, level := range v.Levels {
					delete(left, level.Name)
				}
				before = v.Number
			}
		}
		return pack, nil
	})
}

// mayCover returns an error if an exception for a whole stack could not change what the pack does.
func mayCover(tx *store.Tx, pack store.PolicyPack, n New) error {
	if !n.WholeStack {
		return nil
	}
	newest, err := tx.NewestPackVersion(pack.ID)
	if err == nil && !newest.Configurable {
		err = fault.Invalid("policy pack %q cannot be configured, so no exception can make its policies advisory for a whole stack", n.Pack)
	}
	return store.IfMissing(err, fault.NotFound("policy pack %q has no version any more", n.Pack))
}

// stacksOf returns the ids of the stacks of an exception's targets.
func stacksOf(tx *store.Tx, o store.Organization, n New) (ids []string, err error) {
	seen := map[[2]string]bool{}
	for _, e := range n.Entries {
		for _, target := range e.Targets {
			project, name, _ := stackOf(target)
			key := [2]string{project, name}
			if seen[key] {
				continue
			}
			seen[key] = true
			id, err := tx.StackID(o.ID, project, name)
			if errors.Is(err, store.ErrNotFound) {
				return nil, fault.Invalid("%s has no stack %s/%s, which a target names", o.Name, project, name)
			}
			if err != nil {
				return nil, err
			}
			ids = append(ids, id)
		}
	}
	if len(ids) != 1 {
		// A URN has names. If two of the stacks got the names of each other, its targets would be other resources.
		return nil, fault.Invalid("the targets of an exception must be in one stack; give one exception for each of the %d stacks", len(ids))
	}
	return ids, nil
}

func subject(e store.PolicyException) audit.Subject {
	return audit.Subject{Kind: "policy-exception", ID: e.ID, Name: e.Name()}
}

func detail(e store.PolicyException) map[string]any {
	out := map[string]any{"pack": e.Pack, "policy": strings.Join(e.Policies(), ", "), "resources": e.Targets(), "because": e.Reason}
	if len(e.Entries) > 0 && len(e.Entries[0].Targets) > 0 {
		out["target"] = e.Entries[0].Targets[0]
	}
	if e.WholeStack {
		out["wholeStack"] = true
	}
	if !e.ExpiresAt.IsZero() {
		out["expires"] = e.ExpiresAt
	}
	return out
}

// Get returns an exception by its name, and the time by which it has expired. Its targets are missing if the caller may
// not read their stack.
func (s *Service) Get(ctx context.Context, p identity.Principal, o store.Organization, name string) (e store.PolicyException, now time.Time, err error) {
	err = s.db.Read(ctx, func(tx *store.Tx) (err error) {
		now = tx.Now()
		if e, err = byName(tx, o, name); err != nil {
			return err
		}
		one := []store.PolicyException{e}
		err = hide(tx, p, o, one)
		e = one[0]
		return err
	})
	return e, now, fault.During(err, "reading an exception from policies")
}

// hide removes the targets from the exceptions of stacks that a caller may not read.
func hide(tx *store.Tx, p identity.Principal, o store.Organization, list []store.PolicyException) error {
	ids := make([]string, len(list))
	for i, e := range list {
		ids[i] = e.ID
	}
	readable, err := tx.ReadableExceptions(o.ID, p.Reach(o.ID), ids)
	if err != nil {
		return err
	}
	for i := range list {
		e := &list[i]
		if slices.Contains(readable, e.ID) {
			continue
		}
		var entries []store.ExceptionEntry
		for _, entry := range e.Entries {
			entries = append(entries, store.ExceptionEntry{Policies: entry.Policies, Targets: []string{}})
		}
		e.Entries = entries
	}
	return nil
}

func byName(tx *store.Tx, o store.Organization, name string) (store.PolicyException, error) {
	digits, _ := strings.CutPrefix(name, "EXC-")
	number, err := strconv.ParseInt(digits, 10, 64)
	e := store.PolicyException{}
	if err == nil {
		e, err = tx.PolicyExceptionByNumber(o.ID, number)
	} else {
		err = store.ErrNotFound
	}
	if errors.Is(err, store.ErrNotFound) || err == nil && e.Name() != name {
		return e, fault.NotFound("%s has no policy exception %q", o.Name, name)
	}
	return e, err
}

// Remove ends an exception. It remains readable.
func (s *Service) Remove(ctx context.Context, p identity.Principal, o store.Organization, name string) error {
	if err := mayChange(p, o); err != nil {
		return err
	}
	err := s.db.Write(ctx, scope.Organization(o.ID), func(tx *store.Tx) error {
		e, err := byName(tx, o, name)
		if err != nil {
			return err
		}
		if !e.Active(tx.Now()) {
			return fault.Conflict("policy exception %s is already removed", name) // clients look for the last two words
		}
		e.RemovedBy, e.RemoverID, e.RemovedAt = p.Name(), p.User.ID, tx.Now()
		if err := tx.RemovePolicyException(e); err != nil {
			return err
		}
		return audit.Record(ctx, tx, audit.Entry{OrgID: o.ID, Action: audit.ExceptionRemoved, Subject: subject(e), Detail: detail(e)})
	})
	return fault.During(err, "removing an exception from policies")
}

// PageSize is the number of exceptions of a [Page].
const PageSize = 100

// Query selects exceptions. An empty field selects all.
type Query struct {
	Pack, Policy string
	Stack        string // project/name
	// Active and Removed select by whether the exception applies. Without both, only those that apply are selected.
	Active, Removed bool
	Before          int64 // number of the last exception of the page before
}

// Page is a page of exceptions, the newest first.
type Page struct {
	Exceptions []store.PolicyException
	Next       int64     // for [Query.Before]; 0 on the last page
	Now        time.Time // by which exceptions have expired
}

// List returns a page of the exceptions of an organization, without the targets in stacks that the caller may not read.
func (s *Service) List(ctx context.Context, p identity.Principal, o store.Organization, q Query) (Page, error) {
	f := store.ExceptionFilter{OrgID: o.ID, Pack: q.Pack, Before: q.Before, Limit: PageSize + 1}
	if q.Active != q.Removed || !q.Active {
		active := q.Active || !q.Removed
		f.Active = &active
	}
	page, err := store.Read(ctx, s.db, func(tx *store.Tx) (Page, error) {
		out := Page{Now: tx.Now()}
		if q.Stack != "" {
			project, name, _ := strings.Cut(q.Stack, "/")
			var err error
			if f.StackID, err = tx.StackID(o.ID, project, name); errors.Is(err, store.ErrNotFound) {
				return out, nil
			}
			if err != nil {
				return out, err
			}
			st, err := tx.Stack(f.StackID)
			if err != nil {
				return out, store.IgnoreMissing(err)
			}
			if on, err := p.On(tx, st); err != nil || !on.Can(st, identity.StateRead) {
				return out, err
			}
		}
		list, err := tx.PolicyExceptions(f)
		if err != nil {
			return out, err
		}
		if len(list) > PageSize {
			list = list[:PageSize]
			out.Next = list[PageSize-1].Number
		}
		if err := hide(tx, p, o, list); err != nil {
			return out, err
		}
		for _, e := range list {
			if q.Policy == "" || names(e, q.Policy) {
				out.Exceptions = append(out.Exceptions, e)
			}
		}
		return out, nil
	})
	return page, fault.During(err, "listing exceptions from policies")
}

func names(e store.PolicyException, policy string) bool {
	return slices.ContainsFunc(e.Entries, func(entry store.ExceptionEntry) bool { return slices.Contains(entry.Policies, policy) })
}

// OfStack returns the exceptions that apply to a stack now, in the order of their numbers.
func (s *Service) OfStack(ctx context.Context, st store.Stack) ([]store.PolicyException, error) {
	list, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]store.PolicyException, error) {
		return tx.ExceptionsOfStack(st.OrgID, st.ID, tx.Now())
	})
	return list, fault.During(err, "reading the exceptions of a stack")
}

// Messages tell a client which policies are advisory because of exceptions for its whole stack.
func Messages(required []policies.Required) []string {
	var out []string
	for _, r := range required {
		for _, c := range r.Covered {
			out = append(out, Sentence(r.PackName, c))
		}
	}
	return out
}

// Sentence says that a policy of a pack is advisory because of an exception for the whole stack.
func Sentence(pack string, c store.PolicyCover) string {
	return fmt.Sprintf("policy %s of %s is advisory for this stack: exception %s covers the whole stack", c.Policy, pack, c.Exception)
}
