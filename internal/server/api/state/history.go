package state

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
)

type historyRoutes struct{ stacks *stacks.Service }

func (h *historyRoutes) register(rt *web.Router) {
	updates := web.StackPath + "/updates"
	rt.Stack(http.MethodGet, updates, identity.StateRead, h.list)
	rt.Stack(http.MethodGet, updates+"/latest", identity.StateRead, h.latest)
	rt.Stack(http.MethodGet, updates+"/latest/previews", identity.StateRead, h.previews)
	rt.Stack(http.MethodGet, updates+"/latest/timeline", identity.StateRead, h.timeline)
	rt.Stack(http.MethodGet, updates+"/{version}", identity.StateRead, h.version)
	rt.Stack(http.MethodGet, updates+"/{version}/previews", identity.StateRead, h.previews)
	rt.Stack(http.MethodGet, updates+"/{version}/summary", identity.StateRead, h.summary)
	rt.Stack(http.MethodGet, updates+"/{version}/timeline", identity.StateRead, h.timeline)
	rt.Stack(http.MethodGet, web.StackPath+"/previews/{updateID}", identity.StateRead, h.preview)
	rt.Stack(http.MethodGet, web.StackPath+"/previews/{updateID}/summary", identity.StateRead, h.previewSummary)
}

// updateBody is an update in the form that the CLI's history command reads.
type updateBody struct {
	Kind            string          `json:"kind"`
	StartTime       int64           `json:"startTime"`
	Message         json.RawMessage `json:"message"`
	Environment     json.RawMessage `json:"environment"`
	Config          json.RawMessage `json:"config"`
	Result          string          `json:"result"`
	EndTime         int64           `json:"endTime"`
	Version         int64           `json:"version"`
	ResourceChanges json.RawMessage `json:"resourceChanges,omitempty"`
	ResourceCount   *int64          `json:"resourceCount,omitempty"`
}

// UpdateInfoBody is an update with its id, version and requester.
type UpdateInfoBody struct {
	Info          updateBody   `json:"info"`
	UpdateID      string       `json:"updateID"`
	Version       int64        `json:"version"`
	LatestVersion int64        `json:"latestVersion"`
	RequestedBy   web.UserInfo `json:"requestedBy"`
}

func resultOf(status string) string {
	switch stacks.Status(status) {
	case stacks.NotStarted:
		return "not-started"
	case stacks.Running:
		return "in-progress"
	case stacks.Succeeded:
		return "succeeded"
	default:
		return "failed"
	}
}

// kindOf returns an update's kind as histories name it. Previews of other kinds have the prefix P.
func kindOf(u store.Update) string {
	if u.Preview && stacks.Kind(u.Kind) != stacks.KindPreview {
		return "P" + u.Kind
	}
	return u.Kind
}

// LongestProgram is the maximum of ProgramMemory.
const LongestProgram = stacks.ProgramMemory

// ProgramMemory returns the memory needed to respond with updates one by one, in addition to the
// memory of their list.
func ProgramMemory(updates ...store.Update) int64 {
	if slices.ContainsFunc(updates, stacks.LongProgram) {
		return stacks.ProgramMemory
	}
	return 0
}

// UpdateBodyOf returns an update in the form of histories. The caller must charge the memory of the
// update's program first.
func UpdateBodyOf(ctx context.Context, s *stacks.Service, u store.Update) (updateBody, error) {
	d, err := s.Describe(ctx, u)
	if err != nil {
		return updateBody{}, err
	}
	b := updateBody{
		Kind: kindOf(u), StartTime: web.Unix(u.StartedAt), EndTime: web.Unix(u.FinishedAt), Message: d.Message,
		Environment: d.Environment, Config: d.Config, Result: resultOf(u.Status), Version: u.Version,
	}
	if u.ResourceChanges != "{}" { // the domain encoded this text
		b.ResourceChanges = json.RawMessage(u.ResourceChanges)
	}
	if !u.Preview && stacks.Status(u.Status).Finished() {
		b.ResourceCount = &u.ResourceCount
	}
	return b, nil
}

// UpdateInfoOf returns the description of a stack's update. The caller must charge the memory of
// the update's program first.
func UpdateInfoOf(ctx context.Context, s *stacks.Service, st store.Stack, e stacks.Entry) (UpdateInfoBody, error) {
	b, err := UpdateBodyOf(ctx, s, e.Update)
	return UpdateInfoBody{
		Info: b, UpdateID: e.ID, Version: e.Version,
		LatestVersion: st.Version, RequestedBy: web.UserInfoOf(e.By),
	}, err
}

func (h *historyRoutes) answer(w http.ResponseWriter, r *http.Request, st store.Stack, e stacks.Entry) error {
	if err := budget.Of(r.Context()).Take(r.Context(), ProgramMemory(e.Update)); err != nil {
		return err
	}
	b, err := UpdateInfoOf(r.Context(), h.stacks, st, e)
	return web.Answer(w, r, b, err)
}

// list responds with the flat form of the history, unless output-type is given.
func (h *historyRoutes) list(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	if r.URL.Query().Has("output-type") {
		return h.history(w, r, st, store.UpdateFilter{})
	}
	limit, offset, err := request.Page(r)
	if err != nil {
		return err
	}
	return web.StreamList(w, r, stacks.ProgramMemory, `{"updates":[`, func(add web.Add) error {
		return h.stacks.History(r.Context(), st, store.UpdateFilter{Limit: limit, Offset: offset}, func(e stacks.Entry) error {
			return add(UpdateBodyOf(r.Context(), h.stacks, e.Update))
		})
	}, func(int) string { return "]}" })
}

// history responds with a page of the selected updates of a stack, or with all of them. It streams
// the updates, because their number is unbounded.
func (h *historyRoutes) history(w http.ResponseWriter, r *http.Request, st store.Stack, f store.UpdateFilter) error {
	var err error
	if f.Limit, f.Offset, err = request.Page(r); err != nil {
		return err
	}
	total, err := h.stacks.CountHistory(r.Context(), st, f)
	if err != nil {
		return err
	}
	return web.StreamList(w, r, stacks.ProgramMemory, `{"updates":[`, func(add web.Add) error {
		return h.stacks.History(r.Context(), st, f, func(e stacks.Entry) error {
			return add(UpdateInfoOf(r.Context(), h.stacks, st, e))
		})
	}, func(n int) string {
		if f.Limit > 0 {
			n = f.Limit
		}
		return fmt.Sprintf(`],"itemsPerPage":%d,"total":%d}`, n, total)
	})
}

// latest responds with 404 if the stack has no update. Clients rely on this status.
func (h *historyRoutes) latest(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	e, err := h.newest(r, st)
	if err != nil {
		return err
	}
	return h.answer(w, r, st, e)
}

// newest returns the newest update that is not a preview.
func (h *historyRoutes) newest(r *http.Request, st store.Stack) (e stacks.Entry, err error) {
	found := false
	err = h.stacks.History(r.Context(), st, store.UpdateFilter{Limit: 1}, func(next stacks.Entry) error {
		e, found = next, true
		return nil
	})
	if err == nil && !found {
		err = fault.NotFound("stack '%s' has no updates", st.Ref())
	}
	return e, err
}

// ofVersion returns the update that created the version in the path, or the newest update if the
// path names no version.
func (h *historyRoutes) ofVersion(r *http.Request, st store.Stack) (stacks.Entry, error) {
	v, err := versionOf(r)
	switch {
	case err != nil:
		return stacks.Entry{}, err
	case v == 0:
		return h.newest(r, st)
	default:
		return h.stacks.Version(r.Context(), st, v)
	}
}

func (h *historyRoutes) version(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	e, err := h.ofVersion(r, st)
	if err != nil {
		return err
	}
	return h.answer(w, r, st, e)
}

// previews lists the previews that were started from the version in the path, or from the current
// version.
func (h *historyRoutes) previews(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	v, err := versionOf(r)
	if err != nil {
		return err
	}
	if v == 0 {
		v = st.Version
	} else if _, err := h.stacks.Version(r.Context(), st, v); err != nil {
		return err
	}
	f := store.UpdateFilter{Previews: true, Version: &v}
	if f.Asc, err = request.QueryFlag(r, "asc"); err != nil {
		return err
	}
	return h.history(w, r, st, f)
}

func (h *historyRoutes) summary(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	e, err := h.ofVersion(r, st)
	return web.Answer(w, r, summaryOf(e.Update), err)
}

type updateSummary struct {
	StartTime     int64  `json:"startTime"`
	EndTime       int64  `json:"endTime"`
	Result        string `json:"result"`
	ResourceCount int64  `json:"resourceCount"`
}

func summaryOf(u store.Update) updateSummary {
	return updateSummary{web.Unix(u.StartedAt), web.Unix(u.FinishedAt), resultOf(u.Status), u.ResourceCount}
}

func (h *historyRoutes) preview(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	u, err := h.stacks.FindUpdate(r.Context(), st, web.Param(r, "updateID"))
	if err != nil {
		return err
	}
	entries, err := h.stacks.Entries(r.Context(), []store.Update{u})
	if err != nil {
		return err
	}
	return h.answer(w, r, st, entries[0])
}

// previewSummary responds with 404 for an update that is not a preview.
func (h *historyRoutes) previewSummary(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	u, err := h.stacks.FindUpdate(r.Context(), st, web.Param(r, "updateID"))
	if err == nil && !u.Preview {
		err = fault.NotFound("update %q of stack '%s' is not a preview", u.ID, st.Ref())
	}
	return web.Answer(w, r, summaryOf(u), err)
}
