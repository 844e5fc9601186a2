package api_test

import (
	"fmt"
	"slices"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
)

type updatePage struct {
	Updates []struct {
		UpdateID string
		Version  int
	}
	ItemsPerPage, Total int
}

func (p updatePage) ids() (ids []string) {
	for _, u := range p.Updates {
		ids = append(ids, u.UpdateID)
	}
	return ids
}

// run runs an update of a commit to its end, and returns its id.
func (f *fixture) run(stack, kind, commit string) string {
	f.t.Helper()
	prog := program()
	prog["metadata"] = map[string]any{"message": "m", "environment": map[string]string{"git.head": commit}}
	var created struct{ UpdateID string }
	f.do("POST", stack+"/"+kind, prog).want(200, &created)
	u := update{f: f, path: stack + "/update/" + created.UpdateID}
	var started struct{ Token string }
	f.do("POST", u.path, map[string]any{}).want(200, &started)
	u.token = started.Token
	u.send("POST", "/complete", map[string]any{"status": "succeeded"}).want(204, nil)
	return created.UpdateID
}

func TestPreviewsAndTimeline(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixtureOn(t, db, options{})
		path := f.stack("dev")
		f.do("GET", path+"/updates/latest/timeline", nil).want(404, nil)
		first := f.run(path, "update", "a")
		var at1 []string
		for i := range 5 {
			at1 = append(at1, f.run(path, "preview", []string{"b", "c"}[i%2]))
		}
		second := f.run(path, "update", "b")
		at2 := f.run(path, "preview", "b")

		list := func(query string) updatePage {
			t.Helper()
			var p updatePage
			f.do("GET", path+"/updates/"+query, nil).want(200, &p)
			return p
		}
		if got := list("1/previews?asc=true"); !slices.Equal(got.ids(), at1) || got.Total != 5 || got.ItemsPerPage != 5 {
			t.Errorf("previews of version 1 = %+v, want %v", got, at1)
		}
		var pages []string
		for page := 1; page <= 3; page++ {
			got := list(fmt.Sprintf("1/previews?pageSize=2&page=%d", page))
			if got.Total != 5 || got.ItemsPerPage != 2 {
				t.Errorf("page %d = %+v", page, got)
			}
			pages = append(pages, got.ids()...)
		}
		slices.Reverse(pages)
		if !slices.Equal(pages, at1) {
			t.Errorf("the pages contain %v, want %v", pages, at1)
		}
		if got := list("latest/previews").ids(); !slices.Equal(got, []string{at2}) {
			t.Errorf("previews of the current version = %v, want %s", got, at2)
		}
		f.do("GET", path+"/updates/3/previews", nil).want(404, nil)
		f.do("GET", path+"/updates/x/previews", nil).want(400, nil)
		f.do("GET", path+"/updates/1/previews?page=-1", nil).want(400, nil)

		var line struct {
			Update                         struct{ UpdateID string }
			CollatedUpdateEvents, Previews []struct{ UpdateID string }
		}
		for _, at := range []string{"2", "latest"} {
			f.do("GET", path+"/updates/"+at+"/timeline", nil).want(200, &line)
			if line.Update.UpdateID != second || len(line.CollatedUpdateEvents) != 3 || len(line.Previews) != 2 ||
				line.CollatedUpdateEvents[0].UpdateID != at1[4] || line.Previews[0].UpdateID != at1[3] {
				t.Errorf("timeline of %s = %+v", at, line)
			}
		}
		f.do("GET", path+"/updates/1/timeline", nil).want(200, &line)
		if line.Update.UpdateID != first || len(line.CollatedUpdateEvents)+len(line.Previews) != 0 {
			t.Errorf("timeline of version 1 = %+v", line)
		}
		f.do("GET", path+"/updates/9/timeline", nil).want(404, nil)

		f.do("GET", path+"/previews/"+at2, nil).want(200, nil)
		f.do("GET", path+"/previews/"+at2+"/summary", nil).want(200, nil).says(`"result":"succeeded"`)
		f.do("GET", path+"/previews/"+second+"/summary", nil).want(404, nil).says("is not a preview")
	})
}
