package api

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
)

// stackRoutes manage stacks, their tags and their stored configuration.
type stackRoutes struct {
	stacks   *stacks.Service
	identity *identity.Service
}

// registerState adds the routes of the state backend.
func registerState(rt *Router, s *stacks.Service, ids *identity.Service) {
	(&stackRoutes{s, ids}).register(rt)
	(&stateRoutes{s}).register(rt)
	(&secretRoutes{s}).register(rt)
	(&updateRoutes{s}).register(rt)
	(&historyRoutes{s}).register(rt)
}

func (s *stackRoutes) register(rt *Router) {
	rt.authed(http.MethodGet, "/api/user/stacks", people, s.list)
	rt.org(http.MethodHead, "/api/stacks/{org}/{project}", needMember, s.projectExists)
	rt.org(http.MethodPost, "/api/stacks/{org}/{project}", needMember, s.create)
	rt.stack(http.MethodGet, stackPath, identity.StateRead|identity.Outputs, s.get)
	rt.stack(http.MethodDelete, stackPath, identity.DeleteStack, s.remove)
	rt.stack(http.MethodPost, stackPath+"/rename", identity.Manage, s.rename)
	rt.stack(http.MethodGet, stackPath+"/metadata", identity.StateRead, s.metadata)

	rt.stack(http.MethodPatch, stackPath+"/tags", identity.Write, s.replaceTags)
	rt.stack(http.MethodPost, stackPath+"/tags", identity.Write, s.addTag)
	rt.stack(http.MethodPatch, stackPath+"/tags/{tag}", identity.Write, s.changeTag)
	rt.stack(http.MethodDelete, stackPath+"/tags/{tag}", identity.Write, s.removeTag)

	rt.stack(http.MethodGet, stackPath+"/config", identity.DecryptConfig, s.config)
	rt.stack(http.MethodPut, stackPath+"/config", identity.Manage, s.setConfig)
	rt.stack(http.MethodDelete, stackPath+"/config", identity.Manage, s.removeConfig)

	rt.stack(http.MethodGet, stackPath+"/policypacks", identity.StateRead, s.policyPacks)
	rt.stack(http.MethodGet, stackPath+"/policygroups", identity.StateRead, s.policyGroups)
}

type stackSummary struct {
	ID            string `json:"id"`
	OrgName       string `json:"orgName"`
	ProjectName   string `json:"projectName"`
	StackName     string `json:"stackName"`
	LastUpdate    int64  `json:"lastUpdate,omitempty"`
	ResourceCount int64  `json:"resourceCount"`
}

const (
	defaultStacksPage = 200
	maxStacksPage     = 1000
)

func (s *stackRoutes) list(w http.ResponseWriter, r *http.Request) error {
	p := principal(r)
	q := r.URL.Query()
	limit := int64(defaultStacksPage)
	if v := q.Get("maxResults"); v != "" {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < 1 {
			return fault.Invalid("Bad Request: maxResults must be a whole number above 0")
		}
		limit = min(n, maxStacksPage)
	}
	filter := store.StackFilter{
		OrgIDs: p.ReadableOrgs(), StackID: p.StackID, Project: q.Get("project"), TagName: q.Get("tagName"), TagValue: q.Get("tagValue"),
		Limit: int(limit) + 1,
	}
	if t := q.Get("continuationToken"); t != "" {
		after, err := base64.RawURLEncoding.DecodeString(t)
		if err != nil || !isText(string(after)) {
			return fault.Invalid("Bad Request: Invalid continuation token.")
		}
		filter.After = string(after)
	}
	if name := q.Get("organization"); name != "" {
		o, err := s.identity.Organization(r.Context(), p, name)
		switch {
		case fault.KindOf(err) == fault.KindNotFound:
			filter.OrgIDs = nil
		case err != nil:
			return err
		default:
			filter.OrgIDs = []string{o.ID}
		}
	}
	found, err := s.stacks.List(r.Context(), filter)
	if err != nil {
		return err
	}
	body := map[string]any{}
	if int64(len(found)) > limit {
		found = found[:limit]
		body["continuationToken"] = base64.RawURLEncoding.EncodeToString([]byte(found[limit-1].SortKey()))
	}
	out := []stackSummary{}
	for _, st := range found {
		out = append(out, stackSummary{
			ID: st.ID, OrgName: st.OrgName, ProjectName: st.Project, StackName: st.Name,
			LastUpdate: unix(st.LastUpdateAt), ResourceCount: st.ResourceCount,
		})
	}
	body["stacks"] = out
	return writeJSON(w, r, http.StatusOK, body)
}

func (s *stackRoutes) projectExists(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	ok, err := s.stacks.ProjectExists(r.Context(), o.ID, param(r, "project"))
	if err != nil {
		return err
	}
	if !ok {
		return fault.NotFound("Not Found: there is no project %q", param(r, "project"))
	}
	w.WriteHeader(http.StatusOK)
	return nil
}

func (s *stackRoutes) create(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	var body struct {
		StackName string            `json:"stackName"`
		Tags      map[string]string `json:"tags"`
		Config    json.RawMessage   `json:"config"`
	}
	data, err := readBody(w, r, stateBounds(r))
	if err != nil {
		return err
	}
	// A state may be large, and is not decoded; the rest is a small body.
	state, rest, err := stacks.CutMember(data, "state")
	if err != nil {
		return err
	}
	if err := decodePart(r, rest, &body); err != nil {
		return err
	}
	n := stacks.NewStack{Org: o, Project: param(r, "project"), Name: body.StackName, Tags: body.Tags}
	if len(body.Config) > 0 && string(body.Config) != "null" {
		c, err := stackConfig(body.Config)
		if err != nil {
			return err
		}
		n.Config = c
	}
	if len(state) > 0 && string(state) != "null" {
		st, err := stacks.ParseState(state, nil)
		if err != nil {
			return err
		}
		n.State = st
	}
	if _, err := s.stacks.Create(r.Context(), principal(r), n); err != nil {
		return err
	}
	return writeJSON(w, r, http.StatusOK, map[string]any{"messages": []any{}})
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
}

func (s *stackRoutes) get(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	if !principal(r).Can(st, identity.StateRead) {
		return writeJSON(w, r, http.StatusOK, stackBody{
			ID: st.ID, OrgName: st.OrgName, ProjectName: st.Project, StackName: st.Name, Tags: map[string]string{}, Version: st.Version,
		})
	}
	tags, err := s.stacks.Tags(r.Context(), st)
	if err != nil {
		return err
	}
	body := stackBody{
		ID: st.ID, OrgName: st.OrgName, ProjectName: st.Project, StackName: st.Name, Tags: tags, Version: st.Version,
	}
	if st.Config != "" {
		body.Config = json.RawMessage(st.Config)
	}
	op, running, err := s.stacks.CurrentOperation(r.Context(), st)
	if err != nil {
		return err
	}
	if running {
		body.ActiveUpdate = op.ID
		body.CurrentOperation = &operationBody{Kind: op.Kind, Author: userInfoOf(op.By).GithubLogin, Started: unix(op.StartedAt)}
	}
	return writeJSON(w, r, http.StatusOK, body)
}

// remove deletes a stack. The CLI says force, the provider says forceDestroy.
func (s *stackRoutes) remove(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	force := false
	for _, name := range []string{"force", "forceDestroy"} {
		if v := r.URL.Query().Get(name); v != "" {
			b, err := strconv.ParseBool(v)
			if err != nil {
				return fault.Invalid("Bad Request: query parameter %s must be true or false", name)
			}
			force = force || b
		}
	}
	if force {
		if err := principal(r).Check(st, identity.Manage); err != nil {
			return err
		}
	}
	if err := s.stacks.Delete(r.Context(), principal(r), st, force); err != nil {
		return err
	}
	return noContent(w)
}

func (s *stackRoutes) rename(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	var body struct {
		NewName    string `json:"newName"`
		NewProject string `json:"newProject"`
	}
	if err := decode(w, r, &body); err != nil {
		return err
	}
	u, err := s.stacks.Rename(r.Context(), principal(r), st, body.NewName, body.NewProject)
	if err != nil {
		return err
	}
	return writeJSON(w, r, http.StatusOK, map[string]string{"updateId": u.ID})
}

func (s *stackRoutes) metadata(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	owner, err := s.stacks.Owner(r.Context(), st)
	if err != nil {
		return err
	}
	return writeJSON(w, r, http.StatusOK, map[string]any{
		"orgName": st.OrgName, "projectName": st.Project, "stackName": st.Name, "ownedBy": userInfoOf(owner),
		"notificationSettings": map[string]bool{"notifyUpdateSuccess": false, "notifyUpdateFailure": false},
	})
}

func (s *stackRoutes) replaceTags(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	var tags map[string]string
	if err := decode(w, r, &tags); err != nil {
		return err
	}
	if err := s.stacks.ReplaceTags(r.Context(), st, tags); err != nil {
		return err
	}
	return noContent(w)
}

type tagBody struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func (s *stackRoutes) addTag(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	var tag tagBody
	if err := decode(w, r, &tag); err != nil {
		return err
	}
	if err := s.stacks.AddTag(r.Context(), st, tag.Name, tag.Value); err != nil {
		return err
	}
	return noContent(w)
}

func (s *stackRoutes) changeTag(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	var tag tagBody
	if err := decode(w, r, &tag); err != nil {
		return err
	}
	if err := s.stacks.ChangeTag(r.Context(), st, param(r, "tag"), tag.Value); err != nil {
		return err
	}
	return noContent(w)
}

func (s *stackRoutes) removeTag(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	if err := s.stacks.RemoveTag(r.Context(), st, param(r, "tag")); err != nil {
		return err
	}
	return noContent(w)
}

func (s *stackRoutes) config(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	if st.Config == "" {
		return fault.NotFound("Not Found: stack '%s' has no stored configuration", st.Ref())
	}
	return writeRaw(w, r, http.StatusOK, []byte(st.Config))
}

// maxStackConfig bounds a stack's configuration, which is read with the stack: names
// and wrapped keys.
const maxStackConfig = 64 << 10

// stackConfig keeps the known members of a stack configuration.
func stackConfig(raw json.RawMessage) (string, error) {
	var c struct {
		Environment     string `json:"environment"`
		SecretsProvider string `json:"secretsProvider,omitempty"`
		EncryptedKey    string `json:"encryptedKey,omitempty"`
		EncryptionSalt  string `json:"encryptionSalt,omitempty"`
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return "", invalidJSON(err)
	}
	out, err := json.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("encoding a stack's configuration: %w", err)
	}
	if len(out) > maxStackConfig {
		return "", fault.New(fault.KindTooLarge, "Request Entity Too Large: the configuration of a stack has more than %d bytes", maxStackConfig)
	}
	return string(out), nil
}

func (s *stackRoutes) setConfig(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	var raw json.RawMessage
	if err := decodeDocument(w, r, &raw); err != nil {
		return err
	}
	c, err := stackConfig(raw)
	if err != nil {
		return err
	}
	if err := s.stacks.SetConfig(r.Context(), st, c); err != nil {
		return err
	}
	return writeRaw(w, r, http.StatusOK, []byte(c))
}

func (s *stackRoutes) removeConfig(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	if err := s.stacks.SetConfig(r.Context(), st, ""); err != nil {
		return err
	}
	return noContent(w)
}

// policyPacks and policyGroups are empty: this server enforces no policies.
func (s *stackRoutes) policyPacks(w http.ResponseWriter, r *http.Request, _ store.Stack) error {
	return writeJSON(w, r, http.StatusOK, map[string]any{"requiredPolicies": []any{}})
}

func (s *stackRoutes) policyGroups(w http.ResponseWriter, r *http.Request, _ store.Stack) error {
	return writeJSON(w, r, http.StatusOK, map[string]any{"policyGroups": []any{}})
}
