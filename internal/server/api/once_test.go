package api_test

import (
	"strings"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/store"
)

// TestIdempotencyKeys repeats requests for new deployments, also after a restart of the server.
func TestIdempotencyKeys(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		l := newLab(t, db, deployments.Options{})
		path, other := l.deployable("dev"), l.deployable("other")
		const update, preview = `{"operation":"update"}`, `{"operation":"preview"}`
		create := func(l *lab, path, auth, key, body string) answer {
			t.Helper()
			c := call{Method: "POST", Path: path, Body: body, Auth: auth}
			if key != "" {
				c.Header = map[string]string{"Idempotency-Key": key}
			}
			return l.send(c)
		}
		made := func(a answer) (id string) {
			t.Helper()
			var d struct {
				ID      string
				Version int64
			}
			if a.want(202, &d); d.Version == 0 {
				t.Errorf("the deployment is %+v", d)
			}
			return d.ID
		}
		const key = "6f9619ff-8b86-d011-b42d-00cf4fc964ff"
		first := made(create(l, path, "", key, update))
		if again := made(create(l, path, "", key, update)); again != first {
			t.Errorf("the repetition made deployment %s, want %s", again, first)
		}
		create(l, path, "", key, preview).want(409, nil).says("Idempotency-Key")
		create(l, path, "", key, `{"operation":"no"}`).want(400, nil)
		create(l, path, "", strings.Repeat("k", 256), update).want(400, nil).says("Idempotency-Key")
		create(l, path, "", "two words", update).want(400, nil)
		create(l, path, "none", key, update).want(401, nil)

		// What differs are new deployments.
		ids := map[string]bool{first: true}
		token := "token " + l.fixture.token("/api/orgs/acme/tokens", map[string]any{"name": "ci", "admin": true})
		for what, a := range map[string]answer{
			"another key": create(l, path, "", "else", update), "another stack": create(l, other, "", key, update),
			"another caller": create(l, path, token, key, preview), "no key": create(l, path, "", "", update), "no key again": create(l, path, "", "", update),
		} {
			id := made(a)
			if ids[id] {
				t.Errorf("%s returned deployment %s again", what, id)
			}
			ids[id] = true
		}

		// A refused request does not use up its key.
		create(l, path, "", "later", `{"operation":"no"}`).want(400, nil)
		made(create(l, path, "", "later", update))

		restarted := newFixtureOn(t, db, options{restarted: true})
		restarted.admin = l.admin
		if again := made(create(&lab{fixture: restarted}, path, "", key, update)); again != first {
			t.Errorf("after a restart, the repetition made deployment %s, want %s", again, first)
		}
		l.do("DELETE", "/api/stacks/acme/proj/other", nil).want(204, nil)
	})
}
