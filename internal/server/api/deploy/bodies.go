package deploy

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/state"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/deployments/waiting"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

type stepBody struct {
	Name        string              `json:"name"`
	Status      workflow.StepStatus `json:"status"`
	Started     time.Time           `json:"started,omitzero"`
	LastUpdated time.Time           `json:"lastUpdated,omitzero"`
	ExitCode    *int                `json:"exitCode,omitempty"` // not in the public API
}

type jobBody struct {
	Status      workflow.Status `json:"status"`
	Started     time.Time       `json:"started,omitzero"`
	LastUpdated time.Time       `json:"lastUpdated,omitzero"`
	Steps       []stepBody      `json:"steps"`
}

func jobsOf(d deployments.Details) []jobBody {
	if d.Job.Status == workflow.StatusNotStarted || d.Job.ClaimedAt.IsZero() {
		return nil
	}
	j := jobBody{Status: d.Job.Status, Started: d.Job.StartedAt, LastUpdated: d.Job.ModifiedAt, Steps: []stepBody{}}
	for _, st := range d.Job.Steps {
		j.Steps = append(j.Steps, stepBody{st.Name, st.Status, st.StartedAt, st.UpdatedAt, st.ExitCode})
	}
	return []jobBody{j}
}

type poolRef struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// agentRef is the agent that ran a deployment. It is not in the public API.
type agentRef struct {
	ID       string `json:"id"`
	Hostname string `json:"hostname"`
	Version  string `json:"version"`
}

// deploymentBody contains the members that are common to lists and details. Reason, message,
// agent and queue are not in the public API.
type deploymentBody struct {
	ID              string             `json:"id"`
	Created         string             `json:"created"`
	Modified        string             `json:"modified"`
	Status          workflow.Status    `json:"status"`
	Version         int64              `json:"version"`
	RequestedBy     web.UserInfo       `json:"requestedBy"`
	PulumiOperation workflow.Operation `json:"pulumiOperation"`
	Initiator       string             `json:"initiator,omitempty"`
	ProjectName     string             `json:"projectName"`
	StackName       string             `json:"stackName"`
	AgentPool       *poolRef           `json:"agentPool,omitempty"`
	Agent           *agentRef          `json:"agent,omitempty"`
	Reason          workflow.Reason    `json:"reason,omitempty"`
	Message         string             `json:"message,omitempty"`
	Queue           waiting.Why        `json:"queue,omitzero"`
	PulumiVersion   string             `json:"pulumiVersion,omitempty"` // if the settings select versions
}

func deploymentBodyOf(d deployments.Details) deploymentBody {
	by := web.UserInfoOf(d.User)
	if d.User.Login == "" && d.Requester != "" {
		by.Name, by.GithubLogin = d.Requester, d.Requester
	}
	b := deploymentBody{
		ID: d.ID, Created: web.Stamp(d.CreatedAt), Modified: web.Stamp(d.Job.ModifiedAt), Status: d.Job.Status, Version: d.Version,
		RequestedBy: by, PulumiOperation: d.Operation, Initiator: d.Initiator, ProjectName: d.Project, StackName: d.Stack,
		Reason: d.Job.Reason, Message: d.Message, Queue: d.Why,
	}
	if d.Job.PoolID != "" {
		b.AgentPool = &poolRef{d.Job.PoolID, d.PoolName}
	}
	if d.Job.AgentID != "" {
		b.Agent = &agentRef{d.Job.AgentID, d.Job.AgentHostname, d.Job.AgentVersion}
	}
	for _, step := range d.Job.Steps {
		b.PulumiVersion = cmp.Or(step.PulumiVersion, b.PulumiVersion)
	}
	return b
}

type nestedUpdate struct {
	ID          string          `json:"id"`
	UpdateID    string          `json:"updateID"`
	Version     int64           `json:"version"`
	StartTime   int64           `json:"startTime"`
	EndTime     int64           `json:"endTime"`
	Result      string          `json:"result"`
	Kind        string          `json:"kind"`
	Message     json.RawMessage `json:"message"`
	Environment json.RawMessage `json:"environment"`
}

type snapshotBody struct {
	deploymentBody
	Paused  bool           `json:"paused"`
	Jobs    []jobBody      `json:"jobs"`
	Updates []nestedUpdate `json:"updates"`
}

func (d *deploymentRoutes) snapshot(ctx context.Context, det deployments.Details) (snapshotBody, error) {
	b := snapshotBody{deploymentBody: deploymentBodyOf(det), Paused: det.Paused, Jobs: jobsOf(det)}
	if b.Jobs == nil {
		b.Jobs = []jobBody{}
	}
	var err error
	b.Updates, err = d.nestedUpdates(ctx, det.Updates)
	return b, err
}

func (d *deploymentRoutes) nestedUpdates(ctx context.Context, updates []store.Update) ([]nestedUpdate, error) {
	out := []nestedUpdate{}
	for _, u := range updates {
		info, err := state.UpdateBodyOf(ctx, d.stacks, u)
		if err != nil {
			return nil, err
		}
		out = append(out, nestedUpdate{
			u.ID, u.ID, u.Version, info.StartTime, info.EndTime, info.Result, info.Kind, info.Message, info.Environment,
		})
	}
	return out, nil
}

type variableBody struct {
	Name   string `json:"name"`
	Value  string `json:"value,omitempty"`
	Secret bool   `json:"secret"`
}

type gitBody struct {
	RepoURL string `json:"repoURL"`
	Branch  string `json:"branch,omitempty"`
	Commit  string `json:"commit,omitempty"`
	RepoDir string `json:"repoDir,omitempty"`
}

type sourceBody struct {
	Git gitBody `json:"git"`
}

type configurationBody struct {
	EnvironmentVariables []variableBody `json:"environmentVariables"`
	Source               *sourceBody    `json:"source,omitempty"`
}

// resultBody is a recorded result of a job. It is not in the public API.
type resultBody struct {
	At       time.Time       `json:"at"`
	Status   workflow.Status `json:"status"`
	Reason   workflow.Reason `json:"reason,omitempty"`
	Message  string          `json:"message,omitempty"`
	ExitCode *int            `json:"exitCode,omitempty"`
	Signal   string          `json:"signal,omitempty"`
}

// detailsBody contains the details of a deployment. CancelRequested and the members after it are
// not in the public API.
type detailsBody struct {
	deploymentBody
	LatestVersion   int64                `json:"latestVersion"`
	Paused          bool                 `json:"paused"`
	InheritSettings bool                 `json:"inheritSettings"`
	Updates         []nestedUpdate       `json:"updates"`
	Jobs            []jobBody            `json:"jobs,omitempty"`
	Configuration   configurationBody    `json:"configuration"`
	CancelRequested bool                 `json:"cancelRequested,omitempty"`
	Results         []resultBody         `json:"results,omitempty"`
	Notes           []string             `json:"notes,omitempty"`
	Queued          *deployments.Waiting `json:"queued,omitempty"`
}

func detailsBodyOf(d deployments.Details, updates []nestedUpdate) detailsBody {
	b := detailsBody{
		deploymentBody: deploymentBodyOf(d), LatestVersion: d.LatestVersion, Paused: d.Paused,
		InheritSettings: d.InheritSettings, Updates: updates, Jobs: jobsOf(d),
		Configuration: configurationOf(d.Settings), CancelRequested: d.Job.CancelRequested,
	}
	for _, rec := range d.Job.Results {
		b.Results = append(b.Results, resultBody{rec.At, rec.Result.Status, rec.Result.Reason, rec.Result.Message, rec.Result.ExitCode, rec.Result.Signal})
	}
	for _, n := range d.Job.Notes {
		b.Notes = append(b.Notes, n.Text)
	}
	return b
}

func configurationOf(s *workflow.Settings) configurationBody {
	b := configurationBody{EnvironmentVariables: []variableBody{}}
	for _, v := range s.Variables() {
		b.EnvironmentVariables = append(b.EnvironmentVariables, variableBody(v))
	}
	if g := s.Git(); g != nil {
		b.Source = &sourceBody{gitBody{g.RepoURL, g.Branch, g.Commit, g.RepoDir}}
	}
	return b
}

func (d *deploymentRoutes) stackMetadata(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	stack, org, err := d.deployments.Paused(r.Context(), st)
	if err != nil {
		return err
	}
	schedules, err := d.triggers.List(r.Context(), st)
	if err != nil {
		return err
	}
	body := map[string]any{
		"paused": stack || org, "stackPaused": stack, "organizationPaused": org, "hasSchedules": len(schedules) > 0,
	}
	runs, err := d.drift.Status(r.Context(), st)
	if runs.Latest != "" {
		body["drift"] = driftStatus{runs.Detected, runs.Latest, runs.Running}
	}
	return web.Answer(w, r, body, err)
}

func (d *deploymentRoutes) orgMetadata(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	m, err := d.deployments.OrgMetadata(r.Context(), o.ID, web.Principal(r).Reach(o.ID))
	if err != nil {
		return err
	}
	var total int64
	for _, n := range m.Counts {
		total += n
	}
	body := map[string]any{
		"paused": m.Paused, "concurrency": m.Concurrency,
		"deploymentCounts": map[string]int64{
			"total": total, "notStarted": m.Counts[workflow.StatusNotStarted], "accepted": m.Counts[workflow.StatusAccepted],
			"running": m.Counts[workflow.StatusRunning], "failed": m.Counts[workflow.StatusFailed],
			"succeeded": m.Counts[workflow.StatusSucceeded], "skipped": m.Counts[workflow.StatusSkipped],
		},
	}
	if len(m.PausedStacks) > 0 {
		body["pausedStacks"] = m.PausedStacks
	}
	return web.WriteJSON(w, r, http.StatusOK, body)
}

// maxLogWait is the maximum time, in seconds, that a request with a token waits for new lines. The
// server waits because the stock CLI requests the next page without a pause.
const maxLogWait = 20

// logs responds with the whole log, page by page, or with lines of one step.
func (d *deploymentRoutes) logs(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	q := r.URL.Query()
	if q.Has("step") || q.Has("job") {
		return d.stepLogs(w, r, st)
	}
	token, seconds := q.Get("continuationToken"), maxLogWait
	if err := request.QueryInt(r, "wait", &seconds); err != nil {
		return err
	}
	if token == "" {
		seconds = 0
	}
	wait := time.Duration(min(seconds, maxLogWait)) * time.Second
	page, err := d.deployments.Log(r.Context(), st, web.Param(r, "deploymentID"), token, wait)
	return web.Answer(w, r, struct {
		Type  string    `json:"__type"`
		Lines []logLine `json:"lines"`
		Next  string    `json:"nextToken,omitempty"`
	}{"DeploymentLogs", logLines(page.Lines), page.Next}, err)
}

func (d *deploymentRoutes) stepLogs(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	job, step, offset, count := 0, 0, 0, 100
	for name, v := range map[string]*int{"job": &job, "step": &step, "offset": &offset, "count": &count} {
		if err := request.QueryInt(r, name, v); err != nil {
			return err
		}
	}
	page, err := d.deployments.StepLog(r.Context(), st, web.Param(r, "deploymentID"), job, step, int64(offset), count)
	return web.Answer(w, r, struct {
		Type       string    `json:"__type"`
		Name       string    `json:"name"`
		Lines      []logLine `json:"lines"`
		NextOffset *int64    `json:"nextOffset,omitempty"`
	}{"DeploymentLogsStep", page.Name, logLines(page.Lines), page.Next}, err)
}
