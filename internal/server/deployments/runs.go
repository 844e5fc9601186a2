package deployments

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/deployments/waiting"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// RunQuery selects the runs of [Service.Runs]. An empty field selects all.
type RunQuery struct {
	Kind  string // operation of a deployment, or kind of an update
	State string // like that of [Query]
	Mine  bool
	Who   string // login of the user who requested them
	// After is the Next of the page before.
	After string
	Limit int // at most PageSize; 0 means PageSize
}

// StackRun is a deployment of a stack, or an update that no deployment ran.
type StackRun struct {
	Deployment *Listed
	Update     *store.Update
	By         string // login of the user who requested the update, or ""
}

// RunListing is a page of runs.
type RunListing struct {
	Items []StackRun
	Next  string // selects the next page; "" on the last
}

// Runs returns a page of the runs of a stack, the newest request first. The caller must be able to read the stack.
func (s *Service) Runs(ctx context.Context, p identity.Principal, st store.Stack, q RunQuery) (RunListing, error) {
	var out RunListing
	if err := p.Check(st, identity.StateRead); err != nil {
		return out, err
	}
	f, err := q.filter(p, st)
	if err != nil {
		return out, err
	}
	if err := budget.Of(ctx).Take(ctx, int64(f.Limit)*listedMemory); err != nil {
		return out, err
	}
	err = s.db.Read(ctx, func(tx *store.Tx) error {
		if q.Who != "" {
			u, err := tx.UserByLogin(q.Who)
			if err != nil || f.RequestedBy != "" && f.RequestedBy != u.ID {
				return store.IgnoreMissing(err)
			}
			f.RequestedBy = u.ID
		}
		found, err := tx.Activity(f)
		if err != nil {
			return err
		}
		if len(found) == f.Limit {
			found = found[:f.Limit-1]
			out.Next = runCursor(found[len(found)-1])
		}
		out.Items, err = s.stackRuns(tx, p, st, found)
		return err
	})
	return out, fault.While(err, "listing the runs of %s", st.Ref())
}

// CountRuns returns the number of a stack's runs, up to [CountLimit].
func (s *Service) CountRuns(ctx context.Context, st store.Stack) (int64, error) {
	n, err := store.ReadOne(ctx, s.db, func(tx *store.Tx) (int64, error) { return tx.CountActivity(st.ID, CountLimit) })
	return n, fault.While(err, "counting the runs of %s", st.Ref())
}

// filter returns the filter of a query, with one more run than the page.
func (q RunQuery) filter(p identity.Principal, st store.Stack) (store.ActivityFilter, error) {
	f := store.ActivityFilter{StackID: st.ID, Limit: PageSize + 1, After: store.Activity{CreatedAt: time.UnixMicro(1 << 62)}}
	if q.Limit > 0 && q.Limit < PageSize {
		f.Limit = q.Limit + 1
	}
	if len(q.Kind) > maxText || len(q.Who) > maxText {
		return f, fault.Invalid("the kind or name is longer than %d bytes", maxText)
	}
	f.Kind = q.Kind
	if q.Mine {
		if f.RequestedBy = p.User.ID; f.RequestedBy == "" {
			return f, fault.Invalid("only users have requested runs")
		}
	}
	var err error
	if f.Outcome, err = outcomeOf(q.State); err != nil {
		return f, err
	}
	switch q.State {
	case "":
	case StateStarted, waiting.StateRunning:
		f.Status = waiting.StateRunning
	case StateBad, waiting.StateFailed:
		f.Status = waiting.StateFailed
	case waiting.StateSucceeded, waiting.StateCancelled:
		f.Status = q.State
	default:
		f.NoUpdates = true
	}
	if q.After == "" {
		return f, nil
	}
	kind, rest, _ := strings.Cut(q.After, "-")
	at, id, ok := strings.Cut(rest, "-")
	us, err := strconv.ParseInt(at, 10, 64)
	if !ok || err != nil || id == "" || kind != "d" && kind != "u" {
		return f, fault.Invalid("the page %q does not exist", q.After)
	}
	f.After = store.Activity{CreatedAt: time.UnixMicro(us)}
	if kind == "d" {
		f.After.DeploymentID = id
	} else {
		f.After.UpdateID = id
	}
	return f, nil
}

func runCursor(a store.Activity) string {
	at := "-" + strconv.FormatInt(a.CreatedAt.UnixMicro(), 10) + "-"
	if a.DeploymentID != "" {
		return "d" + at + a.DeploymentID
	}
	return "u" + at + a.UpdateID
}

// stackRuns returns the runs at positions, in their order.
func (s *Service) stackRuns(tx *store.Tx, p identity.Principal, st store.Stack, at []store.Activity) ([]StackRun, error) {
	var jobs []store.StagePosition
	var ids []string
	for _, a := range at {
		if a.DeploymentID != "" {
			jobs = append(jobs, store.StagePosition{DeploymentID: a.DeploymentID})
		} else {
			ids = append(ids, a.UpdateID)
		}
	}
	list, err := tx.StageDeployments(jobs)
	if err != nil {
		return nil, err
	}
	listed, err := s.listed(tx, st.OrgID, list, p.Reach(st.OrgID))
	if err != nil {
		return nil, err
	}
	updates, err := tx.UpdatesByID(ids)
	if err != nil {
		return nil, err
	}
	runs := map[string]StackRun{}
	for i := range listed {
		runs[listed[i].ID] = StackRun{Deployment: &listed[i]}
	}
	logins := map[string]string{"": ""}
	for i, u := range updates {
		if _, known := logins[u.RequestedBy]; !known {
			by, err := tx.User(u.RequestedBy)
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				return nil, err
			}
			logins[u.RequestedBy] = by.Login
		}
		runs[u.ID] = StackRun{Update: &updates[i], By: logins[u.RequestedBy]}
	}
	out := make([]StackRun, 0, len(at))
	for _, a := range at {
		out = append(out, runs[a.DeploymentID+a.UpdateID])
	}
	return out, nil
}
