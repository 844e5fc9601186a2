package sessions

import (
	"cmp"
	"net/http"

	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/environments/opening"
	"workflowagent/internal/server/fault"
)

// createDraft keeps a definition of an environment that a stack manages. Clients send the tag of what they have read as ETag.
func (s *routes) createDraft(w http.ResponseWriter, r *http.Request) error {
	definition, err := request.Read(w, r, request.Text(r, environments.MaxDefinition))
	if err != nil {
		return err
	}
	condition := cmp.Or(r.Header.Get("If-Match"), r.Header.Get("ETag"))
	d, err := s.environments.Draft(r.Context(), web.Principal(r), web.Param(r, "org"), web.Param(r, "project"), web.Param(r, "environment"), string(definition), condition)
	return web.Answer(w, r, map[string]any{"changeRequestId": d.ID, "latestRevisionNumber": 0}, err)
}

// found returns the draft that a path names. A draft has one revision, with the number 0.
func (s *routes) found(r *http.Request) (environments.Found, error) {
	revision := int64(0)
	if err := request.QueryInt64(r, "revision", &revision); err != nil {
		return environments.Found{}, err
	}
	if revision != 0 {
		return environments.Found{}, fault.NotFound("the draft has no revision %d", revision)
	}
	return s.environments.FindDraft(r.Context(), web.Principal(r), web.Param(r, "org"), web.Param(r, "project"), web.Param(r, "environment"), web.Param(r, "draft"))
}

func (s *routes) draft(w http.ResponseWriter, r *http.Request) error {
	f, err := s.found(r)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("ETag", environments.ETag(web.Param(r, "draft"), 0))
	h.Set("Content-Type", "application/x-yaml")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	w.Write([]byte(f.Revision.Definition)) //nolint:errcheck // the client might have disconnected
	return nil
}

func (s *routes) openDraft(w http.ResponseWriter, r *http.Request) error {
	f, err := s.found(r)
	if err != nil {
		return err
	}
	o, err := s.identity.Named(r.Context(), f.OrgName)
	if err == nil && o.ID != f.OrgID {
		err = fault.Conflict("the organization was renamed; try again")
	}
	if err != nil {
		return err
	}
	root := opening.RootOf(o, f)
	root.Draft = true
	return s.openRoot(w, r, root)
}
