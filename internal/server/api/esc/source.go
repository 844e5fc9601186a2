package esc

import (
	"net/http"
	"time"

	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/environments/source"
	"workflowagent/internal/server/gitops/sources"
	"workflowagent/internal/server/store"
)

type sourceRoutes struct{ sources *sources.Service }

// RegisterSource adds the routes of the repository from which an organization's environments come. Only administrators of the
// organization manage it.
func RegisterSource(rt *web.Router, s *sources.Service) {
	h := &sourceRoutes{s}
	const one = "/api/orgs/{org}/environment-source"
	rt.Org(http.MethodGet, one, web.NeedAdmin, h.get)
	rt.Org(http.MethodPut, one, web.NeedGrant, h.set)
	rt.Org(http.MethodDelete, one, web.NeedGrant, h.remove)
	rt.Org(http.MethodPost, one+"/sync", web.NeedGrant, h.sync)
}

// sourceBody is what callers set of a source.
type sourceBody struct {
	Integration string `json:"integration"` // id
	Repository  string `json:"repository"`
	Branch      string `json:"branch"`
	Folder      string `json:"folder"`
	Delete      bool   `json:"delete"`
	Checks      *bool  `json:"checkPullRequests"` // nil means true
}

// shownSource is a source with its state.
type shownSource struct {
	sourceBody
	SetBy    string     `json:"setBy"`
	Modified time.Time  `json:"modified"`
	Read     string     `json:"readCommit"` // the newest one, "" before the first poll
	Commit   string     `json:"appliedCommit"`
	Applied  *time.Time `json:"applied,omitempty"`
	Problem  string     `json:"problem"`
	NextPoll time.Time  `json:"nextPoll"`
}

func shown(src store.EnvironmentSource) shownSource {
	out := shownSource{
		sourceBody: sourceBody{src.IntegrationID, src.Repository, src.Branch, src.Folder, src.Deletes, &src.Checks},
		SetBy:      src.CreatedBy, Modified: src.ModifiedAt.UTC(), Read: src.Tried, Commit: src.Applied, Problem: src.Problem, NextPoll: src.DueAt.UTC(),
	}
	if !src.AppliedAt.IsZero() {
		at := src.AppliedAt.UTC()
		out.Applied = &at
	}
	return out
}

func (h *sourceRoutes) get(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	src, err := h.sources.Get(r.Context(), o)
	return web.Answer(w, r, shown(src), err)
}

// previewBody is what a synchronization would change.
type previewBody struct {
	Commit string `json:"commit"`
	source.Plan
}

// isDry reports whether a request changes nothing.
func isDry(r *http.Request) bool { return r.URL.Query().Get("dryRun") == "true" }

func (h *sourceRoutes) set(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	var b sourceBody
	if err := request.Decode(w, r, &b); err != nil {
		return err
	}
	set := sources.Settings{IntegrationID: b.Integration, Repository: b.Repository, Branch: b.Branch, Folder: b.Folder, Deletes: b.Delete, Checks: b.Checks == nil || *b.Checks}
	if isDry(r) {
		return h.preview(w, r, o, set)
	}
	src, err := h.sources.Set(r.Context(), web.Principal(r), o, set)
	return web.Answer(w, r, shown(src), err)
}

func (h *sourceRoutes) preview(w http.ResponseWriter, r *http.Request, o store.Organization, set sources.Settings) error {
	plan, commit, err := h.sources.Preview(r.Context(), o, set)
	return web.Answer(w, r, previewBody{commit, plan}, err)
}

func (h *sourceRoutes) remove(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	return web.Done(w, h.sources.Remove(r.Context(), o))
}

func (h *sourceRoutes) sync(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	if isDry(r) {
		src, err := h.sources.Get(r.Context(), o)
		if err != nil {
			return err
		}
		return h.preview(w, r, o, sources.SettingsOf(src))
	}
	return web.Done(w, h.sources.SyncNow(r.Context(), o))
}
