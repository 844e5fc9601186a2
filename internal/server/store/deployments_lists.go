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
	OrgID   string // required
	Stage   Stage  // required
	Reach   Reach
	StackID string
	// Stacks selects the stacks with these ids, which the caller sees; nil selects all. [Tx.NarrowStage] sets it.
	Stacks  []string
	few     bool   // they have few deployments
	live    bool   // the caller sees all stacks that exist
	project string // of the stacks, if they are too many
	Outcome
	// Unsuccessful says that Outcome selects only finished deployments that did not succeed, or that found drift, so that an
	// index of these can be used.
	Unsuccessful bool
	Operation    workflow.Operation
	PoolID       string
	AgentID      string
	Initiator    string
	RequestedBy  string // user id
	Batch        string
	// Newest selects only the newest deployment of each stack.
	Newest bool
	Since  time.Time // of the request
	Until  time.Time // of the request, which is earlier
	// After is the deployment before the selected ones; the zero position selects from the first.
	After StagePosition
	Limit int
}

// Outcome selects jobs by how they ended, or by where they are. An empty field selects all.
type Outcome struct {
	Statuses   []workflow.Status
	Reasons    []workflow.Reason
	NotReasons []workflow.Reason
	Drift      *bool // whether detections found drift
}

// where returns the conditions on the job j, each after AND.
func (r Outcome) where(arg func(any) string) (where string) {
	in := func(column string, values []string, not string) {
		if len(values) > 0 {
			marks := make([]string, len(values))
			for i, v := range values {
				marks[i] = arg(v)
			}
			where += " AND " + column + not + " IN (" + strings.Join(marks, ", ") + ")"
		}
	}
	if r.Drift != nil {
		where += " AND j.drift_found = " + arg(*r.Drift)
	}
	in("j.status", texts(r.Statuses), "")
	in("j.reason", texts(r.Reasons), "")
	in("j.reason", texts(r.NotReasons), " NOT")
	return where
}

// StagePosition is the place of a deployment in the list of a stage.
type StagePosition struct {
	QueuedAt     time.Time
	DeploymentID string
}

// byDeployment reports whether the table of deployments has the index that fits the filter, and not
// the table of jobs.
func (f StageFilter) byDeployment() bool {
	return f.Stage == Finished && (f.few || f.Batch != "" || !f.Unsuccessful && (f.StackID != "" || f.RequestedBy != "" || f.Initiator != ""))
}

// The bounds of [Tx.NarrowStage].
const (
	narrowedStacks = 2000
	fewDeployments = 2000 // of stacks, which are then read by stack
)

// NarrowStage lets a filter select the ids of the stacks of a project that the caller sees, or of all that the caller sees
// if these are some of many, so that queries need not check the permissions on the stack of each deployment. It finds out
// whether the selected stacks have few deployments. An empty project selects all.
func (tx *Tx) NarrowStage(f *StageFilter, project string) error {
	if f.StackID != "" {
		n, err := database.Scalar[int64](tx.Tx, "SELECT deployments FROM estate WHERE stack_id = $1", f.StackID)
		f.few = n <= fewDeployments
		return IgnoreMissing(err)
	}
	if project == "" && (slices.Contains(f.Reach.All, f.OrgID) || slices.Contains(f.Reach.ByDefault, f.OrgID)) {
		all, err := tx.reachesAll(f.OrgID, f.Reach)
		f.live = all && !slices.Contains(f.Reach.All, f.OrgID)
		return err
	}
	q, err := tx.estateQuery(EstateFilter{OrgID: f.OrgID, Reach: f.Reach, Project: project})
	if err != nil {
		return err
	}
	f.Stacks = []string{}
	if q.where == "" {
		return nil
	}
	all := int64(0)
	list, err := database.Collect(tx.Tx, func(scan database.Scan) (id string, err error) {
		var n int64
		err = scan(&id, &n)
		all += n
		return id, err
	}, "SELECT e.stack_id, e.deployments FROM "+q.from+q.where+fmt.Sprintf(" LIMIT %d", narrowedStacks+1), q.args...)
	if err != nil {
		return err
	}
	if f.Stacks, f.few = append(f.Stacks, list...), all <= fewDeployments; len(list) > narrowedStacks {
		f.Stacks, f.few, f.project = nil, false, project
	}
	return nil
}

// SelectedBy lets a filter select the stacks and the requester of another one.
func (f *StageFilter) SelectedBy(o StageFilter) {
	f.StackID, f.Stacks, f.few, f.live, f.project, f.RequestedBy = o.StackID, o.Stacks, o.few, o.live, o.project, o.RequestedBy
}

// conditions returns the condition of a filter, without the page, and its arguments; "" means that
// the filter selects nothing.
func (f StageFilter) conditions() (where string, args []any) {
	switch {
	case f.Stacks != nil && len(f.Stacks) == 0:
		return "", nil
	case f.Stacks != nil:
		where, args = among("j.stack_id", f.Stacks, []any{f.OrgID})
		if f.byDeployment() {
			where = strings.Replace(where, "j.stack_id", "d.stack_id", 1)
		}
		where = "WHERE j.org_id = $1 AND " + where
	case f.live:
		where, args = "WHERE j.org_id = $1 AND EXISTS (SELECT 1 FROM live_stacks s WHERE s.id = j.stack_id AND s.org_id = $1)", []any{f.OrgID}
	default:
		where, args = ofOrgByStack("j", f.OrgID, f.Reach)
	}
	if where == "" {
		return "", nil
	}
	where += " AND " + stageConditions[f.Stage]
	if f.Unsuccessful {
		where += " AND j.status IN ('failed', 'skipped')"
	}
	if f.byDeployment() {
		// SQLite then chooses the index deployments_by_stack, deployments_by_user or deployments_by_initiator.
		where = strings.Replace(where, "j.org_id = $1", "NOT j.org_id <> $1", 1) + " AND d.created_at >= 0"
		if f.StackID == "" && !f.few {
			where += " AND d.org_id = $1"
		}
	}
	if f.byDeployment() && f.StackID == "" && !f.few && f.RequestedBy != "" {
		where += " AND d.requested_by <> ''"
	}
	if f.Newest {
		where += " AND EXISTS (SELECT 1 FROM stack_queues q JOIN live_stacks l ON l.id = q.stack_id WHERE q.stack_id = j.stack_id AND q.last_version = j.version)"
	}
	if !f.Since.IsZero() {
		args = append(args, f.Since)
		where += fmt.Sprintf(" AND j.queued_at >= $%d", len(args))
	}
	if !f.Until.IsZero() {
		args = append(args, f.Until)
		where += fmt.Sprintf(" AND j.queued_at < $%d", len(args))
	}
	add := func(column, value string) {
		if value != "" {
			args = append(args, value)
			where += fmt.Sprintf(" AND %s = $%d", column, len(args))
		}
	}
	if f.byDeployment() {
		add("d.stack_id", f.StackID)
	} else {
		add("j.stack_id", f.StackID)
	}
	add("j.operation", string(f.Operation))
	add("j.pool_id", f.PoolID)
	add("j.agent_id", f.AgentID)
	add("d.initiator", f.Initiator)
	add("d.requested_by", f.RequestedBy)
	if f.Batch != "" {
		where += " AND d.batch <> ''" // SQLite then chooses the index deployments_by_batch
		add("d.batch", f.Batch)
	}
	if f.project != "" {
		args = append(args, f.project)
		where += fmt.Sprintf(" AND j.stack_id IN (SELECT p.id FROM live_stacks p WHERE p.org_id = $1 AND p.project = $%d)", len(args))
	}
	return where + f.Outcome.where(argumentsOf(&args)), args
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
	return ofOrgEach(table, orgID, reach)
}

// ofOrgEach is like [ofOrg], but checks the stack of each row, of which there are few.
func ofOrgEach(table, orgID string, reach Reach) (where string, args []any) {
	if slices.Contains(reach.All, orgID) {
		return ofOrg(table, orgID, reach)
	}
	visible, args := reach.query(orgID)
	if visible == "" {
		return "", nil
	}
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
	Name               string // of the stack, with its project
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
	from += " LEFT JOIN live_stacks s ON s.id = d.stack_id LEFT JOIN deployment_briefs b ON b.deployment_id = d.id "
	n := 0
	_, err = database.Collect(tx.Tx, func(scan database.Scan) (struct{}, error) {
		var t StageText
		var queued int64
		err := scan(&queued, &t.DeploymentID, &t.Version, &t.Name, &t.Requester, &t.Message, &t.Branch, &t.Commit)
		t.QueuedAt = micro(queued)
		end, n = t.StagePosition, n+1
		if err == nil && match(t) {
			found = append(found, t.StagePosition)
		}
		return struct{}{}, err
	}, "SELECT "+at+", "+id+`, d.version, COALESCE(s.project || '/' || s.name, d.project || '/' || d.stack), d.requester,
		j.message || COALESCE((SELECT ' ' || u.message FROM updates u WHERE u.deployment_id = d.id AND u.message <> '' ORDER BY u.created_at, u.id LIMIT 1), ''), COALESCE(b.branch, ''), COALESCE(b.commit_id, '')`+from+where, args...)
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
	Message         string // what the client says about it
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
