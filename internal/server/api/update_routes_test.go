package api_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/redact"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/stacks/events"
	"workflowagent/internal/server/store"
)

func TestUpdateLife(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixtureOn(t, db, options{})
		path := f.stack("dev")
		u := f.start(path, "update")
		u.send("PATCH", "/checkpoint", state(2)).want(204, nil)
		u.send("PATCH", "/checkpoint", state(3)).want(204, nil)
		var lease struct{ Token string }
		u.send("POST", "/renew_lease", map[string]any{"token": "", "duration": 300}).want(200, &lease)
		if lease.Token == "" {
			t.Error("the renewal returned no token")
		}
		u.send("POST", "/renew_lease", map[string]any{"duration": 301}).want(400, nil)
		u.send("POST", "/renew_lease", map[string]any{"duration": -1}).want(400, nil)
		var s struct {
			ActiveUpdate     string
			CurrentOperation struct{ Kind, Author string }
		}
		f.do("GET", path, nil).want(200, &s)
		if s.ActiveUpdate == "" || s.CurrentOperation.Kind != "update" || s.CurrentOperation.Author != "admin" {
			t.Errorf("stack during an update = %+v", s)
		}
		var status map[string]any
		f.do("GET", u.path, nil).want(200, &status)
		if status["status"] != "running" || status["continuationToken"] == nil {
			t.Errorf("status = %v", status)
		}
		u.send("POST", "/events/batch", map[string]any{"events": []any{
			map[string]any{"sequence": 0, "timestamp": 1, "summaryEvent": map[string]any{
				"maybeCorrupt": false, "durationSeconds": 1, "resourceChanges": map[string]int{"create": 3}, "PolicyPacks": map[string]string{},
			}},
		}}).want(200, nil)
		u.send("POST", "/complete", map[string]string{"status": "bogus"}).want(400, nil)
		u.send("POST", "/complete", map[string]string{"status": "succeeded"}).want(204, nil)
		// Completing an update again with the same status is a retry. A different status is an
		// error.
		u.send("POST", "/complete", map[string]string{"status": "succeeded"}).want(204, nil)
		u.send("POST", "/complete", map[string]string{"status": "failed"}).want(409, nil)
		u.send("PATCH", "/checkpoint", state(1)).want(409, nil)
		f.do("POST", u.path, nil).want(409, nil)
		active := s.ActiveUpdate
		s.CurrentOperation.Kind = ""
		f.do("GET", path, nil).want(200, &s)
		if s.ActiveUpdate != active || s.CurrentOperation.Kind != "" {
			t.Errorf("stack after update %s = %+v", active, s)
		}
		f.do("POST", u.path+"/cancel", nil).want(409, nil).says("already completed")

		var flat struct {
			Updates []struct {
				Kind, Message, Result string
				Version               int
				ResourceCount         int
				ResourceChanges       map[string]int
				Environment           map[string]string
			}
		}
		f.do("GET", path+"/updates?pageSize=10&page=1", nil).want(200, &flat)
		if len(flat.Updates) != 1 {
			t.Fatalf("history = %+v", flat)
		}
		h := flat.Updates[0]
		if h.Kind != "update" || h.Message != "hi" || h.Result != "succeeded" || h.Version != 1 || h.ResourceCount != 3 ||
			h.ResourceChanges["create"] != 3 || h.Environment["git.head"] != "abc" {
			t.Errorf("history = %+v", h)
		}
		var rich struct {
			Total, ItemsPerPage int
			Updates             []struct {
				Info        struct{ Result string }
				UpdateID    string
				RequestedBy struct{ GithubLogin string }
			}
		}
		f.do("GET", path+"/updates?output-type=service&pageSize=5&page=1", nil).want(200, &rich)
		if rich.Total != 1 || rich.ItemsPerPage != 5 || rich.Updates[0].RequestedBy.GithubLogin != "admin" {
			t.Errorf("rich history = %+v", rich)
		}
		f.do("GET", path+"/updates/latest", nil).want(200, nil)
		f.do("GET", path+"/updates/1", nil).want(200, nil)
		f.do("GET", path+"/updates/1/summary", nil).want(200, nil)
		f.do("GET", path+"/updates/2", nil).want(404, nil)
		f.do("GET", path+"/updates?page=-1", nil).want(400, nil)
	})
}

func TestPreviewsNeitherHoldTheStackNorChangeIt(t *testing.T) {
	f := newFixture(t, options{})
	path := f.stack("dev")
	first, second := f.start(path, "preview"), f.start(path, "preview")
	up := f.start(path, "update")
	first.send("PATCH", "/checkpoint", state(1)).want(403, nil)
	for _, u := range []update{first, second, up} {
		u.send("POST", "/complete", map[string]string{"status": "succeeded"}).want(204, nil)
	}
	var flat struct{ Updates []any }
	f.do("GET", path+"/updates", nil).want(200, &flat)
	if len(flat.Updates) != 1 {
		t.Errorf("the history has %d updates, want 1, without the previews", len(flat.Updates))
	}
}

func TestConflictSaysWhoAndSinceWhen(t *testing.T) {
	f := newFixture(t, options{})
	path := f.stack("dev")
	u := f.start(path, "update")
	var created struct{ UpdateID string }
	f.do("POST", path+"/refresh", program()).want(200, &created)
	f.do("POST", path+"/update/"+created.UpdateID, nil).want(409, nil).says("admin").says(time.Now().UTC().Format("2006-01-02T"))
	f.do("POST", path+"/import", state(0)).want(409, nil)
	f.do("POST", path+"/rename", map[string]string{"newName": "x"}).want(409, nil)
	f.do("DELETE", path+"?force=true", nil).want(409, nil)
	u.send("POST", "/complete", map[string]string{"status": "failed"}).want(204, nil)
	f.do("POST", path+"/update/"+created.UpdateID, nil).want(200, nil)
}

func TestCancelTakesTheLease(t *testing.T) {
	f := newFixture(t, options{})
	path := f.stack("dev")
	var created struct{ UpdateID string }
	f.do("POST", path+"/update", program()).want(200, &created)
	f.do("POST", path+"/update/"+created.UpdateID+"/cancel", nil).want(409, nil)
	u := f.start(path, "update")
	f.do("POST", u.path+"/cancel", nil).want(204, nil)
	f.do("POST", u.path+"/cancel", nil).want(204, nil)
	u.send("POST", "/renew_lease", map[string]any{"duration": 300}).want(403, nil)
	u.send("PATCH", "/checkpoint", state(1)).want(409, nil)
	f.start(path, "destroy").send("POST", "/complete", map[string]string{"status": "succeeded"}).want(204, nil)
}

func TestUpdateTokensOpenOnlyTheirUpdate(t *testing.T) {
	f := newFixture(t, options{})
	path := f.stack("dev")
	u := f.start(path, "update")
	p := f.start(path, "preview")
	u.token, p.token = p.token, u.token
	u.send("PATCH", "/checkpoint", state(1)).want(403, nil)
	u.send("POST", "/renew_lease", map[string]any{}).want(403, nil)
	u.token = f.admin
	u.send("PATCH", "/checkpoint", state(1)).want(403, nil)
	f.do("PATCH", u.path+"/checkpoint", state(1)).want(401, nil) // a user's token is not an update token
	f.send(call{Method: "GET", Path: path, Auth: "update-token " + p.token}).want(401, nil)
	other := f.stack("other")
	u.token = p.token
	u.path = other + "/update/" + u.path[len(u.path)-36:]
	u.send("PATCH", "/checkpoint", state(1)).want(404, nil)
}

func TestExpiredLeaseFreesTheStack(t *testing.T) {
	f := newFixture(t, options{lease: 2 * time.Second})
	path := f.stack("dev")
	dead := f.start(path, "update")
	dead.send("PATCH", "/checkpoint", state(2)).want(204, nil)
	var next struct{ UpdateID string }
	f.do("POST", path+"/update", program()).want(200, &next)
	deadline := time.Now().Add(time.Minute)
	for f.do("POST", path+"/update/"+next.UpdateID, nil).Status != 200 {
		if time.Now().After(deadline) {
			t.Fatal("the stack was not released")
		}
	}
	dead.send("PATCH", "/checkpoint", state(1)).want(403, nil)
	dead.send("POST", "/renew_lease", map[string]any{}).want(403, nil)
	dead.send("POST", "/complete", map[string]string{"status": "succeeded"}).want(403, nil)
	var status struct{ Status string }
	f.do("GET", dead.path, nil).want(200, &status)
	if status.Status != "failed" {
		t.Errorf("status of the dead update = %q", status.Status)
	}
	var exported struct {
		Deployment struct{ Resources []any }
	}
	f.do("GET", path+"/export", nil).want(200, &exported)
	if len(exported.Deployment.Resources) != 2 {
		t.Errorf("the state has %d resources, want 2", len(exported.Deployment.Resources))
	}
}

func TestSweeperEndsDeadUpdates(t *testing.T) {
	f := newFixture(t, options{lease: 50 * time.Millisecond})
	path := f.stack("dev")
	u := f.start(path, "preview")
	deadline := time.Now().Add(time.Minute)
	for n := 0; n == 0; {
		var err error
		if n, err = f.stacks.ExpireLeases(t.Context()); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatal("the update was not ended")
		}
	}
	var status struct{ Status string }
	f.do("GET", u.path, nil).want(200, &status)
	if status.Status != "failed" {
		t.Errorf("status = %q", status.Status)
	}
}

func event(seq int) map[string]any {
	return map[string]any{"sequence": seq, "timestamp": 1, "stdoutEvent": map[string]string{"message": fmt.Sprint(seq), "color": "raw"}}
}

type eventPage struct {
	Events            []struct{ Sequence int }
	ContinuationToken *string
}

func TestEventsStopAtTheFirstGap(t *testing.T) {
	f := newFixture(t, options{})
	u := f.start(f.stack("dev"), "update")
	post := func(seqs ...int) {
		t.Helper()
		var list []any
		for _, s := range seqs {
			list = append(list, event(s))
		}
		u.send("POST", "/events/batch", map[string]any{"events": list}).want(200, nil)
	}
	read := func(token string) eventPage {
		t.Helper()
		var p eventPage
		f.do("GET", u.path+"/events?continuationToken="+token, nil).want(200, &p)
		return p
	}
	post(2, 3)
	p := read("")
	if len(p.Events) != 0 || p.ContinuationToken == nil {
		t.Fatalf("before the first event arrived: %+v", p)
	}
	post(0)
	p = read(*p.ContinuationToken)
	if len(p.Events) != 1 || p.ContinuationToken == nil {
		t.Fatalf("before the gap was filled: %+v", p)
	}
	post(1)
	u.send("POST", "/events", event(4)).want(200, nil)
	p = read(*p.ContinuationToken)
	if len(p.Events) != 4 || p.Events[0].Sequence != 1 || p.Events[3].Sequence != 4 || p.ContinuationToken == nil {
		t.Fatalf("after the gap was filled: %+v", p)
	}
	u.send("POST", "/complete", map[string]string{"status": "succeeded"}).want(204, nil)
	p = read(*p.ContinuationToken)
	if len(p.Events) != 0 || p.ContinuationToken != nil {
		t.Errorf("after the end: %+v", p)
	}
	u.send("POST", "/events/batch", map[string]any{"events": []any{}}).want(400, nil)
	u.send("POST", "/events/batch", map[string]any{"events": []any{map[string]any{"timestamp": 1}}}).want(400, nil)
	f.do("GET", u.path+"/events?continuationToken=x", nil).want(400, nil)
}

func TestManyEventsArePaged(t *testing.T) {
	f := newFixture(t, options{})
	u := f.start(f.stack("dev"), "update")
	const total = 2500
	for at := 0; at < total; at += 500 {
		var list []any
		for s := at; s < at+500; s++ {
			list = append(list, event(s))
		}
		u.send("POST", "/events/batch", map[string]any{"events": list}).want(200, nil)
	}
	u.send("POST", "/complete", map[string]string{"status": "succeeded"}).want(204, nil)
	next, token := 0, ""
	for {
		var p eventPage
		f.do("GET", u.path+"/events?continuationToken="+token, nil).want(200, &p)
		for _, e := range p.Events {
			if e.Sequence != next {
				t.Fatalf("got event %d, want %d", e.Sequence, next)
			}
			next++
		}
		if p.ContinuationToken == nil {
			break
		}
		token = *p.ContinuationToken
	}
	if next != total {
		t.Errorf("read %d events, want %d", next, total)
	}
}

func TestStartReplacesTags(t *testing.T) {
	f := newFixture(t, options{})
	path := f.stack("dev")
	f.do("POST", path+"/tags", map[string]string{"name": "old", "value": "1"}).want(204, nil)
	var created struct{ UpdateID string }
	f.do("POST", path+"/update", program()).want(200, &created)
	f.do("POST", path+"/update/"+created.UpdateID, map[string]any{"tags": map[string]string{"new": "2"}}).want(200, nil)
	var s struct{ Tags map[string]string }
	f.do("GET", path, nil).want(200, &s)
	if s.Tags["old"] != "" || s.Tags["new"] != "2" {
		t.Errorf("tags = %v", s.Tags)
	}
}

func TestSecretsOfADeploymentAreMaskedInItsEvents(t *testing.T) {
	f := newFixture(t, options{})
	f.stacks.Follow(stacks.Hooks{KnownSecrets: func(_ context.Context, deployment string) ([]redact.Secret, error) {
		return []redact.Secret{{Name: "of " + deployment, Value: "hunter2-" + deployment}}, nil
	}})
	path := f.stack("dev")
	org, user, stack := f.ids("dev")
	job := "token " + f.issue(store.Token{Kind: store.JobToken, OrgID: org, UserID: user, StackID: stack, DeploymentID: "d1", JobID: "j1", Scope: stack + ":write"})
	var created struct{ UpdateID string }
	f.send(call{Method: "POST", Path: path + "/update", Body: program(), Auth: job}).want(200, &created)
	u := update{f: f, path: path + "/update/" + created.UpdateID}
	var started struct{ Token string }
	f.send(call{Method: "POST", Path: u.path, Auth: job}).want(200, &started)
	u.token = started.Token
	said := event(0)
	said["stdoutEvent"] = map[string]string{"message": "it is hunter2-d1, not hunter2-d2", "color": "raw"}
	u.send("POST", "/events/batch", map[string]any{"events": []any{said}}).want(200, nil)
	f.do("GET", u.path+"/events", nil).want(200, nil).says("it is [secret], not hunter2-d2")
	stored, err := store.Read(t.Context(), f.db, func(tx *store.Tx) ([]store.EventBatch, error) {
		return tx.EventBatches(created.UpdateID, 0, 9)
	})
	if err != nil || len(stored) != 1 {
		t.Fatalf("%d batches are stored, %v", len(stored), err)
	}
	list, err := events.Unpack(stored[0], 0)
	if err != nil || len(list) != 1 || !strings.Contains(string(list[0]), "it is [secret]") {
		t.Errorf("stored events: %s, %v", list, err)
	}
}
