package store

import (
	"fmt"
	"slices"
	"time"

	"workflowagent/internal/server/store/database"
)

// ExceptionEntry says that any of the policies may be violated by any of the targets, which are URNs.
type ExceptionEntry struct {
	Policies []string `json:"policies"`
	Targets  []string `json:"targets"`
}

// PolicyException is an exception from policies of a pack.
type PolicyException struct {
	ID, OrgID  string
	Number     int64 // in the name that clients use
	PackID     string
	Pack       string // name
	Reason     string
	Entries    []ExceptionEntry
	WholeStack bool   // the policies are advisory for the stack of the targets
	Digest     string // of what was asked for
	CreatedBy  string // name
	CreatorID  string // user id; "" for other callers
	CreatedAt  time.Time
	ExpiresAt  time.Time // zero if without an end
	RemovedBy  string
	RemoverID  string
	RemovedAt  time.Time // zero while not removed
}

// Name returns the name that clients use.
func (e PolicyException) Name() string { return fmt.Sprintf("EXC-%d", e.Number) }

// Policies returns the policies of an exception, by name.
func (e PolicyException) Policies() []string {
	var names []string
	for _, entry := range e.Entries {
		names = append(names, entry.Policies...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Targets returns the number of resources of an exception.
func (e PolicyException) Targets() int {
	n := 0
	for _, entry := range e.Entries {
		n += len(entry.Targets)
	}
	return n
}

// Active reports whether an exception applies at a time.
func (e PolicyException) Active(at time.Time) bool {
	return !e.CreatedAt.After(at) && (e.RemovedAt.IsZero() || e.RemovedAt.After(at)) && (e.ExpiresAt.IsZero() || e.ExpiresAt.After(at))
}

var policyExceptions = database.NewTable[PolicyException]("policy_exceptions x")

// InsertPolicyException adds an exception that applies to stacks of its organization. It sets the number.
func (tx *Tx) InsertPolicyException(e PolicyException, stackIDs []string) (PolicyException, error) {
	last, err := database.Scalar[int64](tx.Tx, "SELECT COALESCE(MAX(number), 0) FROM policy_exceptions WHERE org_id = $1", e.OrgID)
	if err != nil {
		return e, err
	}
	e.Number = last + 1
	if err := policyExceptions.Insert(tx.Tx, e); err != nil {
		return e, err
	}
	for _, id := range stackIDs {
		if _, err := tx.Exec("INSERT INTO policy_exception_stacks (exception_id, stack_id) VALUES ($1, $2)", e.ID, id); err != nil {
			return e, err
		}
	}
	return e, nil
}

// RemovePolicyException writes who removed an exception, and when.
func (tx *Tx) RemovePolicyException(e PolicyException) error {
	return policyExceptions.Update(tx.Tx, e, "removed_by", "remover_id", "removed_at")
}

// EndedException is an exception that was removed or has expired.
type EndedException struct{ ID, OrgID string }

// EndedExceptions returns up to limit exceptions that ended before a time, or that have ended and are not among the newest keep
// of their organization. It never returns the newest one of an organization, because its number decides the next one.
func (tx *Tx) EndedExceptions(before time.Time, keep, limit int) ([]EndedException, error) {
	ended := func(at string) string {
		return "(x.removed_at > 0 AND x.removed_at < " + at + " OR x.expires_at > 0 AND x.expires_at < " + at + ")"
	}
	return database.Collect(tx.Tx, func(scan database.Scan) (e EndedException, err error) {
		err = scan(&e.ID, &e.OrgID)
		return e, err
	}, fmt.Sprintf(`SELECT x.id, x.org_id FROM policy_exceptions x
		JOIN (SELECT m.org_id, MAX(m.number) AS newest FROM policy_exceptions m GROUP BY m.org_id) n ON n.org_id = x.org_id
		WHERE x.number < n.newest AND (`+ended("$1")+" OR "+ended("$2")+` AND x.number <= n.newest - %d) ORDER BY x.org_id, x.number LIMIT %d`, keep, limit), before, tx.Now())
}

// DeletePolicyException removes an exception that has ended.
func (tx *Tx) DeletePolicyException(id string) error {
	for _, rows := range []string{"policy_exception_stacks WHERE exception_id = $1", "policy_exceptions WHERE id = $1"} {
		if _, err := tx.Exec("DELETE FROM "+rows, id); err != nil {
			return err
		}
	}
	return nil
}

// PolicyExceptionByNumber returns an exception of an organization.
func (tx *Tx) PolicyExceptionByNumber(orgID string, number int64) (PolicyException, error) {
	return policyExceptions.One(tx.Tx, "WHERE x.org_id = $1 AND x.number = $2", orgID, number)
}

// activeException is the condition that an exception applies at the time $1.
const activeException = "x.created_at <= $1 AND (x.removed_at = 0 OR x.removed_at > $1) AND (x.expires_at = 0 OR x.expires_at > $1)"

// PolicyExceptionByDigest returns the exception of an organization for which the same was asked, and that applies.
func (tx *Tx) PolicyExceptionByDigest(orgID, digest string) (PolicyException, error) {
	return policyExceptions.One(tx.Tx, "WHERE "+activeException+" AND x.org_id = $2 AND x.digest = $3 ORDER BY x.number LIMIT 1", tx.Now(), orgID, digest)
}

// ExceptionsOfStack returns the exceptions of a stack's organization that apply to the stack at a time, in the order
// of their numbers.
func (tx *Tx) ExceptionsOfStack(orgID, stackID string, at time.Time) ([]PolicyException, error) {
	return policyExceptions.All(tx.Tx, `JOIN policy_exception_stacks k ON k.exception_id = x.id
		WHERE `+activeException+` AND x.org_id = $2 AND k.stack_id = $3 ORDER BY x.number`, at, orgID, stackID)
}

// CountActiveExceptions returns the number of an organization's exceptions that apply.
func (tx *Tx) CountActiveExceptions(orgID string) (int64, error) {
	return database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM policy_exceptions x WHERE "+activeException+" AND x.org_id = $2", tx.Now(), orgID)
}

// CountExceptionsOfStack returns the number of the exceptions of a stack's organization that apply to the stack.
func (tx *Tx) CountExceptionsOfStack(orgID, stackID string) (int64, error) {
	return database.Scalar[int64](tx.Tx, `SELECT COUNT(*) FROM policy_exceptions x JOIN policy_exception_stacks k ON k.exception_id = x.id
		WHERE `+activeException+` AND x.org_id = $2 AND k.stack_id = $3`, tx.Now(), orgID, stackID)
}

// ExceptionFilter selects exceptions of an organization. An empty field selects all.
type ExceptionFilter struct {
	OrgID   string
	Pack    string
	StackID string
	Active  *bool
	Before  int64 // only those with a lower number; 0 for all
	Limit   int
}

// PolicyExceptions returns the exceptions that a filter selects, the newest first.
func (tx *Tx) PolicyExceptions(f ExceptionFilter) ([]PolicyException, error) {
	args := []any{tx.Now(), f.OrgID}
	arg := argumentsOf(&args)
	where := "WHERE CAST($1 AS BIGINT) > 0 AND x.org_id = $2"
	if f.Pack != "" {
		where += " AND x.pack = " + arg(f.Pack)
	}
	if f.StackID != "" {
		where += " AND EXISTS (SELECT 1 FROM policy_exception_stacks k WHERE k.exception_id = x.id AND k.stack_id = " + arg(f.StackID) + ")"
	}
	if f.Active != nil && *f.Active {
		where += " AND " + activeException
	} else if f.Active != nil {
		where += " AND NOT (" + activeException + ")"
	}
	if f.Before > 0 {
		where += " AND x.number < " + arg(f.Before)
	}
	return policyExceptions.All(tx.Tx, where+fmt.Sprintf(" ORDER BY x.number DESC LIMIT %d", f.Limit), args...)
}

// ReadableExceptions returns the ids of those exceptions of an organization whose stacks r selects.
func (tx *Tx) ReadableExceptions(orgID string, r Reach, ids []string) ([]string, error) {
	all, err := tx.reachesAll(orgID, r)
	if err != nil || all || len(ids) == 0 {
		return ids, err
	}
	var args []any
	arg := argumentsOf(&args)
	where, err := tx.visibleStacks(orgID, r, arg)
	if err != nil || where == "" {
		return nil, err
	}
	return database.Scalars[string](tx.Tx, `SELECT k.exception_id FROM policy_exception_stacks k JOIN live_stacks s ON s.id = k.stack_id
		WHERE `+where+" AND k.exception_id IN "+listOf(arg, ids), args...)
}
