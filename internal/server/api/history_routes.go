package api

import (
	"encoding/json"
	"net/http"
	"strconv"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
)

// historyRoutes tell what happened to a stack.
type historyRoutes struct{ stacks *stacks.Service }

func (h *historyRoutes) register(rt *Router) {
	updates := stackPath + "/updates"
	rt.stack(http.MethodGet, updates, identity.StateRead, h.list)
	rt.stack(http.MethodGet, updates+"/latest", identity.StateRead, h.latest)
	rt.stack(http.MethodGet, updates+"/latest/previews", identity.StateRead, h.latestPreviews)
	rt.stack(http.MethodGet, updates+"/{version}", identity.StateRead, h.version)
	rt.stack(http.MethodGet, updates+"/{version}/summary", identity.StateRead, h.summary)
	rt.stack(http.MethodGet, stackPath+"/previews/{updateID}", identity.StateRead, h.preview)
}

// updateBody is one update as the CLI's history reads it.
type updateBody struct {
	Kind            string                        `json:"kind"`
	StartTime       int64                         `json:"startTime"`
	Message         string                        `json:"message"`
	Environment     map[string]string             `json:"environment"`
	Config          map[string]stacks.ConfigValue `json:"config"`
	Result          string                        `json:"result"`
	EndTime         int64                         `json:"endTime"`
	Version         int64                         `json:"version"`
	ResourceChanges map[string]int64              `json:"resourceChanges,omitempty"`
	ResourceCount   *int64                        `json:"resourceCount,omitempty"`
}

// updateInfoBody is one update with what surrounds it.
type updateInfoBody struct {
	Info          updateBody `json:"info"`
	UpdateID      string     `json:"updateID"`
	Version       int64      `json:"version"`
	LatestVersion int64      `json:"latestVersion"`
	RequestedBy   userInfo   `json:"requestedBy"`
}

// resultOf words a status as histories do.
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

// kindOf words a kind as histories do: previews of other kinds have a P.
func kindOf(u store.Update) string {
	if u.Preview && stacks.Kind(u.Kind) != stacks.KindPreview {
		return "P" + u.Kind
	}
	return u.Kind
}

func updateBodyOf(u store.Update) updateBody {
	prog := stacks.DecodeProgram(u)
	b := updateBody{
		Kind: kindOf(u), StartTime: unix(u.StartedAt), EndTime: unix(u.FinishedAt), Message: prog.Metadata.Message,
		Environment: prog.Metadata.Environment, Config: prog.Config, Result: resultOf(u.Status), Version: u.Version,
	}
	if b.Environment == nil {
		b.Environment = map[string]string{}
	}
	if b.Config == nil {
		b.Config = map[string]stacks.ConfigValue{}
	}
	if u.ResourceChanges != "" {
		// The text was encoded by the domain from the same type.
		json.Unmarshal([]byte(u.ResourceChanges), &b.ResourceChanges) //nolint:errcheck // see above
	}
	if !u.Preview && stacks.Status(u.Status).Finished() {
		b.ResourceCount = &u.ResourceCount
	}
	return b
}

// updateInfoOf describes an update of a stack.
func updateInfoOf(st store.Stack, e stacks.Entry) updateInfoBody {
	return updateInfoBody{
		Info: updateBodyOf(e.Update), UpdateID: e.ID, Version: e.Version,
		LatestVersion: st.Version, RequestedBy: userInfoOf(e.By),
	}
}

// page reads page and pageSize; page 0 or none means everything.
func page(r *http.Request) (limit, offset int, err error) {
	num := func(name string, def int) (int, error) {
		v := r.URL.Query().Get(name)
		if v == "" {
			return def, nil
		}
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 || n > 1_000_000 {
			return 0, fault.Invalid("Bad Request: query parameter %s must be a whole number from 0 on", name)
		}
		return n, nil
	}
	p, err := num("page", 0)
	if err != nil {
		return 0, 0, err
	}
	size, err := num("pageSize", 10)
	if err != nil {
		return 0, 0, err
	}
	if p == 0 || size == 0 {
		return 0, 0, nil
	}
	return size, (p - 1) * size, nil
}

// list answers in the flat form unless output-type is given.
func (h *historyRoutes) list(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	limit, offset, err := page(r)
	if err != nil {
		return err
	}
	entries, total, err := h.stacks.History(r.Context(), st, false, limit, offset)
	if err != nil {
		return err
	}
	if !r.URL.Query().Has("output-type") {
		out := []updateBody{}
		for _, e := range entries {
			out = append(out, updateBodyOf(e.Update))
		}
		return writeJSON(w, r, http.StatusOK, map[string]any{"updates": out})
	}
	return writeUpdates(w, r, st, entries, limit, total)
}

func writeUpdates(w http.ResponseWriter, r *http.Request, st store.Stack, entries []stacks.Entry, limit int, total int64) error {
	out := []updateInfoBody{}
	for _, e := range entries {
		out = append(out, updateInfoOf(st, e))
	}
	if limit == 0 {
		limit = len(out)
	}
	return writeJSON(w, r, http.StatusOK, map[string]any{"updates": out, "itemsPerPage": limit, "total": total})
}

// latest answers 404 when there was no update yet; clients rely on it.
func (h *historyRoutes) latest(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	entries, _, err := h.stacks.History(r.Context(), st, false, 1, 0)
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		return fault.NotFound("Not Found: stack '%s' has no updates", st.Ref())
	}
	return writeJSON(w, r, http.StatusOK, updateInfoOf(st, entries[0]))
}

func (h *historyRoutes) latestPreviews(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	limit, offset, err := page(r)
	if err != nil {
		return err
	}
	entries, total, err := h.stacks.History(r.Context(), st, true, limit, offset)
	if err != nil {
		return err
	}
	return writeUpdates(w, r, st, entries, limit, total)
}

func (h *historyRoutes) ofVersion(r *http.Request, st store.Stack) (stacks.Entry, error) {
	v, err := strconv.ParseInt(param(r, "version"), 10, 64)
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
	return writeJSON(w, r, http.StatusOK, updateInfoOf(st, e))
}

func (h *historyRoutes) summary(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	e, err := h.ofVersion(r, st)
	if err != nil {
		return err
	}
	return writeJSON(w, r, http.StatusOK, map[string]any{
		"startTime": unix(e.StartedAt), "endTime": unix(e.FinishedAt),
		"result": resultOf(e.Status), "resourceCount": e.ResourceCount,
	})
}

func (h *historyRoutes) preview(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	u, err := h.stacks.FindUpdate(r.Context(), st, param(r, "updateID"))
	if err != nil {
		return err
	}
	entries, err := h.stacks.Entries(r.Context(), []store.Update{u})
	if err != nil {
		return err
	}
	return writeJSON(w, r, http.StatusOK, updateInfoOf(st, entries[0]))
}
