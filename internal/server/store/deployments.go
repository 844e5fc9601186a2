package store

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"workflowagent/internal/server/store/database"
	"workflowagent/internal/workflow"
)

// Deployment is a request to run an operation on a stack.
type Deployment struct {
	ID, OrgID, StackID string
	Project            string `read:"COALESCE(s.project, d.project)"` // current name, or the last name of a deleted stack
	Stack              string `read:"COALESCE(s.name, d.stack)"`
	Version            int64  // starts at 1 for each stack
	Operation          workflow.Operation
	Initiator          string
	RequestedBy        string // user id; "" if the token has no user
	Requester          string // requester's name at the time of the request
	InheritSettings    bool   // the request inherited the settings of the stack
	Configuration      string // workflow.Settings as JSON with encrypted secrets
	CreatedAt          time.Time
	Batch              string // that the deployments have which a user has started together; "" for others
	Trust              string // class of what it runs, which decides what it may keep; "" if it may keep nothing
}

const fromDeployments = "deployments d LEFT JOIN live_stacks s ON s.id = d.stack_id"

var deployments = database.NewTable[Deployment](fromDeployments)

// InsertDeployment adds a deployment with a new id and version.
func (tx *Tx) InsertDeployment(d Deployment) error {
	err := deployments.Insert(tx.Tx, d)
	if b, ok := briefOf(d.ID, d.Configuration); ok && err == nil {
		err = briefs.Insert(tx.Tx, b)
	}
	return err
}

// Deployment returns a deployment by its id.
func (tx *Tx) Deployment(id string) (Deployment, error) {
	return deployments.One(tx.Tx, "WHERE d.id = $1", id)
}

// KnownRequester reports whether the user who requested a deployment may still read the organization's
// stacks: a member who is not disabled. It returns false if no user requested it.
func (tx *Tx) KnownRequester(id string) (bool, error) {
	n, err := database.Scalar[int64](tx.Tx, `SELECT COUNT(*) FROM deployments d JOIN users u ON u.id = d.requested_by
		WHERE d.id = $1 AND u.disabled_at = 0 AND EXISTS (SELECT 1 FROM members m WHERE m.org_id = d.org_id AND m.user_id = u.id)`, id)
	return n > 0, err
}

// DeploymentByVersion returns a deployment of a stack by its version.
func (tx *Tx) DeploymentByVersion(stackID string, version int64) (Deployment, error) {
	return deployments.One(tx.Tx, "WHERE d.stack_id = $1 AND d.version = $2", stackID, version)
}

// DeploymentFilter selects, sorts and paginates deployments.
type DeploymentFilter struct {
	OrgID   string // required
	StackID string // "" selects all stacks of the organization that Reach selects
	Reach   Reach
	Sort    string // a name that CanSortDeployments accepts; "" sorts by creation time
	Asc     bool
	Limit   int
	Offset  int
}

var deploymentOrder = map[string]string{
	"":          "d.created_at",
	"created":   "d.created_at",
	"modified":  "j.modified_at",
	"version":   "d.version",
	"status":    "j.status",
	"operation": "d.operation",
}

// CanSortDeployments reports whether deployments can be sorted by the named field.
func CanSortDeployments(name string) bool { return deploymentOrder[name] != "" }

// DeploymentJob is a deployment with its job.
type DeploymentJob struct {
	Deployment
	Job      Job
	PoolName string // "" if the job has no pool or the pool was deleted
}

var deploymentJobs = "SELECT " + deployments.Expressions() + ", " + jobs.Expressions() + ", COALESCE(p.name, '') FROM " + fromDeployments +
	" JOIN jobs j ON j.deployment_id = d.id LEFT JOIN agent_pools p ON p.id = j.pool_id "

// deploymentSummaries leaves out the long columns.
var deploymentSummaries = strings.NewReplacer("d.configuration", "'{}'", "j.result", "''", "j.notes", "''").Replace(deploymentJobs)

// stageSummaries are deploymentSummaries in which the job decides the order.
var stageSummaries = strings.Replace(deploymentSummaries, "FROM "+fromDeployments+" JOIN jobs j ON j.deployment_id = d.id",
	"FROM jobs j JOIN deployments d ON d.id = j.deployment_id LEFT JOIN live_stacks s ON s.id = d.stack_id", 1)

func readDeploymentJob(scan database.Scan) (dj DeploymentJob, err error) {
	err = scan(append(append(deployments.Fields(&dj.Deployment), jobs.Fields(&dj.Job)...), &dj.PoolName)...)
	return dj, err
}

// Deployments returns a page of the selected deployments, without settings, results and notes. It
// also returns the number of all selected deployments.
func (tx *Tx) Deployments(f DeploymentFilter) ([]DeploymentJob, int64, error) {
	order, ok := deploymentOrder[f.Sort]
	if !ok {
		return nil, 0, fmt.Errorf("sorting deployments by %q: unknown sort field", f.Sort)
	}
	where, args := ofOrg("d", f.OrgID, f.Reach)
	if f.StackID != "" {
		// With these conditions SQLite chooses the index deployments_by_stack, and reads neither all
		// deployments of the organization nor, for the default order, those after the page.
		where, args = "WHERE d.org_id || '' = $1 AND d.stack_id = $2 AND d.created_at >= 0", []any{f.OrgID, f.StackID}
	}
	if where == "" {
		return nil, 0, nil
	}
	total, err := database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM deployments d "+where, args...)
	if err != nil {
		return nil, 0, err
	}
	direction := "DESC"
	if f.Asc {
		direction = "ASC"
	}
	list, err := database.Collect(tx.Tx, readDeploymentJob, deploymentSummaries+where+
		fmt.Sprintf(" ORDER BY %s %s, d.version %s, d.id LIMIT %d OFFSET %d", order, direction, direction, f.Limit, f.Offset), args...)
	return list, total, err
}

// DeploymentJob returns a deployment with its job.
func (tx *Tx) DeploymentJob(id string) (DeploymentJob, error) {
	return database.One(tx.Tx, readDeploymentJob, deploymentJobs+"WHERE d.id = $1", id)
}

// DeploymentSummary is like [Tx.DeploymentJob], but without settings, results and notes.
func (tx *Tx) DeploymentSummary(id string) (DeploymentJob, error) {
	return database.One(tx.Tx, readDeploymentJob, deploymentSummaries+"WHERE d.id = $1", id)
}

// CountDeployments returns the number of the deployments by status that [Tx.Deployments] selects.
func (tx *Tx) CountDeployments(orgID string, reach Reach) (map[workflow.Status]int64, error) {
	where, args := ofOrg("j", orgID, reach)
	if where == "" {
		return nil, nil
	}
	return database.Pairs[workflow.Status, int64](tx.Tx, "SELECT j.status, COUNT(*) FROM jobs j "+where+" GROUP BY j.status", args...)
}

// ofOrg returns the clause for an organization's rows in a table of deployments or jobs whose
// stacks a caller can see, or "" if there are none. Callers who see all stacks also see the rows of
// deleted stacks.
func ofOrg(table, orgID string, reach Reach) (where string, args []any) {
	where, args = "WHERE "+table+".org_id = $1", []any{orgID}
	if slices.Contains(reach.All, orgID) {
		return where, args
	}
	visible, args := reach.query(args...)
	if visible == "" {
		return "", nil
	}
	return where + " AND " + table + ".stack_id IN (SELECT s.id FROM live_stacks s JOIN organizations o ON o.id = s.org_id WHERE " + visible + ")", args
}
