package deployments

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/store"
	"workflowagent/internal/termtext"
	"workflowagent/internal/workflow"
)

// Create queues a deployment. body is the public request, initiator the client's name for its
// trigger.
func (s *Service) Create(ctx context.Context, p identity.Principal, st store.Stack, body []byte, initiator string) (store.Deployment, error) {
	op, inherit, err := readRequest(body)
	if err != nil {
		return store.Deployment{}, err
	}
	userID, name := requester(p)
	d := store.Deployment{
		ID: identity.NewID(), OrgID: st.OrgID, StackID: st.ID, Project: st.Project, Stack: st.Name, Operation: op,
		Initiator: termtext.OneLine(initiator, maxMessage), RequestedBy: userID, Requester: name,
	}
	jobID := identity.NewID()
	err = s.db.Write(ctx, func(tx *store.Tx) error {
		set, err := s.configure(ctx, tx, st, body, inherit)
		if err != nil {
			return err
		}
		d.CreatedAt = tx.Now()
		return enqueue(tx, &d, jobID, set)
	})
	if err != nil {
		return store.Deployment{}, err
	}
	return d, nil
}

func readRequest(body []byte) (workflow.Operation, bool, error) {
	var r struct {
		Operation        *string `json:"operation"`
		InheritSettings  *bool   `json:"inheritSettings"`
		OperationContext *struct {
			Operation *string `json:"operation"`
		} `json:"operationContext"`
	}
	if err := json.Unmarshal(body, &r); err != nil {
		var te *json.UnmarshalTypeError
		if errors.As(err, &te) && te.Field != "" {
			return "", false, fault.Invalid("Bad Request: the member %q cannot be a JSON %s", te.Field, te.Value)
		}
		return "", false, fault.Invalid("Bad Request: the body is not a valid JSON object")
	}
	if c := r.OperationContext; c != nil && c.Operation != nil && *c.Operation != "" {
		return "", false, fault.Invalid("Bad Request: 'operation' must only be set at the top level of the request")
	}
	if r.Operation == nil || *r.Operation == "" {
		return "", false, fault.Invalid("Bad Request: Missing top level required field 'operation'")
	}
	op, err := workflow.ParseOperation(*r.Operation)
	if err != nil {
		return "", false, fault.Invalid("Bad Request: %s", termtext.OneLine(err.Error(), maxMessage))
	}
	return op, r.InheritSettings == nil || *r.InheritSettings, nil
}

func (s *Service) configure(ctx context.Context, tx *store.Tx, st store.Stack, body []byte, inherit bool) (*workflow.Settings, error) {
	var base *workflow.Settings
	if inherit {
		row, err := tx.DeploymentSettings(st.ID)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, err
		}
		if err == nil {
			if base, err = workflow.ParseSettings([]byte(row.Document)); err != nil {
				return nil, err
			}
		}
	}
	set, err := workflow.InheritSettings(base, body)
	if err == nil {
		err = set.Validate()
	}
	if err == nil {
		err = set.CompleteSource()
	}
	if err == nil {
		err = set.Deployable()
	}
	if err != nil {
		return nil, fault.Invalid("Bad Request: %s", err)
	}
	return set, s.seal(ctx, st.ID, set)
}

func enqueue(tx *store.Tx, d *store.Deployment, jobID string, set *workflow.Settings) error {
	pinned, err := poolOf(tx, d.OrgID, set.AgentPoolID)
	if err != nil {
		return err
	}
	org, err := tx.OrgQueue(d.OrgID)
	if err != nil {
		return err
	}
	queue, err := tx.StackQueue(d.StackID)
	if err != nil {
		return err
	}
	queue.LastVersion++
	if err := tx.SaveStackQueue(queue); err != nil {
		return err
	}
	d.Version = queue.LastVersion
	doc, err := json.Marshal(set)
	if err != nil {
		return fmt.Errorf("encoding the configuration of a deployment: %w", err)
	}
	d.Configuration = string(doc)
	job := store.Job{
		ID: jobID, DeploymentID: d.ID, OrgID: d.OrgID, StackID: d.StackID,
		PoolID: set.AgentPoolID, PoolPinned: pinned, Operation: d.Operation, Version: d.Version,
		SkipIntermediate: set.Option().SkipIntermediateDeployments,
		Status:           workflow.StatusNotStarted, Epoch: 1, QueuedAt: d.CreatedAt, ModifiedAt: d.CreatedAt,
	}
	if !pinned {
		job.PoolID = org.DefaultPool
	}
	for _, step := range set.Plan(d.Operation) {
		job.Steps = append(job.Steps, store.StepState{Name: step.Name, Status: workflow.StepNotStarted})
	}
	if err := tx.InsertDeployment(*d); err != nil {
		return err
	}
	if err := tx.InsertJob(job); err != nil {
		return err
	}
	if job.PoolID != "" {
		tx.Notify(pools.QueueTopic, job.PoolID)
	}
	return nil
}
