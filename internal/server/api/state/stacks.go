// Package state serves the routes of the state backend: stacks, their tags and configuration,
// states, secrets, updates and histories.
package state

import (
	"encoding/json"
	"net/http"

	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/policies"
	"workflowagent/internal/server/policies/results"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/stacks/rawjson"
	"workflowagent/internal/server/stacks/states"
	"workflowagent/internal/server/store"
)

type stackRoutes struct {
	stacks       *stacks.Service
	identity     *identity.Service
	environments *environments.Service
	urlNotice    string
}

// Register adds the routes of the state backend. urlNotice warns those who create stacks, or is "".
func Register(rt *web.Router, s *stacks.Service, ids *identity.Service, envs *environments.Service, required *policies.Service, found *results.Service, urlNotice string) {
	(&stackRoutes{s, ids, envs, urlNotice}).register(rt)
	(&stateRoutes{s}).register(rt)
	(&secretRoutes{s}).register(rt)
	(&updateRoutes{s, required, found, rt.Issued}).register(rt)
	(&historyRoutes{s}).register(rt)
	(&resourceRoutes{s}).register(rt)
	(&referenceRoutes{s}).register(rt)
	(&annotationRoutes{s}).register(rt)
	(&deletedRoutes{s}).register(rt)
}

func (s *stackRoutes) register(rt *web.Router) {
	rt.Authed(http.MethodGet, "/api/user/stacks", web.People, s.list)
	rt.Org(http.MethodHead, "/api/stacks/{org}/{project}", web.NeedMember, s.projectExists)
	rt.Org(http.MethodPost, "/api/stacks/{org}/{project}", web.NeedMember, s.create)
	rt.Stack(http.MethodGet, web.StackPath, identity.StateRead|identity.Outputs|identity.DecryptConfig, s.get)
	rt.Stack(http.MethodDelete, web.StackPath, identity.DeleteStack|identity.StateRead, s.remove) // remove checks which ability is needed
	rt.Stack(http.MethodPost, web.StackPath+"/rename", identity.Manage, s.rename)
	rt.StackAccess(http.MethodPost, web.StackPath+"/transfer", s.transfer)
	rt.Stack(http.MethodGet, web.StackPath+"/metadata", identity.StateRead, s.metadata)

	rt.Stack(http.MethodPatch, web.StackPath+"/tags", identity.Write, s.replaceTags)
	rt.Stack(http.MethodPost, web.StackPath+"/tags", identity.Write, s.addTag)
	rt.Stack(http.MethodPatch, web.StackPath+"/tags/{tag}", identity.Write, s.changeTag)
	rt.Stack(http.MethodDelete, web.StackPath+"/tags/{tag}", identity.Write, s.removeTag)

	rt.Stack(http.MethodGet, web.StackPath+"/config", identity.DecryptConfig, s.config)
	rt.Stack(http.MethodPut, web.StackPath+"/config", identity.Operate, s.setConfig)
	rt.Stack(http.MethodDelete, web.StackPath+"/config", identity.Operate, s.removeConfig)
}

type stackSummary struct {
	ID          string `json:"id"`
	OrgName     string `json:"orgName"`
	ProjectName string `json:"projectName"`
	StackName   string `json:"stackName"`
	// LastUpdate is missing before the first update. During an update it is 0, by which the CLI
	// recognizes an update in progress.
	LastUpdate    *int64 `json:"lastUpdate,omitempty"`
	ResourceCount int64  `json:"resourceCount"`
}

func newStackSummary(st store.Stack) stackSummary {
	s := stackSummary{ID: st.ID, OrgName: st.OrgName, ProjectName: st.Project, StackName: st.Name, ResourceCount: st.ResourceCount}
	if at := web.Unix(st.LastUpdateAt); st.ActiveUpdate != "" {
		s.LastUpdate = new(int64)
	} else if at != 0 {
		s.LastUpdate = &at
	}
	return s
}

func (s *stackRoutes) list(w http.ResponseWriter, r *http.Request) error {
	p := web.Principal(r)
	q := r.URL.Query()
	limit, err := request.MaxResults(r)
	if err != nil {
		return err
	}
	filter := store.StackFilter{
		Reach: p.Reach(), Project: q.Get("project"), TagName: q.Get("tagName"), TagValue: q.Get("tagValue"),
		Limit: limit + 1,
	}
	if filter.After, err = request.After(r); err != nil {
		return err
	}
	if name := q.Get("organization"); name != "" {
		o, err := s.identity.Organization(r.Context(), p, name)
		switch {
		case fault.KindOf(err) == fault.KindNotFound:
			filter.Reach = store.Reach{}
		case err != nil:
			return err
		default:
			filter.Reach = p.Reach(o.ID)
		}
	}
	found, err := s.stacks.List(r.Context(), filter)
	if err != nil {
		return err
	}
	body := map[string]any{}
	if len(found) > limit {
		found = found[:limit]
		body["continuationToken"] = request.Continuation(found[limit-1].SortKey())
	}
	body["stacks"] = web.Each(found, newStackSummary)
	return web.WriteJSON(w, r, http.StatusOK, body)
}

func (s *stackRoutes) projectExists(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	found, err := s.stacks.List(r.Context(), store.StackFilter{Reach: web.Principal(r).Reach(o.ID), Project: web.Param(r, "project"), Limit: 1})
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return fault.NotFound("the project %q does not exist", web.Param(r, "project"))
	}
	w.WriteHeader(http.StatusOK)
	return nil
}

func (s *stackRoutes) create(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	var body struct {
		StackName string            `json:"stackName"`
		Tags      map[string]string `json:"tags"`
		Config    json.RawMessage   `json:"config"`
		Teams     []string          `json:"teams"`
		// CreateManagedEnvironment is set by pulumi stack init --esc-config.
		CreateManagedEnvironment bool `json:"createManagedEnvironment"`
	}
	data, err := request.Read(w, r, request.State(r))
	if err != nil {
		return err
	}
	// A state can be large and is not decoded. The rest of the body is small.
	state, rest, err := rawjson.Cut(data, "state")
	if err != nil {
		return err
	}
	if err := request.DecodePart(r, rest, &body); err != nil {
		return err
	}
	var remote string // environment that has the stack's configuration
	n := stacks.NewStack{Org: o, Project: web.Param(r, "project"), Name: body.StackName, Tags: body.Tags, Teams: body.Teams}
	if len(body.Config) > 0 && string(body.Config) != "null" {
		c, err := parseConfig(body.Config)
		if err != nil {
			return err
		}
		n.Config, remote = c.text, c.environment
	}
	p := web.Principal(r)
	created, err := s.withEnvironment(r.Context(), p, &n, remote, body.CreateManagedEnvironment)
	if err != nil {
		return err
	}
	if len(state) > 0 && string(state) != "null" {
		st, err := states.Parse(state, nil)
		if err != nil {
			return err
		}
		n.State = st
	}
	if _, err := s.stacks.Create(r.Context(), p, n); err != nil {
		return err
	}
	messages := []message{}
	if s.urlNotice != "" {
		messages = append(messages, message{"warning", s.urlNotice})
	}
	answer := map[string]any{"messages": messages}
	if body.CreateManagedEnvironment {
		answer["managedEnvironment"] = created.Project + "/" + created.Name
	}
	return web.WriteJSON(w, r, http.StatusOK, answer)
}

// message is a text that the pulumi CLI prints.
type message struct {
	Severity string `json:"severity"`
	Message  string `json:"message"`
}

type operationBody struct {
	Kind    string `json:"kind"`
	Author  string `json:"author"`
	Started int64  `json:"started"`
}

type stackBody struct {
	ID               string            `json:"id"`
	OrgName          string            `json:"orgName"`
	ProjectName      string            `json:"projectName"`
	StackName        string            `json:"stackName"`
	Tags             map[string]string `json:"tags"`
	Version          int64             `json:"version"`
	ActiveUpdate     string            `json:"activeUpdate"`
	CurrentOperation *operationBody    `json:"currentOperation,omitempty"`
	Config           json.RawMessage   `json:"config,omitempty"`
	// ManagedEnvironment is the environment that the stack manages, as project/name.
	ManagedEnvironment string `json:"managedEnvironment,omitempty"`
}

func (s *stackRoutes) get(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	body := stackBody{
		ID: st.ID, OrgName: st.OrgName, ProjectName: st.Project, StackName: st.Name, Tags: map[string]string{}, Version: st.Version,
	}
	if !web.Principal(r).Can(st, identity.StateRead) {
		return web.WriteJSON(w, r, http.StatusOK, body)
	}
	var err error
	if body.Tags, err = s.stacks.Tags(r.Context(), st); err != nil {
		return err
	}
	if st.Config != "" {
		body.Config = json.RawMessage(st.Config)
	}
	if body.ManagedEnvironment, err = s.environments.Managed(r.Context(), st); err != nil {
		return err
	}
	op, running, err := s.stacks.NewestOperation(r.Context(), st)
	if err != nil {
		return err
	}
	// "pulumi cancel" cancels this update, or reports that it has already completed.
	body.ActiveUpdate = op.ID
	if running {
		body.CurrentOperation = &operationBody{Kind: op.Kind, Author: web.UserInfoOf(op.By).GithubLogin, Started: web.Unix(op.StartedAt)}
	}
	return web.WriteJSON(w, r, http.StatusOK, body)
}

// remove deletes a stack. The CLI sends the parameter force, and the provider sends forceDestroy.
func (s *stackRoutes) remove(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	need := identity.DeleteStack
	force, err := request.QueryFlag(r, "force")
	if err != nil {
		return err
	}
	destroy, err := request.QueryFlag(r, "forceDestroy")
	if err != nil {
		return err
	}
	force = force || destroy
	if force {
		need = identity.Manage
	}
	if err := web.Principal(r).Check(st, need); err != nil {
		return err
	}
	return web.Done(w, s.stacks.Delete(r.Context(), web.Principal(r), st, force))
}

func (s *stackRoutes) rename(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	var body struct {
		NewName    string `json:"newName"`
		NewProject string `json:"newProject"`
	}
	if err := request.Decode(w, r, &body); err != nil {
		return err
	}
	u, err := s.stacks.Rename(r.Context(), web.Principal(r), st, body.NewName, body.NewProject)
	return web.Answer(w, r, map[string]string{"updateId": u.ID}, err)
}

func (s *stackRoutes) transfer(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	var body struct {
		ToOrg string `json:"toOrg"`
	}
	if err := request.Decode(w, r, &body); err != nil {
		return err
	}
	to, err := s.identity.Organization(r.Context(), web.Principal(r), body.ToOrg)
	if err != nil {
		return err
	}
	return web.Done(w, s.stacks.Transfer(r.Context(), web.Principal(r), st, to))
}

func (s *stackRoutes) metadata(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	owner, err := s.stacks.Owner(r.Context(), st)
	return web.Answer(w, r, map[string]any{
		"orgName": st.OrgName, "projectName": st.Project, "stackName": st.Name, "ownedBy": web.UserInfoOf(owner),
		"notificationSettings": map[string]bool{"notifyUpdateSuccess": false, "notifyUpdateFailure": false},
	}, err)
}

func (s *stackRoutes) replaceTags(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	var tags map[string]string
	if err := request.Decode(w, r, &tags); err != nil {
		return err
	}
	return web.Done(w, s.stacks.ReplaceTags(r.Context(), web.Principal(r), st, tags))
}

type tagBody struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func (s *stackRoutes) addTag(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	var tag tagBody
	if err := request.Decode(w, r, &tag); err != nil {
		return err
	}
	return web.Done(w, s.stacks.AddTag(r.Context(), web.Principal(r), st, tag.Name, tag.Value))
}

func (s *stackRoutes) changeTag(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	var tag tagBody
	if err := request.Decode(w, r, &tag); err != nil {
		return err
	}
	return web.Done(w, s.stacks.ChangeTag(r.Context(), web.Principal(r), st, web.Param(r, "tag"), tag.Value))
}

func (s *stackRoutes) removeTag(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	return web.Done(w, s.stacks.RemoveTag(r.Context(), web.Principal(r), st, web.Param(r, "tag")))
}
