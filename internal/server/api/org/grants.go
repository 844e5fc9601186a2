package org

import (
	"net/http"

	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/grants"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// grantRoutes let the jobs of other stacks read a stack's outputs, and jobs of stacks open environments. The public API has no
// such calls.
type grantRoutes struct{ grants *grants.Service }

// RegisterGrants adds the routes for grants.
func RegisterGrants(rt *web.Router, s *grants.Service) {
	g := &grantRoutes{s}
	rt.Stack(http.MethodGet, web.StackPath+"/grants", identity.StateRead, g.list)
	rt.StackAccess(http.MethodPost, web.StackPath+"/grants", g.add)
	rt.StackAccess(http.MethodDelete, web.StackPath+"/grants/{grantID}", g.remove)
	rt.Environment(http.MethodGet, web.EnvironmentPath+"/grants", store.ReadEnvironment, g.listOfEnvironment)
	rt.EnvironmentAccess(http.MethodPost, web.EnvironmentPath+"/grants", g.addToEnvironment)
	rt.EnvironmentAccess(http.MethodDelete, web.EnvironmentPath+"/grants/{grantID}", g.removeFromEnvironment)
}

type grantTag struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// grantTarget has one member.
type grantTarget struct {
	Stack   string    `json:"stack,omitempty"`
	Project string    `json:"project,omitempty"`
	Tag     *grantTag `json:"tag,omitempty"`
}

type grantBody struct {
	ID string `json:"id"`
	// From is the stack whose outputs may be read, or the environment that may be opened.
	From      string      `json:"from"`
	To        grantTarget `json:"to"`
	Previews  bool        `json:"previews"`
	CreatedBy string      `json:"createdBy"`
	Created   string      `json:"created"`
	// Excluded is set in the grants that a stack reads through, if they do not cover it.
	Excluded bool `json:"excluded,omitempty"`
}

func bodyOf(g store.Grant) grantBody {
	t := grants.TargetOf(g)
	to := grantTarget{Stack: t.Stack, Project: t.Project}
	if t.TagName != "" {
		to.Tag = &grantTag{t.TagName, t.TagValue}
	}
	return grantBody{ID: g.ID, From: g.From(), To: to, Previews: g.Previews, CreatedBy: g.CreatedBy, Created: web.RFC3339(g.CreatedAt), Excluded: g.Excluded}
}

func (g *grantRoutes) list(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	of, err := g.grants.Of(r.Context(), web.Principal(r), st)
	return web.Answer(w, r, map[string]any{
		"readBy": web.Each(of.ReadBy, bodyOf), "reads": web.Each(of.Reads, bodyOf), "opens": web.Each(of.Opens, bodyOf), "projectReads": of.ProjectReads,
	}, err)
}

// maxReaders bounds the stacks in the response to a new grant.
const maxReaders = 100

// targetIn returns the target in the body of a request.
func targetIn(w http.ResponseWriter, r *http.Request) (to grants.Target, previews bool, err error) {
	var body struct {
		grantTarget
		Previews bool `json:"previews"`
	}
	if err := request.Decode(w, r, &body); err != nil {
		return to, false, err
	}
	to = grants.Target{Stack: body.Stack, Project: body.Project}
	if t := body.Tag; t != nil {
		if t.Name == "" {
			return to, false, fault.Invalid("member \"tag\" must have a name")
		}
		to.TagName, to.TagValue = t.Name, t.Value
	}
	return to, body.Previews, nil
}

// madeBody is a new grant, with the stacks that it covers now.
type madeBody struct {
	grantBody
	Readers []string `json:"readers"`
	// Ungranted are imports of an environment, of which no grant has the same target.
	Ungranted []string `json:"ungranted,omitempty"`
}

func (g *grantRoutes) make(w http.ResponseWriter, r *http.Request, from grants.Giver) (store.Grant, madeBody, error) {
	to, previews, err := targetIn(w, r)
	if err != nil {
		return store.Grant{}, madeBody{}, err
	}
	made, err := g.grants.Add(r.Context(), web.Principal(r), from, to, previews)
	if err != nil {
		return made, madeBody{}, err
	}
	readers, err := g.grants.Readers(r.Context(), web.Principal(r), from, made.ID, maxReaders)
	return made, madeBody{grantBody: bodyOf(made), Readers: web.Each(readers, store.Stack.Ref)}, err
}

func (g *grantRoutes) add(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	_, body, err := g.make(w, r, grants.OfStack(st))
	if err != nil {
		return err
	}
	return web.WriteJSON(w, r, http.StatusCreated, body)
}

func (g *grantRoutes) remove(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	return web.Done(w, g.grants.Remove(r.Context(), grants.OfStack(st), web.Param(r, "grantID")))
}

func (g *grantRoutes) listOfEnvironment(w http.ResponseWriter, r *http.Request, e store.Environment) error {
	list, err := g.grants.Given(r.Context(), grants.OfEnvironment(e))
	if err != nil {
		return err
	}
	packs, err := g.grants.Packs(r.Context(), e)
	return web.Answer(w, r, map[string]any{"openedBy": web.Each(list, bodyOf), "policyPacks": packs}, err)
}

func (g *grantRoutes) addToEnvironment(w http.ResponseWriter, r *http.Request, e store.Environment) error {
	made, body, err := g.make(w, r, grants.OfEnvironment(e))
	if err != nil {
		return err
	}
	if body.Ungranted, err = g.grants.Ungranted(r.Context(), web.Principal(r), e, made); err != nil {
		return err
	}
	return web.WriteJSON(w, r, http.StatusCreated, body)
}

func (g *grantRoutes) removeFromEnvironment(w http.ResponseWriter, r *http.Request, e store.Environment) error {
	return web.Done(w, g.grants.Remove(r.Context(), grants.OfEnvironment(e), web.Param(r, "grantID")))
}
