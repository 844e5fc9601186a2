package api_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// listing is a list of the API.
type listing struct {
	path string
	list string // member with the elements; "" if the response is the list
	key  string // member that identifies an element, such as "user.name" or "id|name"; "" if the elements are strings
}

// elements returns the keys of the elements in a response, and the members of the response.
func (l listing) elements(t *testing.T, body []byte) (keys []string, members map[string]any) {
	t.Helper()
	list := json.RawMessage(body)
	if l.list != "" {
		var object map[string]json.RawMessage
		if err := json.Unmarshal(body, &object); err != nil {
			t.Fatal(err)
		}
		list = object[l.list]
		if err := json.Unmarshal(body, &members); err != nil {
			t.Fatal(err)
		}
	}
	var all []any
	if err := json.Unmarshal(list, &all); err != nil || all == nil {
		t.Fatalf("%s: %q is not a list: %v, %s", l.path, l.list, err, body)
	}
	for _, element := range all {
		keys = append(keys, l.keyOf(t, element))
	}
	return keys, members
}

func (l listing) keyOf(t *testing.T, element any) string {
	t.Helper()
	if l.key == "" {
		return fmt.Sprint(element)
	}
	for path := range strings.SplitSeq(l.key, "|") {
		at := element
		for name := range strings.SplitSeq(path, ".") {
			object, _ := at.(map[string]any)
			at = object[name]
		}
		if at != nil {
			return fmt.Sprint(at)
		}
	}
	t.Fatalf("%s: an element has no %s: %v", l.path, l.key, element)
	return ""
}

func (l listing) with(query string) string {
	if strings.Contains(l.path, "?") {
		return l.path + "&" + query
	}
	return l.path + "?" + query
}

// distinct fails the test unless the list contains n elements, each once.
func (l listing) distinct(t *testing.T, got []string, n int) {
	t.Helper()
	sorted := slices.Sorted(slices.Values(got))
	if len(got) != n || len(slices.Compact(sorted)) != n {
		t.Errorf("%s lists %d elements, want %d different ones: %v", l.path, len(got), n, got)
	}
}

const (
	pagedElements = 7  // of each list that has pages
	wholeElements = 30 // of each list that has no pages
)

func TestListsHavePages(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		dev, drifting := l.deployable("dev"), l.deployable("drifting")
		history := l.stack("history")
		for i := range pagedElements {
			l.deploy(dev, "update")
			l.deploy(drifting, "detect-drift")
			l.run(history, "update", fmt.Sprint(i))
		}
		for range pagedElements {
			l.run(history, "preview", "p")
		}
		for _, tt := range []struct {
			listing
			total int
			bad   []string
		}{
			{listing{"/api/orgs/acme/deployments", "deployments", "id"}, 2 * pagedElements, []string{"page=0", "pageSize=0", "pageSize=101"}},
			{listing{"/api/orgs/acme/deployments?asc=true", "deployments", "id"}, 2 * pagedElements, nil},
			{listing{dev, "deployments", "id"}, pagedElements, []string{"page=0", "pageSize=0", "pageSize=101"}},
			{listing{strings.TrimSuffix(drifting, "/deployments") + "/drift/runs", "driftRuns", "id"}, pagedElements, []string{"page=0", "pageSize=101"}},
			{listing{strings.TrimSuffix(dev, "/deployments") + "/activity", "activity", "deployment.id|update.updateID"}, pagedElements, nil},
			{listing{history + "/activity", "activity", "deployment.id|update.updateID"}, 2 * pagedElements, nil},
			{listing{history + "/updates", "updates", "version"}, pagedElements, nil},
			{listing{history + "/updates?output-type=service", "updates", "updateID"}, pagedElements, nil},
			{listing{history + "/updates/latest/previews", "updates", "updateID"}, pagedElements, nil},
			{listing{history + "/updates/7/previews?asc=true", "updates", "updateID"}, pagedElements, nil},
		} {
			read := func(size int) (got []string) {
				for page := 1; ; page++ {
					a := l.do("GET", tt.with(fmt.Sprintf("page=%d&pageSize=%d", page, size)), nil).want(200, nil)
					keys, members := tt.elements(t, a.Body)
					// The short form of the history, which stock clients read, has no total.
					total, counted := members["total"]
					if counted == strings.HasSuffix(tt.path, "/updates") || counted && (total != float64(tt.total) || members["itemsPerPage"] != float64(size)) {
						t.Errorf("%s: page %d is %s, want %d elements in total", tt.path, page, a.Body, tt.total)
					}
					if len(keys) == 0 {
						return got
					}
					if want := min(size, tt.total-len(got)); len(keys) != want {
						t.Errorf("%s: page %d has %d elements, want %d", tt.path, page, len(keys), want)
						return got
					}
					got = append(got, keys...)
				}
			}
			got := read(3)
			tt.distinct(t, got, tt.total)
			if again := read(5); !slices.Equal(got, again) {
				t.Errorf("%s lists %v with another size of pages, before %v", tt.path, again, got)
			}
			for _, query := range append([]string{"page=x", "page=-1", "pageSize=x", "pageSize=-1", "page=99999999999999999999"}, tt.bad...) {
				l.do("GET", tt.with(query), nil).want(400, nil)
			}
		}
	})
}

func TestListsContinue(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		l.team("core")
		stacks := listing{"/api/user/stacks", "stacks", "stackName"}
		personal := listing{"/api/user/tokens", "tokens", "id"}
		org, team := listing{"/api/orgs/acme/tokens", "tokens", "id"}, listing{"/api/orgs/acme/teams/core/tokens", "tokens", "id"}
		total := map[listing]int{}
		for _, list := range []listing{personal, org, team} { // there may be tokens of the fixture
			keys, _ := list.elements(t, l.do("GET", list.path, nil).want(200, nil).Body)
			total[list] = len(keys) + pagedElements
		}
		total[stacks] = pagedElements
		for i := range pagedElements {
			l.stack(fmt.Sprintf("s%d", i))
			for _, list := range []listing{personal, org, team} {
				l.do("POST", list.path, map[string]any{"name": fmt.Sprint("t", i), "description": "d", "expires": 0}).want(200, nil)
			}
		}
		for list, n := range total {
			read := func(size int) (got []string) {
				for token := ""; ; {
					keys, members := list.elements(t, l.do("GET", list.with(fmt.Sprintf("maxResults=%d&continuationToken=%s", size, token)), nil).want(200, nil).Body)
					got = append(got, keys...)
					next, _ := members["continuationToken"].(string)
					if next == "" {
						return got
					}
					if len(keys) != size || len(got) > n {
						t.Errorf("%s: a page that is not the last has %d elements, want %d", list.path, len(keys), size)
						return got
					}
					token = next
				}
			}
			got := read(3)
			list.distinct(t, got, n)
			if again := read(n); !slices.Equal(got, again) {
				t.Errorf("%s lists %v on one page, before %v", list.path, again, got)
			}
			for _, query := range []string{"maxResults=0", "maxResults=-1", "maxResults=x", "continuationToken=%25"} {
				l.do("GET", list.with(query), nil).want(400, nil)
			}
		}
	})
}

func (f *fixture) team(name string) {
	f.t.Helper()
	f.do("POST", "/api/orgs/acme/teams/pulumi", map[string]any{"name": name}).want(201, nil)
}

// TestListsWithoutPagesAreWhole reads the lists that the public API describes without parameters for
// pages.
func TestListsWithoutPagesAreWhole(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		const org, stack = "/api/orgs/acme", "/api/stacks/acme/proj/dev"
		path := l.deployable("dev")
		l.team("core")
		l.person("ann", "acme", "member")
		pool, poolToken := l.newPool("busy")
		deployment := l.deploy(path, "preview")
		l.start("agent")
		var schedule struct{ ID string }
		var names []string
		for i := range wholeElements {
			name := fmt.Sprintf("n%02d", i)
			names = append(names, "acme/proj/"+name)
			l.stack(name)
			l.newPool(name)
			l.team(name)
			l.person(name, "acme", "member")
			hook := map[string]any{"name": name, "displayName": name, "payloadUrl": "https://example.com"}
			l.do("POST", org+"/hooks", hook).want(201, nil)
			l.do("POST", stack+"/hooks", hook).want(201, nil)
			l.do("POST", path+"/schedules", `{"scheduleCron":"0 0 1 1 *","request":{"operation":"update"}}`).want(200, &schedule)
			l.do("PUT", stack+"/collaborators/"+name, map[string]any{"permission": 101}).want(204, nil)
			l.do("PATCH", "/api/console/stacks/acme/proj/dev/teams/"+name, map[string]any{"permissions": 101}).want(204, nil)
			l.do("PATCH", org+"/teams/"+name, map[string]any{"memberAction": "add", "member": "ann"}).want(204, nil)
			l.do("PATCH", org+"/teams/core", map[string]any{"memberAction": "add", "member": name}).want(204, nil)
			l.do("PATCH", "/api/console/stacks/acme/proj/"+name+"/teams/core", map[string]any{"permissions": 101}).want(204, nil)
			if _, err := l.client.Poll(t.Context(), poolToken, l.request(name, 0)); err != nil {
				t.Fatal(err)
			}
			l.linkedUpdate(stack, deployment)
		}
		l.do("POST", stack+"/import", referring(names...)).want(200, nil)
		err := l.db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			o, err := tx.OrganizationByName("acme")
			for i := 0; err == nil && i < wholeElements; i++ {
				at := tx.Now()
				if err = tx.InsertOIDCIssuer(store.OIDCIssuer{
					ID: identity.NewID(), OrgID: o.ID, Name: fmt.Sprint(i), URL: fmt.Sprintf("https://%d.test", i), Issuer: fmt.Sprintf("https://%d.test", i),
					Thumbprints: []string{}, CreatedAt: at, ModifiedAt: at,
				}); err != nil {
					break
				}
				err = tx.InsertScheduleEvent(store.ScheduleEvent{
					ID: identity.NewID(), ScheduleID: schedule.ID, DueAt: at.AddDate(0, 0, -i), HappenedAt: at, Result: store.ScheduleFailed, Message: "m",
				})
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			listing
			more int // elements in addition to wholeElements
		}{
			{listing{org + "/agent-pools", "agentPools", "id"}, 2},
			{listing{org + "/agent-pools/" + pool, "agents", "id"}, 0},
			{listing{org + "/hooks", "", "name"}, 0},
			{listing{org + "/members", "members", "user.githubLogin"}, 2},
			{listing{org + "/members/ann/teams", "teams", ""}, 0},
			{listing{org + "/oidc/issuers", "oidcIssuers", "id"}, 0},
			{listing{org + "/teams", "teams", "name"}, 1},
			{listing{org + "/teams/core", "members", "githubLogin"}, 0},
			{listing{org + "/teams/core", "stacks", "stackName"}, 0},
			{listing{stack + "/hooks", "", "name"}, 0},
			{listing{stack + "/collaborators", "users", "user.githubLogin"}, 0},
			{listing{stack + "/teams", "teams", "name"}, 0},
			{listing{stack + "/resources/latest", "resources", "resource.urn"}, 0},
			{listing{stack + "/resources/1", "resources", "resource.urn"}, 0},
			{listing{stack + "/upstreamreferences", "referencedStacks", "name"}, 0},
			{listing{stack + "/activity", "activity", "deployment.id|update.updateID"}, 2 - wholeElements},
			{listing{path + "/schedules", "schedules", "id"}, 0},
			{listing{path + "/schedules/" + schedule.ID + "/history", "scheduleHistoryEvents", "id"}, 0},
			{listing{path + "/" + deployment + "/updates", "", "updateID"}, 0},
		} {
			got, _ := tt.elements(t, l.do("GET", tt.path, nil).want(200, nil).Body)
			tt.distinct(t, got, wholeElements+tt.more)
			if again, _ := tt.elements(t, l.do("GET", tt.path, nil).want(200, nil).Body); !slices.Equal(got, again) {
				t.Errorf("%s lists %v, before %v", tt.path, again, got)
			}
		}
	})
}

// linkedUpdate runs a preview of a deployment to its end.
func (l *lab) linkedUpdate(stack, deployment string) {
	l.t.Helper()
	prog := program()
	prog["metadata"] = map[string]any{"message": "m", "environment": map[string]string{"ci.build.id": deployment}}
	var made struct{ UpdateID string }
	l.do("POST", stack+"/preview", prog).want(200, &made)
	u := update{f: l.fixture, path: stack + "/preview/" + made.UpdateID}
	var started struct{ Token string }
	l.do("POST", u.path, map[string]any{}).want(200, &started)
	u.token = started.Token
	u.send("POST", "/complete", map[string]any{"status": "succeeded"}).want(204, nil)
}
