package store

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"workflowagent/internal/server/store/database"
	"workflowagent/internal/workflow"
)

// Stage is a part of the life of deployments.
type Stage string

// The stages. Every deployment is in exactly one.
const (
	Queued   Stage = "queued"
	Active   Stage = "active" // claimed or running
	Finished Stage = "finished"
)

// stageConditions must be those of the partial indexes of jobs.
var stageConditions = map[Stage]string{
	Queued:   "j.status = 'not-started'",
	Active:   "j.status IN ('accepted', 'running')",
	Finished: "j.status IN ('succeeded', 'failed', 'skipped')",
}

// StageFilter selects the deployments of an organization in one stage. An empty field selects all.
type StageFilter struct {
	OrgID       string // required
	Stage       Stage  // required
	Reach       Reach
	StackID     string
	Statuses    []workflow.Status
	Reasons     []workflow.Reason
	NotReasons  []workflow.Reason
	Drift       *bool // whether detections found drift
	Operation   workflow.Operation
	PoolID      string
	AgentID     string
	Initiator   string
	RequestedBy string // user id
	// Newest selects only the newest deployment of each stack.
	Newest bool
	Since  time.Time // of the request
	// After is the deployment before the selected ones; the zero position selects from the first.
	After StagePosition
	Limit int
}

// StagePosition is the place of a deployment in the list of a stage.
type StagePosition struct {
	QueuedAt     time.Time
	DeploymentID string
}

// byDeployment reports whether the table of deployments has the index that fits the filter, and not
// the table of jobs.
func (f StageFilter) byDeployment() bool { return f.StackID != "" || f.RequestedBy != "" }

// conditions returns the condition of a filter, without the page, and its arguments; "" means that
// the filter selects nothing.
func (f StageFilter) conditions() (where string, args []any) {
	where, args = ofOrgByStack("j", f.OrgID, f.Reach)
	if where == "" {
		return "", nil
	}
	where += " AND " + stageConditions[f.Stage]
	if f.byDeployment() {
		// SQLite then chooses the index deployments_by_stack or deployments_by_user.
		where = strings.Replace(where, "j.org_id = $1", "j.org_id || '' = $1", 1) + " AND d.created_at >= 0"
	}
	if f.StackID == "" && f.RequestedBy != "" {
		where += " AND d.org_id = $1 AND d.requested_by <> ''"
	}
	if f.Newest {
		where += " AND EXISTS (SELECT 1 FROM stack_queues q JOIN live_stacks l ON l.id = q.stack_id WHERE q.stack_id = j.stack_id AND q.last_version = j.version)"
	}
	if !f.Since.IsZero() {
		args = append(args, f.Since)
		where += fmt.Sprintf(" AND j.queued_at >= $%d", len(args))
	}
	add := func(column, value string) {
		if value != "" {
			args = append(args, value)
			where += fmt.Sprintf(" AND %s = $%d", column, len(args))
		}
	}
	add("d.stack_id", f.StackID)
	add("j.operation", string(f.Operation))
	add("j.pool_id", f.PoolID)
	add("j.agent_id", f.AgentID)
	add("d.initiator", f.Initiator)
	add("d.requested_by", f.RequestedBy)
	in := func(column string, values []string, not string) {
		if len(values) > 0 {
			var text string
			text, args = among(column+not, values, args)
			where += " AND " + text
		}
	}
	if f.Drift != nil {
		args = append(args, *f.Drift)
		where += fmt.Sprintf(" AND j.drift_found = $%d", len(args))
	}
	in("j.status", texts(f.Statuses), "")
	in("j.reason", texts(f.Reasons), "")
	in("j.reason", texts(f.NotReasons), " NOT")
	return where, args
}

func texts[T ~string](list []T) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = string(v)
	}
	return out
}

// ofOrgByStack is like [ofOrg], but checks the stack of each row if the caller can see most stacks,
// so that a page needs only the rows of the page.
func ofOrgByStack(table, orgID string, reach Reach) (where string, args []any) {
	if !slices.Contains(reach.ByDefault, orgID) {
		return ofOrg(table, orgID, reach)
	}
	visible, args := reach.query(orgID)
	return "WHERE " + table + ".org_id = $1 AND EXISTS (SELECT 1 FROM live_stacks s JOIN organizations o ON o.id = s.org_id WHERE s.id = " +
		table + ".stack_id AND (" + visible + "))", args
}

// page returns the clauses of a query for a page of the selected deployments, and the columns that
// decide the order; where is "" if the filter selects nothing. Queued deployments are in the order of
// the queue, the others newest first.
func (f StageFilter) page() (where, at, id string, args []any) {
	where, args = f.conditions()
	if where == "" {
		return "", "", "", nil
	}
	order, before := "DESC", "<"
	if f.Stage == Queued {
		order, before = "ASC", ">"
	}
	at, id = "j.queued_at", "j.deployment_id"
	if f.byDeployment() {
		at, id = "d.created_at", "d.id" // the same values
	}
	if f.After.DeploymentID != "" {
		args = append(args, f.After.QueuedAt, f.After.DeploymentID)
		n := len(args)
		where += fmt.Sprintf(" AND %s %s= $%d AND (%[1]s %[2]s $%[3]d OR %s > $%d)", at, before, n-1, id, n)
	}
	return where + fmt.Sprintf(" ORDER BY %s %s, %s LIMIT %d", at, order, id, f.Limit), at, id, args
}

// DeploymentsInStage returns a page of the selected deployments, without settings, results and notes.
func (tx *Tx) DeploymentsInStage(f StageFilter) ([]DeploymentJob, error) {
	where, _, _, args := f.page()
	if where == "" {
		return nil, nil
	}
	query := stageSummaries
	if f.byDeployment() {
		query = deploymentSummaries
	}
	return database.Collect(tx.Tx, readDeploymentJob, query+where, args...)
}

// StageText is what a search compares of a deployment.
type StageText struct {
	StagePosition
	Version            int64
	Requester, Message string
	Branch, Commit     string // beginnings
}

// SearchStage calls match with a page of the selected deployments, in their order. It returns the
// positions of those that match, and the position of the last one, which is zero if the page is not
// full.
func (tx *Tx) SearchStage(f StageFilter, match func(StageText) bool) (found []StagePosition, end StagePosition, err error) {
	where, at, id, args := f.page()
	if where == "" {
		return nil, end, nil
	}
	from := " FROM jobs j JOIN deployments d ON d.id = j.deployment_id"
	if f.byDeployment() {
		from = " FROM deployments d JOIN jobs j ON j.deployment_id = d.id"
	}
	from += " LEFT JOIN deployment_briefs b ON b.deployment_id = d.id "
	n := 0
	_, err = database.Collect(tx.Tx, func(scan database.Scan) (struct{}, error) {
		var t StageText
		var queued int64
		err := scan(&queued, &t.DeploymentID, &t.Version, &t.Requester, &t.Message, &t.Branch, &t.Commit)
		t.QueuedAt = micro(queued)
		end, n = t.StagePosition, n+1
		if err == nil && match(t) {
			found = append(found, t.StagePosition)
		}
		return struct{}{}, err
	}, "SELECT "+at+", "+id+", d.version, d.requester, j.message, COALESCE(b.branch, ''), COALESCE(b.commit_id, '')"+from+where, args...)
	if n < f.Limit {
		end = StagePosition{}
	}
	return found, end, err
}

// StageDeployments returns deployments at positions, in their order, like [Tx.DeploymentsInStage].
func (tx *Tx) StageDeployments(at []StagePosition) ([]DeploymentJob, error) {
	ids := make([]string, len(at))
	for i, p := range at {
		ids[i] = p.DeploymentID
	}
	where, args := among("d.id", ids, nil)
	list, err := database.Collect(tx.Tx, readDeploymentJob, deploymentSummaries+"WHERE "+where, args...)
	slices.SortFunc(list, func(a, b DeploymentJob) int { return slices.Index(ids, a.ID) - slices.Index(ids, b.ID) })
	return list, err
}

// CountInStage returns the number of the selected deployments, but at most limit.
func (tx *Tx) CountInStage(f StageFilter, limit int) (int64, error) {
	where, args := f.conditions()
	if where == "" {
		return 0, nil
	}
	return database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM (SELECT j.id FROM jobs j JOIN deployments d ON d.id = j.deployment_id "+
		where+fmt.Sprintf(" LIMIT %d) n", limit), args...)
}

// Changes are the resource changes of an update of a deployment.
type Changes struct {
	DeploymentID    string
	Kind            string
	Preview         bool
	Version         int64
	ResourceChanges string // JSON object from operations to counts; "" until known
}

var changes = database.NewTable[Changes]("updates")

// ChangesOfDeployments returns the resource changes of the updates that deployments started, oldest
// first.
func (tx *Tx) ChangesOfDeployments(ids []string) ([]Changes, error) {
	where, args := among("deployment_id", ids, nil)
	return changes.All(tx.Tx, "WHERE "+where+" AND started_at > 0 ORDER BY created_at, id", args...)
}

// UsedStacks returns stacks that a user created or deployed lately, of those that the caller can see,
// newest update first and without their configurations.
func (tx *Tx) UsedStacks(orgID, userID string, reach Reach, limit int) ([]Stack, error) {
	visible, args := reach.query(orgID, userID)
	if visible == "" {
		return nil, nil
	}
	return tx.stacksWithoutConfig(`WHERE s.org_id = $1 AND (s.created_by = $2 OR s.id IN (SELECT r.stack_id FROM
		(SELECT stack_id, requested_by FROM deployments WHERE org_id = $1 ORDER BY created_at DESC LIMIT 500) r WHERE r.requested_by = $2))
		AND `+visible+fmt.Sprintf(" ORDER BY s.last_update_at DESC, s.id LIMIT %d", limit), args...)
}
