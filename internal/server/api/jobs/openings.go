package jobs

import (
	"net/http"

	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/environments/opening"
	"workflowagent/internal/server/identity"
)

// RegisterOpenings adds the routes with which runners open the environments of deployment settings, and learn what their jobs
// have opened.
func RegisterOpenings(rt *web.Router, ids *identity.Service, s *deployments.Service, o *opening.Service) {
	rt.Authed(http.MethodPost, "/api/workflow/jobs/{jobID}/environments", web.Runners, func(w http.ResponseWriter, r *http.Request) error {
		job := web.Param(r, "jobID")
		names, err := s.Environments(r.Context(), web.Principal(r), job)
		if err != nil {
			return err
		}
		p, err := ids.OfJob(r.Context(), job) // whose rights decide, as if a command of the job opened them
		if err != nil {
			return err
		}
		w.Header().Set("Cache-Control", "no-store")
		out, err := o.Variables(r.Context(), *p, names)
		return web.Answer(w, r, out, err)
	})
	rt.Authed(http.MethodGet, "/api/workflow/jobs/{jobID}/opened-secrets", web.Runners, func(w http.ResponseWriter, r *http.Request) error {
		known := int64(-1)
		if err := request.QueryInt64(r, "known", &known); err != nil {
			return err
		}
		w.Header().Set("Cache-Control", "no-store")
		out, err := o.OpenedSecrets(r.Context(), web.Principal(r), web.Param(r, "jobID"), known)
		return web.Answer(w, r, out, err)
	})
}
