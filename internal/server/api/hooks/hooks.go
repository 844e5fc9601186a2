// Package hooks serves the routes of webhooks.
package hooks

import (
	"net/http"

	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/webhooks"
)

type routes struct{ webhooks *webhooks.Service }

// handler serves a route of the webhooks of a stack, an environment or an organization.
type handler func(w http.ResponseWriter, r *http.Request, o webhooks.Owner) error

// Register adds the routes of webhooks. All require the administration of the stack, the environment or
// the organization: the URL of a receiver is often a secret, and a webhook acts for its creator.
func Register(rt *web.Router, s *webhooks.Service) {
	h := &routes{s}
	const one = "/hooks/{hook}"
	for _, route := range []struct {
		method, path string
		changes      bool
		handler      handler
	}{
		{http.MethodGet, "/hooks", false, h.list},
		{http.MethodPost, "/hooks", true, h.create},
		{http.MethodGet, one, false, h.get},
		{http.MethodPatch, one, true, h.update},
		{http.MethodDelete, one, true, h.delete},
		{http.MethodPost, one + "/ping", true, h.ping},
		{http.MethodGet, one + "/deliveries", false, h.deliveries},
		{http.MethodPost, one + "/deliveries/{event}/redeliver", true, h.redeliver},
	} {
		ofOrg, need := "/api/orgs/{org}"+route.path, web.NeedAdmin
		ofStack := func(w http.ResponseWriter, r *http.Request, st store.Stack) error {
			return route.handler(w, r, webhooks.Owner{Org: store.Organization{ID: st.OrgID, Name: st.OrgName}, Stack: st})
		}
		ofEnvironment := func(w http.ResponseWriter, r *http.Request, e store.Environment) error {
			return route.handler(w, r, webhooks.Owner{Org: store.Organization{ID: e.OrgID, Name: e.OrgName}, Environment: e})
		}
		if route.changes {
			need = web.NeedGrant
			rt.StackAccess(route.method, web.StackPath+route.path, ofStack)
			rt.EnvironmentLasting(route.method, web.EnvironmentPath+route.path, store.AdminEnvironment, ofEnvironment)
		} else {
			rt.Stack(route.method, web.StackPath+route.path, identity.Manage, ofStack)
			rt.Environment(route.method, web.EnvironmentPath+route.path, store.AdminEnvironment, ofEnvironment)
		}
		rt.Org(route.method, ofOrg, need, func(w http.ResponseWriter, r *http.Request, o store.Organization) error {
			return route.handler(w, r, webhooks.Owner{Org: o})
		})
	}
}

// body is the body of a request that creates or changes a webhook.
type body struct {
	Organization *string  `json:"organizationName"`
	Project      *string  `json:"projectName"`
	Stack        *string  `json:"stackName"`
	Environment  *string  `json:"envName"`
	Name         *string  `json:"name"`
	DisplayName  *string  `json:"displayName"`
	URL          *string  `json:"payloadUrl"`
	Format       *string  `json:"format"`
	Active       *bool    `json:"active"`
	Filters      []string `json:"filters"`
	Groups       []string `json:"groups"`
	Secret       *string  `json:"secret"`
}

// change reads the body of a request, and checks that it is about the webhooks of the path.
func change(w http.ResponseWriter, r *http.Request, o webhooks.Owner) (webhooks.Change, error) {
	var b body
	if err := request.Decode(w, r, &b); err != nil {
		return webhooks.Change{}, err
	}
	for _, name := range []struct {
		what      string
		got       *string
		wantInURL string
	}{
		{"Organization", b.Organization, o.Org.Name},
		{"Project", b.Project, o.Stack.Project + o.Environment.Project},
		{"Stack", b.Stack, o.Stack.Name},
		{"Environment", b.Environment, o.Environment.Name},
	} {
		if name.got != nil && *name.got != "" && *name.got != name.wantInURL {
			return webhooks.Change{}, fault.Invalid("%s name from request body doesn't match URL", name.what)
		}
	}
	return webhooks.Change{
		Name: b.Name, DisplayName: b.DisplayName, URL: b.URL, Format: b.Format, Active: b.Active,
		Filters: b.Filters, Groups: b.Groups, Secret: b.Secret,
	}, nil
}

type hookBody struct {
	Organization     string   `json:"organizationName"`
	Project          string   `json:"projectName,omitempty"`
	Stack            string   `json:"stackName,omitempty"`
	Environment      string   `json:"envName,omitempty"`
	Name             string   `json:"name"`
	DisplayName      string   `json:"displayName"`
	URL              string   `json:"payloadUrl"`
	Format           string   `json:"format"`
	Active           bool     `json:"active"`
	Filters          []string `json:"filters"`
	Groups           []string `json:"groups"`
	HasSecret        bool     `json:"hasSecret"`
	SecretCiphertext string   `json:"secretCiphertext"`
	// The public API does not have this member.
	SecretLost bool `json:"secretLost,omitempty"`
}

func hookOf(o webhooks.Owner, h webhooks.Webhook) hookBody {
	return hookBody{
		Organization: o.Org.Name, Project: o.Stack.Project + o.Environment.Project, Stack: o.Stack.Name, Environment: o.Environment.Name,
		Name: h.Name, DisplayName: h.DisplayName,
		URL: h.URL, Format: h.Format, Active: h.Active, Filters: append([]string{}, h.Filters...), Groups: append([]string{}, h.Groups...),
		HasSecret: h.HasSecret, SecretCiphertext: h.SecretDigest, SecretLost: h.SecretLost,
	}
}

type deliveryBody struct {
	ID              string `json:"id"`
	Kind            string `json:"kind"`
	Payload         string `json:"payload"`
	Timestamp       int64  `json:"timestamp"`
	Duration        int64  `json:"duration"`
	RequestURL      string `json:"requestUrl"`
	RequestHeaders  string `json:"requestHeaders"`
	ResponseCode    int64  `json:"responseCode"`
	ResponseHeaders string `json:"responseHeaders"`
	ResponseBody    string `json:"responseBody"`
	// The public API does not have these members.
	Status   store.DeliveryStatus `json:"status"`
	Attempts int64                `json:"attempts"`
}

func deliveryOf(d webhooks.Delivery) deliveryBody {
	at := d.SentAt
	if at.IsZero() {
		at = d.CreatedAt
	}
	return deliveryBody{
		ID: d.ID, Kind: d.Kind, Payload: d.Payload, Timestamp: web.Unix(at), Duration: d.Duration.Milliseconds(),
		RequestURL: d.RequestURL, RequestHeaders: d.RequestHeaders, ResponseCode: d.ResponseCode,
		ResponseHeaders: d.ResponseHeaders, ResponseBody: d.ResponseBody, Status: d.Status, Attempts: d.Attempts,
	}
}

func (h *routes) list(w http.ResponseWriter, r *http.Request, o webhooks.Owner) error {
	list, err := h.webhooks.List(r.Context(), o)
	return web.Answer(w, r, web.Each(list, func(hook webhooks.Webhook) hookBody { return hookOf(o, hook) }), err)
}

func (h *routes) create(w http.ResponseWriter, r *http.Request, o webhooks.Owner) error {
	c, err := change(w, r, o)
	if err != nil {
		return err
	}
	hook, err := h.webhooks.Create(r.Context(), web.Principal(r), o, c)
	if err != nil {
		return err
	}
	return web.WriteJSON(w, r, http.StatusCreated, hookOf(o, hook))
}

func (h *routes) get(w http.ResponseWriter, r *http.Request, o webhooks.Owner) error {
	hook, err := h.webhooks.Get(r.Context(), o, web.Param(r, "hook"))
	return web.Answer(w, r, hookOf(o, hook), err)
}

func (h *routes) update(w http.ResponseWriter, r *http.Request, o webhooks.Owner) error {
	c, err := change(w, r, o)
	if err != nil {
		return err
	}
	hook, err := h.webhooks.Update(r.Context(), web.Principal(r), o, web.Param(r, "hook"), c)
	return web.Answer(w, r, hookOf(o, hook), err)
}

func (h *routes) delete(w http.ResponseWriter, r *http.Request, o webhooks.Owner) error {
	return web.Done(w, h.webhooks.Delete(r.Context(), o, web.Param(r, "hook")))
}

func (h *routes) ping(w http.ResponseWriter, r *http.Request, o webhooks.Owner) error {
	d, err := h.webhooks.Ping(r.Context(), o, web.Param(r, "hook"))
	return web.Answer(w, r, deliveryOf(d), err)
}

func (h *routes) deliveries(w http.ResponseWriter, r *http.Request, o webhooks.Owner) error {
	list, err := h.webhooks.Deliveries(r.Context(), o, web.Param(r, "hook"))
	return web.Answer(w, r, web.Each(list, deliveryOf), err)
}

func (h *routes) redeliver(w http.ResponseWriter, r *http.Request, o webhooks.Owner) error {
	d, err := h.webhooks.Redeliver(r.Context(), o, web.Param(r, "hook"), web.Param(r, "event"))
	return web.Answer(w, r, deliveryOf(d), err)
}
