package api_test

import (
	"fmt"
	"slices"
	"testing"

	"workflowagent/internal/server/deployments"
	"workflowagent/internal/workflow"
)

type activityPage struct {
	Activity []struct {
		Deployment *struct {
			ID, Status string
			Updates    []struct{ UpdateID string }
		}
		Update *struct {
			UpdateID string
			Info     struct{ Kind string }
		}
	}
	ItemsPerPage, Total int
}

// ids returns the ids of the entries. The id of a deployment is followed by those of its updates.
func (p activityPage) ids() (ids []string) {
	for _, a := range p.Activity {
		if a.Update != nil {
			ids = append(ids, a.Update.UpdateID)
			continue
		}
		ids = append(ids, a.Deployment.ID)
		for _, u := range a.Deployment.Updates {
			ids = append(ids, "of it: "+u.UpdateID)
		}
	}
	return ids
}

func TestActivity(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		list := l.deployable("dev")
		const stack = "/api/stacks/acme/proj/dev"
		read := func(query string) (p activityPage) {
			t.Helper()
			l.do("GET", stack+"/activity"+query, nil).want(200, &p)
			return p
		}
		if p := read(""); len(p.Activity) != 0 || p.Total != 0 {
			t.Errorf("activity of a new stack = %+v", p)
		}
		var want []string // oldest first
		want = append(want, l.run(stack, "update", "a"), l.run(stack, "preview", "a"))
		for range 2 {
			id := l.deploy(list, "update")
			_, jc := l.start("agent")
			prog := program()
			prog["metadata"] = map[string]any{"message": "m", "environment": map[string]string{"ci.build.id": id}}
			var created struct{ UpdateID string }
			l.do("POST", stack+"/update", prog).want(200, &created)
			var started struct{ Token string }
			l.do("POST", stack+"/update/"+created.UpdateID, map[string]any{}).want(200, &started)
			u := update{f: l.fixture, path: stack + "/update/" + created.UpdateID, token: started.Token}
			u.send("POST", "/complete", map[string]any{"status": "succeeded"}).want(204, nil)
			l.end(jc, workflow.StatusSucceeded)
			want = append(want, "of it: "+created.UpdateID, id)
		}
		for range 21 { // more than are read at a time
			want = append(want, l.run(stack, "update", "b"))
		}
		slices.Reverse(want)
		if p := read(""); !slices.Equal(p.ids(), want) || p.Total != 25 || p.ItemsPerPage != 25 {
			t.Errorf("activity = %v of %d, want %v", p.ids(), p.Total, want)
		}
		var paged []string
		for page := 1; page <= 4; page++ {
			p := read(fmt.Sprintf("?page=%d&pageSize=8", page))
			if p.Total != 25 || p.ItemsPerPage != 8 || page < 4 && len(p.Activity) != 8 {
				t.Errorf("page %d has %d entries: %+v", page, len(p.Activity), p)
			}
			paged = append(paged, p.ids()...)
		}
		if !slices.Equal(paged, want) {
			t.Errorf("the pages contain %v, want %v", paged, want)
		}
		l.do("GET", stack+"/activity?page=x", nil).want(400, nil)
		l.do("GET", stack+"/activity?page=-1", nil).want(400, nil)
	})
}
