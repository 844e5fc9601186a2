package state

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"

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
	rt.Stack(http.MethodGet, updates+"/latest/previews", identity.StateRead, h.latestPreviews)
	rt.Stack(http.MethodGet, updates+"/{version}", identity.StateRead, h.version)
	rt.Stack(http.MethodGet, updates+"/{version}/summary", identity.StateRead, h.summary)
	rt.Stack(http.MethodGet, web.StackPath+"/previews/{updateID}", identity.StateRead, h.preview)
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

func page(r *http.Request) (limit, offset int, err error) {
	page, size := 0, 10
	for name, v := range map[string]*int{"page": &page, "pageSize": &size} {
		if err := request.QueryInt(r, name, v); err != nil {
			return 0, 0, err
		}
		if *v < 0 || *v > 1_000_000 {
			return 0, 0, fault.Invalid("Bad Request: Invalid query parameter: %s must be between 0 and 1000000", name)
		}
	}
	if page == 0 || size == 0 {
		return 0, 0, nil
	}
	return size, (page - 1) * size, nil
}

// list responds with the flat form of the history, unless output-type is given.
func (h *historyRoutes) list(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	if r.URL.Query().Has("output-type") {
		return h.history(w, r, st, false)
	}
	limit, offset, err := page(r)
	if err != nil {
		return err
	}
	return web.StreamList(w, r, stacks.ProgramMemory, `{"updates":[`, func(add func(any) error) error {
		return h.stacks.History(r.Context(), st, false, limit, offset, func(e stacks.Entry) error {
			b, err := UpdateBodyOf(r.Context(), h.stacks, e.Update)
			if err != nil {
				return err
			}
			return add(b)
		})
	}, func(int) string { return "]}" })
}

// history responds with a page of a stack's updates, or with all of them. It streams the updates,
// because their number is unbounded.
func (h *historyRoutes) history(w http.ResponseWriter, r *http.Request, st store.Stack, previews bool) error {
	limit, offset, err := page(r)
	if err != nil {
		return err
	}
	total, err := h.stacks.CountHistory(r.Context(), st, previews)
	if err != nil {
		return err
	}
	return web.StreamList(w, r, stacks.ProgramMemory, `{"updates":[`, func(add func(any) error) error {
		return h.stacks.History(r.Context(), st, previews, limit, offset, func(e stacks.Entry) error {
			b, err := UpdateInfoOf(r.Context(), h.stacks, st, e)
			if err != nil {
				return err
			}
			return add(b)
		})
	}, func(n int) string {
		if limit > 0 {
			n = limit
		}
		return fmt.Sprintf(`],"itemsPerPage":%d,"total":%d}`, n, total)
	})
}

// latest responds with 404 if the stack has no update. Clients rely on this status.
func (h *historyRoutes) latest(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	var found []stacks.Entry
	err := h.stacks.History(r.Context(), st, false, 1, 0, func(e stacks.Entry) error {
		found = append(found, e)
		return nil
	})
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return fault.NotFound("Not Found: stack '%s' has no updates", st.Ref())
	}
	return h.answer(w, r, st, found[0])
}

func (h *historyRoutes) latestPreviews(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	return h.history(w, r, st, true)
}

func (h *historyRoutes) ofVersion(r *http.Request, st store.Stack) (stacks.Entry, error) {
	v, err := strconv.ParseInt(web.Param(r, "version"), 10, 64)
	if err != nil || v < 1 {
		return stacks.Entry{}, fault.Invalid("Bad Request: invalid 'version' parameter")
	}
	return h.stacks.Version(r.Context(), st, v)
}

func (h *historyRoutes) version(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	e, err := h.ofVersion(r, st)
	if err != nil {
		return err
	}
	return h.answer(w, r, st, e)
}

func (h *historyRoutes) summary(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	e, err := h.ofVersion(r, st)
	return web.Answer(w, r, map[string]any{
		"startTime": web.Unix(e.StartedAt), "endTime": web.Unix(e.FinishedAt),
		"result": resultOf(e.Status), "resourceCount": e.ResourceCount,
	}, err)
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
