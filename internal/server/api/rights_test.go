package api_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/stacks/states"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// TestUpdatesOfTokens runs an update with an organization's or a team's token. The update loses its
// lease with the token's rights, but not when the token expires.
func TestUpdatesOfTokens(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixtureOn(t, db, options{})
		for i, tt := range []struct {
			name, kind string
			lose       func(f *fixture, stack, tokens, id string)
			status     int
		}{
			{"nothing happens", "team", func(*fixture, string, string, string) {}, 204},
			{"the token expires", "org", func(f *fixture, _, _, id string) { f.expire(id) }, 204},
			{"the organization's token is deleted", "org", func(f *fixture, _, tokens, id string) { f.do("DELETE", tokens+"/"+id, nil).want(204, nil) }, 403},
			{"the team's token is deleted", "team", func(f *fixture, _, tokens, id string) { f.do("DELETE", tokens+"/"+id, nil).want(204, nil) }, 403},
			{"the team is deleted", "team", func(f *fixture, _, tokens, _ string) {
				f.do("DELETE", strings.TrimSuffix(tokens, "/tokens"), nil).want(204, nil)
			}, 403},
			{"the team loses its permission", "team", func(f *fixture, stack, tokens, _ string) {
				f.grant(strings.TrimSuffix(tokens, "/tokens"), stack, 101)
			}, 403},
			{"members lose their permission", "org", func(f *fixture, _, _, _ string) {
				f.do("PATCH", "/api/orgs/acme", map[string]any{"setDefaultStackPermission": 101}).want(200, nil)
			}, 403},
		} {
			t.Run(tt.name, func(t *testing.T) {
				f := *f
				f.t = t
				name := fmt.Sprint("t", i)
				stack, tokens := f.stack(name), "/api/orgs/acme/tokens"
				f.do("PATCH", "/api/orgs/acme", map[string]any{"setDefaultStackPermission": 103}).want(200, nil)
				if tt.kind == "team" {
					f.do("POST", "/api/orgs/acme/teams/pulumi", map[string]any{"name": name}).want(201, nil)
					f.grant("/api/orgs/acme/teams/"+name, name, 102)
					tokens = "/api/orgs/acme/teams/" + name + "/tokens"
				}
				var token struct{ ID, TokenValue string }
				f.do("POST", tokens, map[string]any{"name": name}).want(200, &token)
				auth := "token " + token.TokenValue
				var created struct{ UpdateID string }
				f.send(call{Method: "POST", Path: stack + "/update", Body: program(), Auth: auth}).want(200, &created)
				var started struct{ Token string }
				run := stack + "/update/" + created.UpdateID
				f.send(call{Method: "POST", Path: run, Body: map[string]any{}, Auth: auth}).want(200, &started)
				tt.lose(&f, name, tokens, token.ID)
				if err := f.identity.DeleteExpired(t.Context()); err != nil {
					t.Fatal(err)
				}
				f.send(call{Method: "PATCH", Path: run + "/checkpoint", Body: state(1), Auth: "update-token " + started.Token}).want(tt.status, nil)
			})
		}
	})
}

// TestRightsAreLostDuringAnImport imports a state as a member who was removed after the server had
// checked the member's rights.
func TestRightsAreLostDuringAnImport(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixtureOn(t, db, options{})
		ann := f.person("ann", "acme", "member")
		f.stack("dev")
		p, err := f.identity.Authenticate(t.Context(), strings.TrimPrefix(ann, "token "))
		if err != nil {
			t.Fatal(err)
		}
		st, err := store.Read(t.Context(), db, func(tx *store.Tx) (store.Stack, error) { return tx.StackByName("acme", "proj", "dev") })
		if err != nil {
			t.Fatal(err)
		}
		load := func(want fault.Kind) {
			t.Helper()
			state := &states.State{Schema: 3, Deployment: []byte(`{"manifest":{},"resources":[]}`)}
			if _, err := f.stacks.Import(t.Context(), p, st, state); fault.KindOf(err) != want {
				t.Errorf("the import ends with %v, want the kind %q", err, want)
			}
		}
		load(fault.KindOf(nil))
		f.do("DELETE", "/api/orgs/acme/members/ann", nil).want(204, nil)
		load(fault.KindForbidden)
	})
}

// grant sets a team's permission on a stack.
func (f *fixture) grant(team, stack string, permission int) {
	f.t.Helper()
	body := map[string]any{"projectName": "proj", "stackName": stack, "permission": permission}
	f.do("PATCH", team, map[string]any{"addStackPermission": body}).want(204, nil)
}

// expire makes a token expire two days ago.
func (f *fixture) expire(id string) {
	f.t.Helper()
	err := f.db.Write(f.t.Context(), scope.Server(), func(tx *store.Tx) error {
		_, err := tx.Exec("UPDATE tokens SET expires_at = $2 WHERE id = $1", id, tx.Now().Add(-48*time.Hour))
		return err
	})
	if err != nil {
		f.t.Fatal(err)
	}
}
