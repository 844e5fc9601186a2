package admin

import (
	"context"
	"strings"
	"time"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/policies/evaluations"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// The operations on policy evaluations.
var (
	ListEvaluations = Operation[EvaluationsOf, Evaluations]{"policy-evaluation-list", (*Service).listEvaluations}
	RunEvaluations  = Operation[EvaluationsOf, QueuedEvaluations]{"policy-evaluation-run", (*Service).runEvaluations}
)

// EvaluationsOf selects evaluations of an organization. An empty member selects all, and an empty organization the only one.
type EvaluationsOf struct {
	Organization string `json:"organization,omitempty"`
	Stack        string `json:"stack,omitempty"` // project/name
	Group        string `json:"policyGroup,omitempty"`
	State        string `json:"state,omitempty"`
}

// Evaluation is a policy evaluation, as in the API. Times are Unix seconds; absent ones have not come yet.
type Evaluation struct {
	ID         string                `json:"id"`
	Project    string                `json:"project"`
	Stack      string                `json:"stack"`
	Group      string                `json:"policyGroup"`
	Cause      store.EvaluationCause `json:"cause"`
	By         string                `json:"requestedBy,omitempty"`
	Status     workflow.Status       `json:"status"`
	Reason     workflow.Reason       `json:"reason,omitempty"`
	Message    string                `json:"message,omitempty"`
	Version    int64                 `json:"version,omitempty"`
	Violations *int64                `json:"violations,omitempty"`
	Agent      string                `json:"agent,omitempty"`
	Epoch      int64                 `json:"epoch"`
	Created    int64                 `json:"created"`
	Started    int64                 `json:"started,omitempty"`
	Finished   int64                 `json:"finished,omitempty"`
}

// Evaluations are the newest evaluations that a request selects, at most [evaluations.PageSize].
type Evaluations struct {
	Evaluations []Evaluation `json:"evaluations"`
}

// QueuedEvaluations says how many evaluations were added.
type QueuedEvaluations struct {
	Queued int64 `json:"queued"`
}

func (s *Service) listEvaluations(ctx context.Context, q EvaluationsOf) (Evaluations, error) {
	out := Evaluations{Evaluations: []Evaluation{}}
	org, err := s.organization(ctx, q.Organization)
	if err != nil {
		return out, err
	}
	if q.Stack != "" {
		project, name, _ := strings.Cut(q.Stack, "/")
		if _, _, err := s.Stacks.Find(ctx, operator, identity.StateRead, org.Name, project, name); err != nil {
			return out, err
		}
	}
	page, err := s.Evaluations.Page(ctx, operator, org.ID, evaluations.Query{Stack: q.Stack, Group: q.Group, State: evaluations.State(q.State)})
	for _, e := range page.Evaluations {
		each := Evaluation{
			ID: e.ID, Project: e.Project, Stack: e.Stack, Group: e.Group, Cause: e.Cause, By: e.RequestedBy, Status: e.Status, Reason: e.Reason, Message: e.Message, Version: e.Version,
			Agent: e.AgentHostname, Epoch: e.Epoch, Created: e.QueuedAt.Unix(), Started: unix(e.StartedAt), Finished: unix(e.EndedAt),
		}
		if !e.ReportedAt.IsZero() {
			each.Violations = &e.Violations
		}
		out.Evaluations = append(out.Evaluations, each)
	}
	return out, err
}

func unix(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

func (s *Service) runEvaluations(ctx context.Context, q EvaluationsOf) (QueuedEvaluations, error) {
	org, err := s.organization(ctx, q.Organization)
	if err != nil {
		return QueuedEvaluations{}, err
	}
	switch {
	case q.Stack != "" && q.Group == "":
		project, name, _ := strings.Cut(q.Stack, "/")
		who, st, err := s.Stacks.Find(ctx, operator, identity.Operate, org.Name, project, name)
		if err != nil {
			return QueuedEvaluations{}, err
		}
		n, err := s.Evaluations.EvaluateStack(ctx, who, st)
		return QueuedEvaluations{n}, err
	case q.Group != "" && q.Stack == "":
		n, err := s.Evaluations.EvaluateGroup(ctx, operator, org.ID, q.Group)
		return QueuedEvaluations{n}, err
	default:
		return QueuedEvaluations{}, fault.Invalid("name either a stack or a policy group to evaluate")
	}
}
