package api_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/server/triggers"
	"workflowagent/internal/server/webhooks"
	"workflowagent/internal/workflow"
)

// administers makes a user an administrator of another organization.
func (f *fixture) administers(login, org string) {
	f.t.Helper()
	err := f.db.Write(f.t.Context(), scope.Server(), func(tx *store.Tx) error {
		o, err := tx.OrganizationByName(org)
		if err != nil {
			return err
		}
		u, err := tx.UserByLogin(login)
		if err != nil {
			return err
		}
		return tx.InsertMember(store.Member{OrgID: o.ID, UserID: u.ID, Role: identity.RoleAdmin, CreatedAt: time.Now()})
	})
	if err != nil {
		f.t.Fatal(err)
	}
}

func TestTransfer(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		rival := l.newOrganization("rival")
		boss := l.person("boss", "acme", "admin")
		ann := l.person("ann", "acme", "member")
		list := l.deployable("dev")
		const from, to = "/api/stacks/acme/proj/dev", "/api/stacks/rival/proj/dev"
		transfer := func(auth, org string) answer {
			t.Helper()
			return l.send(call{Method: "POST", Path: from + "/transfer", Body: map[string]any{"toOrg": org}, Auth: auth})
		}
		transfer(rival, "rival").want(404, nil)
		transfer(ann, "rival").want(403, nil)
		transfer(boss, "rival").want(404, nil) // boss is not a member
		l.administers("boss", "rival")
		transfer(boss, "").want(404, nil)
		transfer(boss, "acme").want(400, nil).says("already belongs")

		// A state with a secret, a history, a collaborator and a team.
		var enc struct{ Ciphertext []byte }
		l.do("POST", from+"/encrypt", map[string][]byte{"plaintext": []byte("hidden")}).want(200, &enc)
		l.do("POST", from+"/import", map[string]any{"version": 3, "deployment": map[string]any{
			"secrets_providers": map[string]any{"type": "service", "state": map[string]string{"owner": "acme", "project": "proj", "stack": "dev"}},
			"resources":         []any{map[string]any{"urn": "urn:pulumi:dev::proj::a:b:C::r", "type": "a:b:C"}},
		}}).want(200, nil)
		l.do("PUT", from+"/collaborators/ann", map[string]any{"permission": 102}).want(204, nil)
		l.do("PUT", from+"/collaborators/boss", map[string]any{"permission": 102}).want(204, nil)
		l.do("POST", "/api/orgs/acme/teams/pulumi", map[string]any{"name": "ops"}).want(201, nil)
		l.do("PATCH", "/api/console/stacks/acme/proj/dev/teams/ops", map[string]any{"permissions": 103}).want(204, nil)
		update := l.run(from, "update", "a")

		// What binds the stack to its organization.
		running := l.fixture.start(from, "preview")
		transfer(boss, "rival").want(409, nil).says("running update or preview")
		running.send("POST", "/complete", map[string]any{"status": "succeeded"}).want(204, nil)
		deployment := l.deploy(list, "update")
		transfer(boss, "rival").want(409, nil).says("queued or running deployments")
		_, jc := l.start("agent")
		transfer(boss, "rival").want(409, nil).says("queued or running deployments")
		l.end(jc, workflow.StatusSucceeded)
		transfer(boss, "rival").want(409, nil).says("agent pool")
		l.do("POST", list+"/settings", map[string]any{"agentPoolID": nil}).want(200, nil)
		l.send(call{Method: "POST", Path: "/api/stacks/rival/proj", Body: map[string]any{"stackName": "dev"}, Auth: rival}).want(200, nil)
		transfer(boss, "rival").want(409, nil).says("already exists")
		l.send(call{Method: "DELETE", Path: to, Auth: rival}).want(204, nil)

		transfer(boss, "rival").want(204, nil)
		l.do("GET", from, nil).want(404, nil)
		as := func(method, path string, body any) answer {
			t.Helper()
			return l.send(call{Method: method, Path: path, Body: body, Auth: rival})
		}
		if a := as("GET", to+"/export", nil).want(200, nil); !strings.Contains(string(a.Body), `"owner":"rival"`) {
			t.Errorf("the state names another owner: %s", a.Body)
		}
		var dec struct{ Plaintext []byte }
		as("POST", to+"/decrypt", map[string][]byte{"ciphertext": enc.Ciphertext}).want(200, &dec)
		if string(dec.Plaintext) != "hidden" {
			t.Errorf("the secret is %q after the transfer", dec.Plaintext)
		}
		as("GET", to+"/update/"+update, nil).want(200, nil)
		as("GET", to+"/deployments/"+deployment, nil).want(200, nil)
		as("GET", to+"/deployments/"+deployment+"/logs", nil).want(200, nil)
		as("GET", "/api/orgs/rival/deployments", nil).want(200, nil).says(deployment)
		if a := l.do("GET", "/api/orgs/acme/deployments", nil).want(200, nil); strings.Contains(string(a.Body), deployment) {
			t.Errorf("acme still lists the deployment: %s", a.Body)
		}
		var access struct {
			Users []struct{ User struct{ GithubLogin string } }
		}
		as("GET", to+"/collaborators", nil).want(200, &access)
		if len(access.Users) != 1 || access.Users[0].User.GithubLogin != "boss" {
			t.Errorf("collaborators after the transfer = %+v, want boss, who is a member", access)
		}
		l.send(call{Method: "GET", Path: to, Auth: ann}).want(404, nil)
		for org, want := range map[string]int64{"acme": 0, "rival": 1} {
			n, err := store.Read(t.Context(), l.db, func(tx *store.Tx) (int64, error) {
				o, err := tx.OrganizationByName(org)
				if err != nil {
					return 0, err
				}
				return tx.CountResources(o.ID, store.Reach{All: []string{o.ID}}, time.Now().Add(time.Hour))
			})
			if err != nil || n != want {
				t.Errorf("%s has %d resources after the transfer, %v, want %d", org, n, err, want)
			}
		}
		var teams struct{ Teams []any }
		as("GET", to+"/teams", nil).want(200, &teams)
		if len(teams.Teams) != 0 {
			t.Errorf("teams after the transfer = %v", teams)
		}
	})
}

// TestTransferNeedsAStackWithoutTriggers transfers a stack that has a schedule and a webhook. Both
// act for members of the old organization.
func TestTransferNeedsAStackWithoutTriggers(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		l.newOrganization("rival")
		l.administers("admin", "rival")
		list := l.deployable("dev")
		l.do("POST", list+"/settings", map[string]any{"agentPoolID": nil}).want(200, nil)
		const stack = "/api/stacks/acme/proj/dev"
		transfer := func() answer {
			t.Helper()
			return l.do("POST", stack+"/transfer", map[string]any{"toOrg": "rival"})
		}
		var made schedule
		l.do("POST", list+"/ttl/schedules", `{"timestamp":"2100-01-02T03:04:05Z"}`).want(200, &made)
		l.do("POST", list+"/schedules/"+made.ID+"/pause", nil).want(200, nil)
		transfer().want(409, nil).says("has schedules")
		l.do("DELETE", list+"/schedules/"+made.ID, nil).want(200, nil)
		l.do("POST", stack+"/hooks", map[string]any{"name": "h", "displayName": "x", "payloadUrl": "https://example.com", "active": false}).want(201, nil)
		transfer().want(409, nil).says("has webhooks")
		l.do("DELETE", stack+"/hooks/h", nil).want(204, nil)
		transfer().want(204, nil)
	})
}

// TestTransferDuringARequest transfers a stack after requests for it have been authorized. What the
// requests create would belong to the old organization.
func TestTransferDuringARequest(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		l.newOrganization("rival")
		l.administers("admin", "rival")
		list := l.deployable("dev")
		l.do("POST", list+"/settings", map[string]any{"agentPoolID": nil}).want(200, nil)
		p, err := l.identity.Authenticate(t.Context(), l.admin)
		if err != nil {
			t.Fatal(err)
		}
		var st store.Stack
		var owner webhooks.Owner
		err = l.db.Read(t.Context(), func(tx *store.Tx) (err error) {
			if st, err = tx.StackByName("acme", "proj", "dev"); err != nil {
				return err
			}
			owner.Stack = st
			if owner.Org, err = tx.OrganizationByName("acme"); err == nil {
				p, err = p.On(tx, st)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		text := func(s string) *string { return &s }
		requests := map[string]func(ctx context.Context) error{
			"a deployment": func(ctx context.Context) error {
				_, err := l.service.Create(ctx, p, st, workflow.Request{Operation: workflow.OperationUpdate, Inherit: true}, "api")
				return err
			},
			"settings": func(ctx context.Context) error {
				_, err := l.service.PatchSettings(ctx, p, st, []byte(`{"agentPoolID":"`+l.pool+`"}`), "")
				return err
			},
			"a schedule": func(ctx context.Context) error {
				_, err := l.triggers.Create(ctx, p, st, triggers.Spec{Kind: store.CustomSchedule, Cron: "0 0 1 1 *", Request: &workflow.Request{Operation: workflow.OperationUpdate, Inherit: true}})
				return err
			},
			"a permission": func(ctx context.Context) error {
				return l.identity.SetCollaborator(ctx, st, "admin", store.AdminPermission)
			},
			"an owner": func(ctx context.Context) error {
				_, err := l.identity.SetOwner(ctx, p, st, "admin")
				return err
			},
			"a webhook": func(ctx context.Context) error {
				_, err := l.webhooks.Create(ctx, p, owner, webhooks.Change{DisplayName: text("x"), URL: text("https://example.com")})
				return err
			},
		}
		l.do("POST", "/api/stacks/acme/proj/dev/transfer", map[string]any{"toOrg": "rival"}).want(204, nil)
		for name, request := range requests {
			if err := request(t.Context()); fault.KindOf(err) != fault.KindConflict {
				t.Errorf("%s: %v, want a conflict", name, err)
			}
		}
		l.do("POST", "/api/stacks/rival/proj/dev/transfer", map[string]any{"toOrg": "acme"}).want(204, nil)
		for name, request := range requests {
			if err := request(t.Context()); err != nil {
				t.Errorf("%s, after the stack has returned: %v", name, err)
			}
		}
	})
}

// TestMovesOfMalformedStates renames and transfers stacks whose imported states have members of wrong
// types, which import accepts because the stock CLI never reads them there.
func TestMovesOfMalformedStates(t *testing.T) {
	l := newLab(t, storetest.SQLite(t), deployments.Options{})
	l.newOrganization("rival")
	boss := l.person("boss", "acme", "admin")
	l.administers("boss", "rival")
	const stack = "/api/stacks/acme/proj/dev"
	l.do("POST", "/api/stacks/acme/proj", map[string]string{"stackName": "dev"}).want(200, nil)
	for _, state := range []string{`"resources":[1]`, `"resources":[],"pending_operations":{"a":1}`, `"resources":[],"secrets_providers":[]`} {
		l.do("POST", stack+"/import", `{"version":3,"deployment":{`+state+`}}`).want(200, nil)
		l.do("POST", stack+"/rename", map[string]string{"newName": "prod"}).want(400, nil).says("malformed")
		l.send(call{Method: "POST", Path: stack + "/transfer", Body: map[string]any{"toOrg": "rival"}, Auth: boss}).want(400, nil).says("malformed")
	}
}
