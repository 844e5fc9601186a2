package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
)

// contentVariable is the environment variable with a site's content. The pre-run command in the
// settings passes it to the program.
const contentVariable = "SITE_CONTENT"

const maxBody = 64 << 10

// idPattern matches the ids of sites, which are also names of stacks.
var idPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// site is a site in requests and responses.
type site struct {
	ID      string         `json:"id"`
	Content string         `json:"content,omitempty"`
	Outputs map[string]any `json:"outputs,omitempty"`
	// Deployment is the newest deployment of the site.
	Deployment *deployment `json:"deployment,omitempty"`
}

type handler struct {
	client   *client
	settings map[string]any // of every site
}

func newHandler(c *client, settings map[string]any) http.Handler {
	h := &handler{c, settings}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /sites", h.create)
	mux.HandleFunc("GET /sites/{id}", h.show)
	mux.HandleFunc("POST /sites/{id}", h.update)
	mux.HandleFunc("DELETE /sites/{id}", h.remove)
	return mux
}

func (h *handler) create(w http.ResponseWriter, r *http.Request) {
	var in site
	if err := read(w, r, &in); err != nil {
		fail(w, err)
		return
	}
	if !idPattern.MatchString(in.ID) {
		fail(w, &apiError{http.StatusBadRequest, "id must have 1 to 63 lower-case letters, digits and hyphens"})
		return
	}
	if err := h.client.createStack(r.Context(), in.ID); err != nil {
		fail(w, err)
		return
	}
	h.deploy(w, r, in)
}

func (h *handler) update(w http.ResponseWriter, r *http.Request) {
	var in site
	if err := read(w, r, &in); err != nil {
		fail(w, err)
		return
	}
	in.ID = r.PathValue("id")
	h.deploy(w, r, in)
}

// deploy stores a site's content in the settings of its stack and starts an update. It can be
// repeated after a failure.
func (h *handler) deploy(w http.ResponseWriter, r *http.Request, s site) {
	content := map[string]any{"operationContext": map[string]any{"environmentVariables": map[string]any{contentVariable: s.Content}}}
	for _, settings := range []map[string]any{h.settings, content} {
		if err := h.client.mergeSettings(r.Context(), s.ID, settings); err != nil {
			fail(w, err)
			return
		}
	}
	d, err := h.client.deploy(r.Context(), s.ID, "update", nil)
	reply(w, http.StatusAccepted, site{ID: s.ID, Content: s.Content, Deployment: &d}, err)
}

func (h *handler) show(w http.ResponseWriter, r *http.Request) {
	s := site{ID: r.PathValue("id")}
	d, err := h.client.latest(r.Context(), s.ID)
	if err == nil && d.ID != "" {
		s.Deployment = &d
	}
	if err == nil {
		s.Outputs, err = h.client.outputs(r.Context(), s.ID)
	}
	reply(w, http.StatusOK, s, err)
}

// remove destroys a site's resources. After that, the deployment deletes the stack.
func (h *handler) remove(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	d, err := h.client.deploy(r.Context(), id, "destroy", map[string]any{"deleteAfterDestroy": true})
	reply(w, http.StatusAccepted, site{ID: id, Deployment: &d}, err)
}

func read(w http.ResponseWriter, r *http.Request, into *site) error {
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(into); err != nil {
		return &apiError{http.StatusBadRequest, "the body must be a JSON object with a site: " + err.Error()}
	}
	return nil
}

func reply(w http.ResponseWriter, status int, s site, err error) {
	if err != nil {
		fail(w, err)
		return
	}
	write(w, status, s)
}

// fail answers with an error of the request, or of the Deployments API.
func fail(w http.ResponseWriter, err error) {
	failed, ok := errors.AsType[*apiError](err)
	if !ok || failed.Code >= http.StatusInternalServerError || failed.Code == http.StatusUnauthorized {
		fmt.Fprintln(os.Stderr, "calling the Deployments API:", err)
		failed = &apiError{http.StatusBadGateway, "the Deployments API is not available"}
	}
	write(w, failed.Code, failed)
}

func write(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		fmt.Fprintln(os.Stderr, "answering:", err)
	}
}
