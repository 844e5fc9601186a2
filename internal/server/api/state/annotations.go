package state

import (
	"encoding/json"
	"net/http"
	"strconv"

	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
)

// annotationRoutes read and change annotations: JSON objects that clients attach to stacks. The
// header ETag of a response contains the annotation's version, which is not in the public API.
type annotationRoutes struct{ stacks *stacks.Service }

func (a *annotationRoutes) register(rt *web.Router) {
	rt.Stack(http.MethodGet, web.StackPath+"/annotations/{kind}", identity.StateRead, a.get)
	rt.Stack(http.MethodPatch, web.StackPath+"/annotations/{kind}", identity.Write, a.set)
}

// annotationVersion returns the version in the query, or [stacks.AnyVersion].
func annotationVersion(r *http.Request) (int64, error) {
	version := stacks.AnyVersion
	if err := request.QueryInt(r, "version", &version); err != nil {
		return 0, err
	}
	if version < 0 && r.URL.Query().Get("version") != "" {
		return 0, fault.Invalid("Invalid query parameter: version must not be negative")
	}
	return int64(version), nil
}

func (a *annotationRoutes) get(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	version, err := annotationVersion(r)
	if err != nil {
		return err
	}
	found, err := a.stacks.Annotation(r.Context(), st, web.Param(r, "kind"), r.URL.Query().Get("source"), version)
	if err != nil {
		return err
	}
	w.Header().Set("ETag", strconv.Quote(strconv.FormatInt(found.Version, 10)))
	return web.WriteRaw(w, r, http.StatusOK, []byte(found.Document))
}

func (a *annotationRoutes) set(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	version, err := annotationVersion(r)
	if err != nil {
		return err
	}
	var document map[string]json.RawMessage
	if err := request.Decode(w, r, &document); err != nil {
		return err
	}
	if document == nil {
		return fault.Invalid("an annotation must be a JSON object")
	}
	text, err := json.Marshal(document)
	if err != nil {
		return err
	}
	note := store.Annotation{Kind: web.Param(r, "kind"), Source: r.URL.Query().Get("source"), Document: string(text)}
	return web.Done(w, a.stacks.Annotate(r.Context(), web.Principal(r), st, note, version))
}
