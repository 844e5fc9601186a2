package esc

import (
	"net/http"
	"strconv"
	"time"

	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
)

// maxCount is the largest number of elements on a page.
const maxCount = 500

// countOf returns the number of elements on a page, by the query parameter count.
func countOf(r *http.Request) (int, error) {
	n := 100
	if err := request.QueryInt(r, "count", &n); err != nil {
		return 0, err
	}
	if n < 1 || n > maxCount {
		return 0, fault.Invalid("Invalid query parameter: count must be between 1 and %d", maxCount)
	}
	return n, nil
}

func continuation(offset int) string { return request.Continuation(strconv.Itoa(offset)) }

// offsetOf returns the position of a page, by its continuation token.
func offsetOf(r *http.Request) (int, error) {
	position, err := request.After(r)
	if err != nil || position == "" {
		return 0, err
	}
	offset, err := strconv.ParseUint(position, 10, 31)
	if err != nil {
		return 0, request.ErrContinuation
	}
	return int(offset), nil
}

type retractedBody struct {
	Replacement int64     `json:"replacement"`
	At          time.Time `json:"at"`
	ByLogin     string    `json:"byLogin,omitempty"`
	ByName      string    `json:"byName,omitempty"`
	Reason      string    `json:"reason,omitempty"`
}

type revisionBody struct {
	Number       int64          `json:"number"`
	Created      time.Time      `json:"created"`
	CreatorLogin string         `json:"creatorLogin"`
	CreatorName  string         `json:"creatorName"`
	Tags         []string       `json:"tags,omitempty"`
	Retracted    *retractedBody `json:"retracted,omitempty"`
}

func revisionOf(r environments.RevisionInfo) revisionBody {
	b := revisionBody{Number: r.Number, Created: r.CreatedAt.UTC(), CreatorLogin: r.CreatedBy, CreatorName: r.CreatedBy, Tags: r.Tags}
	if r.Replacement != 0 {
		b.Retracted = &retractedBody{Replacement: r.Replacement, At: r.RetractedAt.UTC(), ByLogin: r.RetractedBy, ByName: r.RetractedBy, Reason: r.Reason}
	}
	return b
}

func (e *routes) history(w http.ResponseWriter, r *http.Request, env store.Environment) error {
	count, err := countOf(r)
	if err != nil {
		return err
	}
	var before int64
	if err := request.QueryInt64(r, "before", &before); err != nil {
		return err
	}
	list, err := e.environments.History(r.Context(), env, before, count)
	return web.Answer(w, r, web.Each(list, revisionOf), err)
}

func (e *routes) retract(w http.ResponseWriter, r *http.Request, env store.Environment) error {
	var body struct {
		Replacement *int64 `json:"replacement"`
		Reason      string `json:"reason"`
	}
	if err := request.DecodeOptional(w, r, &body); err != nil {
		return err
	}
	how := environments.Retraction{Reason: body.Reason}
	if body.Replacement != nil {
		if how.Replacement = *body.Replacement; how.Replacement < 1 {
			return fault.Invalid("member \"replacement\" must be the number of a revision")
		}
	}
	return web.Done(w, e.environments.Retract(r.Context(), web.Principal(r), env, web.Param(r, "version"), how))
}

type versionTagBody struct {
	Name        string    `json:"name"`
	Revision    int64     `json:"revision"`
	Created     time.Time `json:"created"`
	Modified    time.Time `json:"modified"`
	EditorLogin string    `json:"editorLogin"`
	EditorName  string    `json:"editorName"`
}

func versionTagOf(t store.RevisionTag) versionTagBody {
	return versionTagBody{t.Name, t.Number, t.CreatedAt.UTC(), t.ModifiedAt.UTC(), t.EditedBy, t.EditedBy}
}

func (e *routes) versionTags(w http.ResponseWriter, r *http.Request, env store.Environment) error {
	count, err := countOf(r)
	if err != nil {
		return err
	}
	list, err := e.environments.VersionTags(r.Context(), env, web.Param(r, "version"), r.URL.Query().Get("after"), count)
	next := ""
	if len(list) == count {
		next = list[count-1].Name
	}
	return web.Answer(w, r, map[string]any{"tags": web.Each(list, versionTagOf), "nextToken": next}, err)
}

func (e *routes) versionTag(w http.ResponseWriter, r *http.Request, env store.Environment) error {
	t, err := e.environments.VersionTag(r.Context(), env, web.Param(r, "tag"))
	return web.Answer(w, r, versionTagOf(t), err)
}

// versionTagChange names the revision of a tag; the newest one if Revision is nil.
type versionTagChange struct {
	Name     string `json:"name"`
	Revision *int64 `json:"revision"`
}

func (c versionTagChange) number() (int64, error) {
	switch {
	case c.Revision == nil:
		return 0, nil
	case *c.Revision < 1:
		return 0, fault.Invalid("member \"revision\" must be the number of a revision")
	default:
		return *c.Revision, nil
	}
}

func (e *routes) addVersionTag(w http.ResponseWriter, r *http.Request, env store.Environment) error {
	var body versionTagChange
	if err := request.Decode(w, r, &body); err != nil {
		return err
	}
	number, err := body.number()
	if err != nil {
		return err
	}
	return web.Done(w, e.environments.SetVersionTag(r.Context(), web.Principal(r), env, body.Name, number, true))
}

func (e *routes) changeVersionTag(w http.ResponseWriter, r *http.Request, env store.Environment) error {
	var body versionTagChange
	if err := request.DecodeOptional(w, r, &body); err != nil {
		return err
	}
	number, err := body.number()
	if err != nil {
		return err
	}
	return web.Done(w, e.environments.SetVersionTag(r.Context(), web.Principal(r), env, web.Param(r, "tag"), number, false))
}

func (e *routes) removeVersionTag(w http.ResponseWriter, r *http.Request, env store.Environment) error {
	return web.Done(w, e.environments.RemoveVersionTag(r.Context(), web.Principal(r), env, web.Param(r, "tag")))
}
