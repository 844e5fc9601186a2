package esc

import (
	"cmp"
	"net/http"
	"strings"

	"workflowagent/internal/esc/wire"
	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
)

type settingsBody struct {
	DeletionProtected bool `json:"deletionProtected"`
}

type referrerCountsBody struct {
	Environments int64 `json:"environmentReferrerCount"`
	Stacks       int64 `json:"stackReferrerCount"`
	Accounts     int64 `json:"insightsAccountReferrerCount"` // which the server does not offer
}

type environmentBody struct {
	ID           string             `json:"id"`
	Organization string             `json:"organization"`
	Project      string             `json:"project"`
	Name         string             `json:"name"`
	Created      string             `json:"created"`
	Modified     string             `json:"modified"`
	OwnedBy      web.UserInfo       `json:"ownedBy"`
	Referrers    referrerCountsBody `json:"referrerMetadata"`
	Settings     settingsBody       `json:"settings"`
	Tags         map[string]string  `json:"tags"`
}

func ownerOf(e store.Environment) web.UserInfo {
	return web.UserInfoOf(store.User{Login: e.Creator, Name: e.Creator})
}

// bodyOf describes an environment. A caller without a permission sees only its names.
func bodyOf(i environments.Item) environmentBody {
	b := environmentBody{
		ID: i.ID, Organization: i.OrgName, Project: i.Project, Name: i.Name, Created: web.RFC3339(i.CreatedAt), Modified: web.RFC3339(i.CreatedAt),
		OwnedBy: web.UserInfoOf(store.User{}), Tags: map[string]string{},
	}
	if i.Permission == store.NoEnvironment {
		return b
	}
	b.Modified, b.OwnedBy, b.Tags = web.RFC3339(i.ModifiedAt), ownerOf(i.Environment), i.Tags
	b.Settings.DeletionProtected = i.Protected
	b.Referrers = referrerCountsBody{Environments: i.Referrers.Environments, Stacks: i.Referrers.Stacks}
	return b
}

func (e *routes) listAll(w http.ResponseWriter, r *http.Request) error {
	name := r.URL.Query().Get("organization")
	if name == "" {
		return e.page(w, r, "")
	}
	o, err := e.identity.Organization(r.Context(), web.Principal(r), name)
	if err != nil {
		return err
	}
	return e.page(w, r, o.ID)
}

func (e *routes) list(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	return e.page(w, r, o.ID)
}

func (e *routes) page(w http.ResponseWriter, r *http.Request, orgID string) error {
	limit, err := request.MaxResults(r)
	if err != nil {
		return err
	}
	referrers, err := request.QueryFlag(r, "includeReferrerMetadata")
	if err != nil {
		return err
	}
	position, err := request.After(r)
	if err != nil {
		return err
	}
	var after store.EnvironmentName
	if position != "" {
		parts := strings.Split(position, "/")
		if len(parts) != 3 {
			return request.ErrContinuation
		}
		after = store.EnvironmentName{Org: parts[0], Project: parts[1], Name: parts[2]}
	}
	list, more, err := e.environments.List(r.Context(), web.Principal(r), orgID, after, limit, referrers)
	body := map[string]any{"environments": web.Each(list, bodyOf)}
	if more {
		body["nextToken"] = request.Continuation(list[len(list)-1].Ref())
	}
	return web.Answer(w, r, body, err)
}

func (e *routes) allTags(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	tags, err := e.environments.AllTags(r.Context(), web.Principal(r), o.ID)
	return web.Answer(w, r, tags, err)
}

func (e *routes) create(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	var body struct {
		Project string `json:"project"`
		Name    string `json:"name"`
	}
	if err := request.Decode(w, r, &body); err != nil {
		return err
	}
	_, err := e.environments.Create(r.Context(), web.Principal(r), o, cmp.Or(body.Project, environments.DefaultProject), body.Name)
	return web.Answer(w, r, struct{}{}, err)
}

// found returns the revision that a path names.
func (e *routes) found(r *http.Request, env store.Environment, need store.EnvironmentPermission) (environments.Found, error) {
	return e.environments.Revision(r.Context(), web.Principal(r), need, env.OrgName, environments.Reference{
		Project: env.Project, Name: env.Name, Version: web.Param(r, "version"),
	})
}

func (e *routes) get(w http.ResponseWriter, r *http.Request, env store.Environment) error {
	f, err := e.found(r, env, store.ReadEnvironment)
	if err != nil {
		return err
	}
	identify(w, f.Environment, f.Revision.Number)
	return writeYAML(w, r, f.Revision.Definition)
}

func (e *routes) head(w http.ResponseWriter, _ *http.Request, env store.Environment) error {
	identify(w, env, env.LastNumber)
	w.WriteHeader(http.StatusOK)
	return nil
}

func (e *routes) decrypt(w http.ResponseWriter, r *http.Request, env store.Environment) error {
	f, err := e.found(r, env, store.OpenEnvironment)
	if err != nil {
		return err
	}
	definition, err := e.environments.Decrypt(r.Context(), web.Principal(r), f)
	if err != nil {
		return err
	}
	identify(w, f.Environment, f.Revision.Number)
	return writeYAML(w, r, definition)
}

// update replaces the definition. Older clients send the tag of what they have read as ETag, newer ones as If-Match.
func (e *routes) update(w http.ResponseWriter, r *http.Request, env store.Environment) error {
	definition, err := request.Read(w, r, request.Text(r, environments.MaxDefinition))
	if err != nil {
		return err
	}
	condition := cmp.Or(r.Header.Get("If-Match"), r.Header.Get("ETag"))
	made, err := e.environments.Update(r.Context(), web.Principal(r), env, string(definition), condition)
	if err != nil {
		return web.WriteDiagnostics(w, r, err)
	}
	identify(w, made.Environment, made.Environment.LastNumber)
	return web.WriteJSON(w, r, http.StatusOK, struct {
		Diagnostics wire.Diagnostics `json:"diagnostics,omitempty"`
	}{made.Diagnostics})
}

func (e *routes) remove(w http.ResponseWriter, r *http.Request, env store.Environment) error {
	return web.Answer(w, r, struct{}{}, e.environments.Delete(r.Context(), web.Principal(r), env))
}

func (e *routes) metadata(w http.ResponseWriter, r *http.Request, env store.Environment) error {
	return web.WriteJSON(w, r, http.StatusOK, map[string]any{"id": env.ID, "ownedBy": ownerOf(env), "gatedActions": []string{}, "openRequestNeeded": false})
}

func (e *routes) settings(w http.ResponseWriter, r *http.Request, env store.Environment) error {
	return web.WriteJSON(w, r, http.StatusOK, settingsBody{env.Protected})
}

func (e *routes) setSettings(w http.ResponseWriter, r *http.Request, env store.Environment) error {
	var body struct {
		DeletionProtected *bool `json:"deletionProtected"`
	}
	if err := request.Decode(w, r, &body); err != nil {
		return err
	}
	err := e.environments.SetSettings(r.Context(), web.Principal(r), env, environments.Settings{Protected: body.DeletionProtected})
	return web.Answer(w, r, struct{}{}, err)
}

func (e *routes) clone(w http.ResponseWriter, r *http.Request, env store.Environment) error {
	var body struct {
		Project     string `json:"project"`
		Name        string `json:"name"`
		Version     int64  `json:"version"`
		History     bool   `json:"preserveHistory"`
		Access      bool   `json:"preserveAccess"`
		Tags        bool   `json:"preserveEnvironmentTags"`
		VersionTags bool   `json:"preserveRevisionTags"`
	}
	if err := request.Decode(w, r, &body); err != nil {
		return err
	}
	if body.Version < 0 {
		return fault.Invalid("member \"version\" must be the number of a revision")
	}
	_, err := e.environments.Clone(r.Context(), web.Principal(r), env, environments.Clone{
		Project: body.Project, Name: body.Name, Version: body.Version,
		History: body.History, Access: body.Access, Tags: body.Tags, VersionTags: body.VersionTags,
	})
	return web.Done(w, err)
}

type referrerBody struct {
	Environment *environmentReferrer `json:"environment,omitempty"`
	Stack       *stackReferrer       `json:"stack,omitempty"`
}

type environmentReferrer struct {
	Project  string `json:"project"`
	Name     string `json:"name"`
	Revision int64  `json:"revision"`
}

type stackReferrer struct {
	Project string `json:"project"`
	Stack   string `json:"stack"`
	Version int64  `json:"version"`
}

// referrers responds with what refers to an environment, by the version that the referrers name.
func (e *routes) referrers(w http.ResponseWriter, r *http.Request, env store.Environment) error {
	count, err := countOf(r)
	if err != nil {
		return err
	}
	f := environments.ReferrerFilter{Version: web.Param(r, "version"), Limit: count}
	if f.AllRevisions, err = request.QueryFlag(r, "allRevisions"); err != nil {
		return err
	}
	if f.Newest, err = request.QueryFlag(r, "latestStackVersionOnly"); err != nil {
		return err
	}
	if f.Offset, err = offsetOf(r); err != nil {
		return err
	}
	list, next, err := e.environments.Referrers(r.Context(), web.Principal(r), env, f)
	if err != nil {
		return err
	}
	by := map[string][]referrerBody{}
	for _, ref := range list {
		b := referrerBody{Environment: &environmentReferrer{ref.Project, ref.Name, ref.Number}}
		if ref.Stack {
			b = referrerBody{Stack: &stackReferrer{ref.Project, ref.Name, ref.Number}}
		}
		by[ref.Version] = append(by[ref.Version], b)
	}
	body := map[string]any{"referrers": by}
	if next > 0 {
		body["continuationToken"] = continuation(next)
	}
	return web.WriteJSON(w, r, http.StatusOK, body)
}
