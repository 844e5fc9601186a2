package deploy

import (
	"net/http"

	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

type settingsRoutes struct{ deployments *deployments.Service }

func (s *settingsRoutes) register(rt *web.Router) {
	const base = web.StackPath + "/deployments/settings"
	rt.Stack(http.MethodGet, base, identity.StateRead, s.get)
	rt.StackLasting(http.MethodPut, base, identity.Operate, s.put)
	rt.StackLasting(http.MethodPost, base, identity.Operate, s.patch)
	rt.Stack(http.MethodDelete, base, identity.Operate, s.delete)
	rt.Stack(http.MethodPost, base+"/encrypt", identity.Operate, s.encrypt)
}

func (s *settingsRoutes) get(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	set, err := s.deployments.Settings(r.Context(), st)
	return web.Answer(w, r, set, err)
}

func (s *settingsRoutes) put(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	body, err := jsonBody(w, r)
	if err != nil {
		return err
	}
	set, err := s.deployments.ReplaceSettings(r.Context(), web.Principal(r), st, body, settingsSource(r))
	return web.Answer(w, r, set, err)
}

func (s *settingsRoutes) patch(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	body, err := jsonBody(w, r)
	if err != nil {
		return err
	}
	set, err := s.deployments.PatchSettings(r.Context(), web.Principal(r), st, body, settingsSource(r))
	return web.Answer(w, r, set, err)
}

func (s *settingsRoutes) delete(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	return web.Answer(w, r, true, s.deployments.DeleteSettings(r.Context(), st))
}

func (s *settingsRoutes) encrypt(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	var v workflow.Secret
	if err := request.DecodeDocument(w, r, &v); err != nil {
		return err
	}
	out, err := s.deployments.Encrypt(r.Context(), st, v)
	return web.Answer(w, r, out, err)
}

// settingsSource returns the kind of client that sent the settings.
func settingsSource(r *http.Request) string {
	if r.Header.Get("X-Pulumi-Source") == "provider" {
		return "provider"
	}
	return "api"
}

// Bounds of settings, which are merged as trees, and decoded whenever a deployment is shown.
const (
	maxSettings    = 1 << 20 // bytes
	settingsValues = 10_000
	settingsCopies = 8 // copies in memory during decoding
)

// jsonBody returns the body of a request undecoded, for the domain to decode.
func jsonBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	b := request.Ordinary(r)
	b.Sent, b.Inflated, b.Values = min(b.Sent, maxSettings), min(b.Inflated, maxSettings), settingsValues
	return request.ReadJSON(w, r, b, settingsCopies)
}
