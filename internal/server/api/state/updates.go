package state

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"time"

	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/policies"
	"workflowagent/internal/server/policies/exceptions"
	"workflowagent/internal/server/policies/results"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
)

type updateRoutes struct {
	stacks   *stacks.Service
	policies *policies.Service
	results  *results.Service
	issued   func(token string)
}

// updateKinds are the path segments under which updates are created and found. Once an update
// exists, clients use "update" for every kind.
var updateKinds = []stacks.Kind{stacks.KindUpdate, stacks.KindPreview, stacks.KindRefresh, stacks.KindDestroy}

func (u *updateRoutes) register(rt *web.Router) {
	const run = identity.Write | identity.Preview // which one depends on the update
	rt.Stack(http.MethodPost, web.StackPath+"/begin-update", run, u.begin)
	for _, kind := range updateKinds {
		path := web.StackPath + "/" + string(kind)
		rt.Stack(http.MethodPost, path, run, func(w http.ResponseWriter, r *http.Request, st store.Stack) error {
			return u.create(w, r, st, kind)
		})
		one := path + "/{updateID}"
		rt.Stack(http.MethodPost, one, run, u.start)
		rt.Stack(http.MethodGet, one, identity.StateRead, u.status)
		rt.Stack(http.MethodGet, one+"/events", identity.StateRead, u.events)
		rt.Stack(http.MethodPost, one+"/cancel", run, u.cancel)
		u.leased(rt, http.MethodPost, one+"/renew_lease", u.renew)
		u.leased(rt, http.MethodPost, one+"/events", u.recordOne)
		u.leased(rt, http.MethodPost, one+"/events/batch", u.recordBatch)
		u.leased(rt, http.MethodPost, one+"/complete", u.complete)
		if kind != stacks.KindPreview { // which does not change the state
			u.leased(rt, http.MethodPatch, one+"/checkpoint", u.checkpoint)
			u.leased(rt, http.MethodPatch, one+"/journalentries", u.journal)
			u.leased(rt, http.MethodPatch, one+"/checkpointverbatim", u.verbatim)
		}
	}
}

// leased registers a route for the client that started an update and sends the update's lease
// token.
func (u *updateRoutes) leased(rt *web.Router, method, pattern string, h func(w http.ResponseWriter, r *http.Request, up store.Update) error) {
	rt.Public(method, pattern, func(w http.ResponseWriter, r *http.Request) error {
		token := web.Bearer(r, "update-token")
		if token == "" {
			return fault.New(fault.KindUnauthenticated, "this call needs the update's token (Authorization: update-token …)")
		}
		var up store.Update
		err := rt.Guard(r, token, func() (err error) {
			up, err = u.stacks.UpdateOfToken(r.Context(), token, web.Param(r, "updateID"), web.Param(r, "org"), web.Param(r, "project"), web.Param(r, "stack"))
			return err
		})
		if err != nil {
			return err
		}
		budget.Of(r.Context()).ForOrganization(web.Param(r, "org"))
		return h(w, r, up)
	})
}

func (u *updateRoutes) create(w http.ResponseWriter, r *http.Request, st store.Stack, kind stacks.Kind) error {
	var prog stacks.Program
	if err := request.DecodeDocument(w, r, &prog); err != nil {
		return err
	}
	_, answer, err := u.createIn(r, st, kind, prog)
	return web.Answer(w, r, answer, err)
}

// begin creates and starts an update. The kind resource-import exists only here: clients that create an
// update first call it an update.
func (u *updateRoutes) begin(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	var body struct {
		UpdateKind stacks.Kind    `json:"updateKind"`
		Program    stacks.Program `json:"program"`
		startBody
	}
	if err := request.DecodeDocument(w, r, &body); err != nil {
		return err
	}
	kind := body.UpdateKind
	if kind == "resource-import" {
		kind = stacks.KindUpdate
	}
	if !slices.Contains(updateKinds, kind) {
		return fault.Invalid("member \"updateKind\" must be update, preview, refresh, destroy or resource-import")
	}
	p := web.Principal(r)
	up, answer, err := u.createIn(r, st, kind, body.Program)
	if err != nil {
		return err
	}
	started, err := u.stacks.Start(r.Context(), up, body.newTags(r), body.JournalVersion)
	if err != nil {
		return err
	}
	maps.Copy(answer, u.startAnswer(started))
	// The client requests the state itself, which can be large.
	stack := stackBody{
		ID: st.ID, OrgName: st.OrgName, ProjectName: st.Project, StackName: st.Name, Tags: map[string]string{}, Version: started.Version,
	}
	if p.Can(st, identity.StateRead) {
		if stack.Tags, err = u.stacks.Tags(r.Context(), st); err != nil {
			return err
		}
	}
	answer["stack"] = stack
	return web.WriteJSON(w, r, http.StatusOK, answer)
}

// createIn creates an update, and returns its description for the client. Policies never block the destruction or the
// refresh of a stack, which must also work where the runtimes of the packs are missing.
func (u *updateRoutes) createIn(r *http.Request, st store.Stack, kind stacks.Kind, prog stacks.Program) (store.Update, map[string]any, error) {
	var required []policies.Required
	p := web.Principal(r)
	up, err := u.stacks.CreateUpdate(r.Context(), p, st, kind, prog, func(tx *store.Tx, up store.Update) (err error) {
		if e := prog.Environment; e != nil {
			pub := environments.Publication{Base: e.BaseRevision, Draft: e.ChangeRequestID}
			if err := environments.Admit(tx, p, st, pub, up.Preview); err != nil {
				return err
			}
		}
		required, err = u.results.Begin(tx, st, up)
		return err
	})
	if err != nil {
		return up, nil, err
	}
	list, err := u.policies.Wire(r.Context(), required)
	if err != nil {
		return up, nil, err
	}
	messages := web.Each(exceptions.Messages(required), func(text string) map[string]string {
		return map[string]string{"severity": "warning", "message": text}
	})
	return up, map[string]any{"updateID": up.ID, "requiredPolicies": list, "messages": messages}, nil
}

func (u *updateRoutes) startAnswer(started stacks.Started) map[string]any {
	u.issued(started.Token)
	answer := map[string]any{"version": started.Version, "token": started.Token, "tokenExpiration": started.Expires.Unix()}
	if started.JournalVersion > 0 { // otherwise, clients send whole checkpoints
		answer["journalVersion"] = started.JournalVersion
	}
	return answer
}

func (u *updateRoutes) find(r *http.Request, st store.Stack) (store.Update, error) {
	return u.stacks.FindUpdate(r.Context(), st, web.Param(r, "updateID"))
}

// findToRun returns the update in the path if the caller may run it.
func (u *updateRoutes) findToRun(r *http.Request, st store.Stack) (store.Update, error) {
	up, err := u.find(r, st)
	if err != nil {
		return up, err
	}
	return up, stacks.CheckRun(web.Principal(r), st, up)
}

type startBody struct {
	Tags           map[string]string `json:"tags"`
	JournalVersion int64             `json:"journalVersion"`
}

// newTags returns the tags that the caller gives to the stack, or nil if they remain.
func (b startBody) newTags(r *http.Request) *stacks.NewTags {
	if b.Tags == nil {
		return nil
	}
	return &stacks.NewTags{Tags: b.Tags, By: web.Principal(r)}
}

func (u *updateRoutes) start(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	var body startBody
	if err := request.DecodeOptional(w, r, &body); err != nil {
		return err
	}
	up, err := u.findToRun(r, st)
	if err != nil {
		return err
	}
	started, err := u.stacks.Start(r.Context(), up, body.newTags(r), body.JournalVersion)
	return web.Answer(w, r, u.startAnswer(started), err)
}

func (u *updateRoutes) renew(w http.ResponseWriter, r *http.Request, up store.Update) error {
	var body struct {
		Duration int64 `json:"duration"` // seconds
	}
	if err := request.DecodeOptional(w, r, &body); err != nil {
		return err
	}
	if body.Duration < 0 || body.Duration > int64(stacks.MaxLease.Seconds()) {
		return fault.Invalid("Renewal duration must be between 0 and %d seconds", int64(stacks.MaxLease.Seconds()))
	}
	expires, err := u.stacks.Renew(r.Context(), up, time.Duration(body.Duration)*time.Second)
	if err != nil {
		return err
	}
	// A client that receives no token in the response loses the lease.
	return web.WriteJSON(w, r, http.StatusOK, map[string]any{
		"token": web.Bearer(r, "update-token"), "tokenExpiration": expires.Unix(),
	})
}

func (u *updateRoutes) checkpoint(w http.ResponseWriter, r *http.Request, up store.Update) error {
	state, err := readState(w, r)
	if err != nil {
		return err
	}
	return web.Done(w, u.stacks.Checkpoint(r.Context(), up, state))
}

// verbatim stores a checkpoint in the form of clients that number their checkpoints.
func (u *updateRoutes) verbatim(w http.ResponseWriter, r *http.Request, up store.Update) error {
	state, sequence, err := readVerbatim(w, r)
	if err != nil {
		return err
	}
	return web.Done(w, u.stacks.NumberedCheckpoint(r.Context(), up, state, sequence))
}

// journal stores a batch of journal entries. Clients halve a batch that is too large.
func (u *updateRoutes) journal(w http.ResponseWriter, r *http.Request, up store.Update) error {
	entries, err := readJournal(w, r)
	if err != nil {
		return err
	}
	return web.Done(w, u.stacks.Record(r.Context(), up, entries))
}

func (u *updateRoutes) recordOne(w http.ResponseWriter, r *http.Request, up store.Update) error {
	var event json.RawMessage
	if err := request.DecodeDocument(w, r, &event); err != nil {
		return err
	}
	return u.record(w, r, up, []json.RawMessage{event})
}

func (u *updateRoutes) recordBatch(w http.ResponseWriter, r *http.Request, up store.Update) error {
	var body struct {
		Events []json.RawMessage `json:"events"`
	}
	if err := request.DecodeBatch(w, r, &body); err != nil {
		return err
	}
	return u.record(w, r, up, body.Events)
}

func (u *updateRoutes) record(w http.ResponseWriter, r *http.Request, up store.Update, events []json.RawMessage) error {
	return web.Answer(w, r, struct{}{}, u.stacks.RecordEvents(r.Context(), up, events))
}

func (u *updateRoutes) complete(w http.ResponseWriter, r *http.Request, up store.Update) error {
	var body struct {
		Status stacks.Status `json:"status"`
	}
	if err := request.Decode(w, r, &body); err != nil {
		return err
	}
	return web.Done(w, u.stacks.Complete(r.Context(), up, body.Status))
}

func (u *updateRoutes) cancel(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	up, err := u.findToRun(r, st)
	if err != nil {
		return err
	}
	return web.Done(w, u.stacks.Cancel(r.Context(), up, web.Principal(r).Name()))
}

// status responds with an update's status. Clients poll it until it returns no continuation token.
func (u *updateRoutes) status(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	up, err := u.find(r, st)
	if err != nil {
		return err
	}
	body := map[string]any{"status": up.Status, "events": []any{}}
	if !stacks.Status(up.Status).Finished() {
		body["continuationToken"] = "0"
	}
	return web.WriteJSON(w, r, http.StatusOK, body)
}

// events responds with a page of an update's events. The token is null only if the update has
// finished and the client has read all events.
func (u *updateRoutes) events(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	up, err := u.find(r, st)
	if err != nil {
		return err
	}
	query := r.URL.Query()
	page, err := u.stacks.Events(r.Context(), up, query.Get("continuationToken"), query.Get("urn"))
	if err != nil {
		return err
	}
	body := map[string]any{"events": page.Events, "continuationToken": nil}
	if page.Next != "" {
		body["continuationToken"] = page.Next
	}
	return web.WriteJSON(w, r, http.StatusOK, body)
}
