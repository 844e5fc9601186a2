package deploy

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/triggers"
	"workflowagent/internal/termtext"
)

type scheduleRoutes struct{ triggers *triggers.Service }

func (s *scheduleRoutes) register(rt *web.Router) {
	const base = web.StackPath + "/deployments"
	for path, read := range map[string]func(http.ResponseWriter, *http.Request) (triggers.Spec, error){
		base + "/schedules": readCustom, base + "/drift/schedules": readDrift, base + "/ttl/schedules": readTTL,
	} {
		rt.StackLasting(http.MethodPost, path, identity.Operate, s.create(read))
		rt.StackLasting(http.MethodPost, path+"/{scheduleID}", identity.Operate, s.update(read))
	}
	const one = base + "/schedules/{scheduleID}"
	rt.Stack(http.MethodGet, base+"/schedules", identity.StateRead, s.list)
	rt.Stack(http.MethodGet, one, identity.StateRead, s.get)
	rt.Stack(http.MethodDelete, one, identity.Operate, s.delete)
	rt.Stack(http.MethodPost, one+"/pause", identity.Operate, s.pause(true))
	rt.StackLasting(http.MethodPost, one+"/resume", identity.Operate, s.pause(false))
	rt.Stack(http.MethodGet, one+"/history", identity.StateRead, s.history)
}

type definitionBody struct {
	ProgramID string          `json:"programID"`
	Request   json.RawMessage `json:"request"`
}

type scheduleBody struct {
	ID            string         `json:"id"`
	OrgID         string         `json:"orgID"`
	Kind          string         `json:"kind"`
	ScheduleCron  string         `json:"scheduleCron,omitempty"`
	ScheduleOnce  string         `json:"scheduleOnce,omitempty"`
	NextExecution string         `json:"nextExecution"`
	LastExecuted  string         `json:"lastExecuted"`
	Paused        bool           `json:"paused"`
	Created       string         `json:"created"`
	Modified      string         `json:"modified"`
	Definition    definitionBody `json:"definition"`
	// Warnings are sentences about what the request of this change contained without effect.
	Warnings []string `json:"warnings,omitempty"`
}

func scheduleBodyOf(c store.Schedule) scheduleBody {
	return scheduleBody{
		ID: c.ID, OrgID: c.OrgID, Kind: "deployment", ScheduleCron: c.Cron, ScheduleOnce: stampIf(c.OnceAt),
		NextExecution: stampIf(c.NextAt), LastExecuted: stampIf(c.LastAt), Paused: c.Paused,
		Created: web.Stamp(c.CreatedAt), Modified: web.Stamp(c.ModifiedAt),
		Definition: definitionBody{c.StackID, json.RawMessage(c.Request)},
	}
}

// stampIf is like [web.Stamp], but returns "" for the zero time.
func stampIf(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return web.Stamp(t)
}

// readCustom reads the definition of a schedule that runs any operation.
func readCustom(w http.ResponseWriter, r *http.Request) (triggers.Spec, error) {
	body, err := jsonBody(w, r)
	if err != nil {
		return triggers.Spec{}, err
	}
	var b struct {
		ScheduleCron string          `json:"scheduleCron"`
		ScheduleOnce string          `json:"scheduleOnce"`
		Request      json.RawMessage `json:"request"`
	}
	if err := json.Unmarshal(body, &b); err != nil {
		return triggers.Spec{}, fault.Invalid("the body must be a JSON object with the strings scheduleCron or scheduleOnce, and with a request")
	}
	spec := triggers.Spec{Kind: store.CustomSchedule, Cron: strings.TrimSpace(b.ScheduleCron)}
	if spec.Once, err = scheduleTime("scheduleOnce", b.ScheduleOnce); err != nil || b.Request == nil || string(b.Request) == "null" {
		return spec, err
	}
	sent, err := deployments.ParseRequest(b.Request)
	spec.Request = &sent
	return spec, err
}

// readDrift reads the definition of a schedule that detects drift.
func readDrift(w http.ResponseWriter, r *http.Request) (triggers.Spec, error) {
	var b struct {
		ScheduleCron  string `json:"scheduleCron"`
		AutoRemediate bool   `json:"autoRemediate"`
	}
	if err := request.Decode(w, r, &b); err != nil {
		return triggers.Spec{}, err
	}
	if strings.TrimSpace(b.ScheduleCron) == "" {
		return triggers.Spec{}, fault.Invalid("a schedule of drift detection needs scheduleCron")
	}
	return triggers.Spec{Kind: store.DriftSchedule, Cron: strings.TrimSpace(b.ScheduleCron), Request: triggers.DriftRequest(b.AutoRemediate)}, nil
}

// readTTL reads the definition of a schedule that destroys the stack's resources.
func readTTL(w http.ResponseWriter, r *http.Request) (triggers.Spec, error) {
	var b struct {
		Timestamp          string `json:"timestamp"`
		DeleteAfterDestroy bool   `json:"deleteAfterDestroy"`
	}
	if err := request.Decode(w, r, &b); err != nil {
		return triggers.Spec{}, err
	}
	once, err := scheduleTime("timestamp", b.Timestamp)
	if err != nil {
		return triggers.Spec{}, err
	}
	if once.IsZero() {
		return triggers.Spec{}, fault.Invalid("Timestamp needs to be set")
	}
	return triggers.Spec{Kind: store.TTLSchedule, Once: once, Request: triggers.TTLRequest(b.DeleteAfterDestroy)}, nil
}

// scheduleTime parses a time in RFC 3339, or in the form in which responses contain it. It returns
// the zero time for "".
func scheduleTime(name, text string) (time.Time, error) {
	if text = strings.TrimSpace(text); text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02 15:04:05"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC().Truncate(time.Millisecond), nil
		}
	}
	return time.Time{}, fault.Invalid("%s is %q, which is not a time in the form 2006-01-02T15:04:05Z", name, termtext.OneLine(text, 100))
}

func (s *scheduleRoutes) create(read func(http.ResponseWriter, *http.Request) (triggers.Spec, error)) func(http.ResponseWriter, *http.Request, store.Stack) error {
	return func(w http.ResponseWriter, r *http.Request, st store.Stack) error {
		spec, err := read(w, r)
		if err != nil {
			return err
		}
		if spec.Request == nil {
			return fault.Invalid("the schedule has no request; send the request of a deployment, as in {\"operation\": \"update\"}")
		}
		c, err := s.triggers.Create(r.Context(), web.Principal(r), st, spec)
		return web.Answer(w, r, changedSchedule(c, spec), err)
	}
}

func (s *scheduleRoutes) update(read func(http.ResponseWriter, *http.Request) (triggers.Spec, error)) func(http.ResponseWriter, *http.Request, store.Stack) error {
	return func(w http.ResponseWriter, r *http.Request, st store.Stack) error {
		spec, err := read(w, r)
		if err != nil {
			return err
		}
		c, err := s.triggers.Update(r.Context(), web.Principal(r), st, web.Param(r, "scheduleID"), spec)
		return web.Answer(w, r, changedSchedule(c, spec), err)
	}
}

func changedSchedule(c store.Schedule, spec triggers.Spec) scheduleBody {
	answer := scheduleBodyOf(c)
	if spec.Request != nil {
		answer.Warnings = spec.Request.Ignored
	}
	return answer
}

func (s *scheduleRoutes) list(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	list, err := s.triggers.List(r.Context(), st)
	return web.Answer(w, r, map[string]any{"schedules": web.Each(list, scheduleBodyOf)}, err)
}

func (s *scheduleRoutes) get(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	c, err := s.triggers.Get(r.Context(), st, web.Param(r, "scheduleID"))
	return web.Answer(w, r, scheduleBodyOf(c), err)
}

func (s *scheduleRoutes) delete(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	return web.Answer(w, r, struct{}{}, s.triggers.Delete(r.Context(), st, web.Param(r, "scheduleID")))
}

func (s *scheduleRoutes) pause(paused bool) func(http.ResponseWriter, *http.Request, store.Stack) error {
	return func(w http.ResponseWriter, r *http.Request, st store.Stack) error {
		return web.Answer(w, r, struct{}{}, s.triggers.Pause(r.Context(), st, web.Param(r, "scheduleID"), paused))
	}
}

// eventBody is an event of a schedule. Scheduled, message and deploymentID are not in the public
// API.
type eventBody struct {
	ID           string               `json:"id"`
	ScheduleID   string               `json:"scheduledActionID"`
	Executed     string               `json:"executed"`
	Version      int64                `json:"version"`
	Result       store.ScheduleResult `json:"result"`
	Scheduled    string               `json:"scheduled"`
	Message      string               `json:"message,omitempty"`
	DeploymentID string               `json:"deploymentID,omitempty"`
}

func (s *scheduleRoutes) history(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	list, err := s.triggers.History(r.Context(), st, web.Param(r, "scheduleID"))
	bodies := web.Each(list, func(e store.ScheduleEvent) eventBody {
		return eventBody{e.ID, e.ScheduleID, web.Stamp(e.HappenedAt), e.Version, e.Result, web.Stamp(e.DueAt), e.Message, e.DeploymentID}
	})
	return web.Answer(w, r, map[string]any{"scheduleHistoryEvents": bodies}, err)
}
