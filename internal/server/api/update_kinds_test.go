package api_test

import "testing"

// TestUpdatesHaveAPathOfTheirKind sends all requests of an update of each kind to the path of that
// kind, instead of the path "update" that clients use for every kind.
func TestUpdatesHaveAPathOfTheirKind(t *testing.T) {
	f := newFixture(t, options{})
	path := f.stack("dev")
	for _, kind := range []string{"update", "refresh", "destroy", "preview"} {
		for _, journal := range []int{0, 1} {
			var made struct{ UpdateID string }
			f.do("POST", path+"/"+kind, program()).want(200, &made)
			u := update{f: f, path: path + "/" + kind + "/" + made.UpdateID}
			var started struct{ Token string }
			f.do("POST", u.path, map[string]any{"journalVersion": journal}).want(200, &started)
			u.token = started.Token
			u.send("POST", "/renew_lease", map[string]any{"duration": 300}).want(200, nil)
			suffix, body, status := "/checkpoint", any(state(1)), 204
			if journal == 1 {
				suffix, body = "/journalentries", entries(created(1, "a"))
			}
			if kind == "preview" {
				status = 404
			}
			u.send("PATCH", suffix, body).want(status, nil)
			u.send("POST", "/events", event(0)).want(200, nil)
			u.send("POST", "/events/batch", map[string]any{"events": []any{event(1), event(2)}}).want(200, nil)
			var page eventPage
			f.do("GET", u.path+"/events", nil).want(200, &page)
			if len(page.Events) != 3 {
				t.Errorf("%s has the events %+v, want 3", kind, page.Events)
			}
			f.do("GET", u.path, nil).want(200, nil).says(`"running"`)
			u.send("POST", "/complete", map[string]string{"status": "succeeded"}).want(204, nil)
			f.do("GET", u.path, nil).want(200, nil).says(`"succeeded"`)
		}
	}
}
