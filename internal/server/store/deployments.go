package store

import (
	"fmt"
	"strings"
	"time"

	"workflowagent/internal/workflow"
)

// Deployment is a request to run an operation on a stack.
type Deployment struct {
	ID, OrgID, StackID string
	Project, Stack     string // the stack's current names while it exists
	Version            int64  // 1-based, per stack
	Operation          workflow.Operation
	Initiator          string
	RequestedBy        string // user id; "" if the token belongs to no user
	Requester          string // name of the requester when the deployment was created
	Configuration      string // JSON of workflow.Settings, secrets encrypted
	CreatedAt          time.Time
}

const deploymentColumns = `d.id, d.org_id, d.stack_id, COALESCE(s.project, d.project), COALESCE(s.name, d.stack),
	d.version, d.operation, d.initiator, d.requested_by, d.requester, d.configuration, d.created_at`

func deploymentFields(d *Deployment, created *int64) []any {
	return []any{
		&d.ID, &d.OrgID, &d.StackID, &d.Project, &d.Stack, &d.Version, &d.Operation,
		&d.Initiator, &d.RequestedBy, &d.Requester, &d.Configuration, created,
	}
}

func readDeployment(scan scanFunc) (Deployment, error) {
	var d Deployment
	var created int64
	err := scan(deploymentFields(&d, &created)...)
	d.CreatedAt = fromMicros(created)
	return d, err
}

const fromDeployments = " FROM deployments d LEFT JOIN stacks s ON s.id = d.stack_id "

// InsertDeployment adds a deployment.
func (tx *Tx) InsertDeployment(d Deployment) error {
	_, err := tx.exec(`INSERT INTO deployments (id, org_id, stack_id, project, stack, version, operation, initiator,
		requested_by, requester, configuration, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`,
		d.ID, d.OrgID, d.StackID, d.Project, d.Stack, d.Version, string(d.Operation), d.Initiator,
		d.RequestedBy, d.Requester, d.Configuration, micros(d.CreatedAt))
	return err
}

// Deployment returns a deployment by id.
func (tx *Tx) Deployment(id string) (Deployment, error) {
	return one(tx, readDeployment, "SELECT "+deploymentColumns+fromDeployments+"WHERE d.id = $1", id)
}

// DeploymentByVersion returns a deployment of a stack by its version.
func (tx *Tx) DeploymentByVersion(stackID string, version int64) (Deployment, error) {
	return one(tx, readDeployment, "SELECT "+deploymentColumns+fromDeployments+"WHERE d.stack_id = $1 AND d.version = $2", stackID, version)
}

// DeploymentFilter selects and orders the deployments of a list.
type DeploymentFilter struct {
	OrgID   string // required
	StackID string // "" for all of the organization
	Sort    string // a name that CanSortDeployments accepts; "" sorts by creation
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

// CanSortDeployments reports whether lists can be sorted by name.
func CanSortDeployments(name string) bool { return deploymentOrder[name] != "" }

// DeploymentJob is a deployment with its job.
type DeploymentJob struct {
	Deployment
	Job      Job
	PoolName string // "" if the job has no pool or the pool was deleted
}

// Deployments returns a page of a list, without settings, results and notes, and the list's length.
func (tx *Tx) Deployments(f DeploymentFilter) ([]DeploymentJob, int64, error) {
	order, ok := deploymentOrder[f.Sort]
	if !ok {
		return nil, 0, fmt.Errorf("deployments cannot be sorted by %q", f.Sort)
	}
	where, args := "WHERE d.org_id = $1", []any{f.OrgID}
	if f.StackID != "" {
		where, args = where+" AND d.stack_id = $2", append(args, f.StackID)
	}
	var total int64
	if err := tx.queryOne("SELECT COUNT(*) FROM deployments d "+where, args, &total); err != nil {
		return nil, 0, err
	}
	direction := "DESC"
	if f.Asc {
		direction = "ASC"
	}
	columns := strings.NewReplacer("d.configuration", "'{}'", "j.result", "''", "j.notes", "''").Replace(deploymentColumns + ", " + jobColumns("j."))
	list, err := collect(tx, readDeploymentJob, "SELECT "+columns+", COALESCE(p.name, '')"+fromDeployments+
		"JOIN jobs j ON j.deployment_id = d.id LEFT JOIN agent_pools p ON p.id = j.pool_id "+where+
		fmt.Sprintf(" ORDER BY %s %s, d.version %s, d.id LIMIT %d OFFSET %d", order, direction, direction, f.Limit, f.Offset), args...)
	return list, total, err
}

// DeploymentJob returns a deployment with its job.
func (tx *Tx) DeploymentJob(id string) (DeploymentJob, error) {
	return one(tx, readDeploymentJob, "SELECT "+deploymentColumns+", "+jobColumns("j.")+", COALESCE(p.name, '')"+fromDeployments+
		"JOIN jobs j ON j.deployment_id = d.id LEFT JOIN agent_pools p ON p.id = j.pool_id WHERE d.id = $1", id)
}

func readDeploymentJob(scan scanFunc) (DeploymentJob, error) {
	var dj DeploymentJob
	var created int64
	var jt jobTimes
	dest := deploymentFields(&dj.Deployment, &created)
	dest = append(dest, jt.fields(&dj.Job)...)
	dest = append(dest, &dj.PoolName)
	err := scan(dest...)
	dj.CreatedAt = fromMicros(created)
	jt.apply(&dj.Job)
	return dj, err
}

// CountDeployments counts an organization's deployments by status.
func (tx *Tx) CountDeployments(orgID string) (map[workflow.Status]int64, error) {
	out := map[workflow.Status]int64{}
	err := tx.queryEach("SELECT status, COUNT(*) FROM jobs WHERE org_id = $1 GROUP BY status", []any{orgID}, func(scan scanFunc) error {
		var status workflow.Status
		var n int64
		if err := scan(&status, &n); err != nil {
			return err
		}
		out[status] = n
		return nil
	})
	return out, err
}
