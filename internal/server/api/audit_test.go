package api_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
)

type auditPage struct {
	Events []struct {
		Timestamp                                        int64
		SourceIP, Event, Description, ActorName, TokenID string
	} `json:"auditLogEvents"`
	ContinuationToken string
}

// TestAuditLog makes changes and reads their entries: newest first, with actor and address, without
// secrets, and none for a change that was refused.
func TestAuditLog(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixtureOn(t, db, options{})
		ann := f.person("ann", "", "")
		const log = "/api/orgs/acme/auditlogs/v2"
		var before auditPage
		f.do("GET", log, nil).want(200, &before)

		f.do("POST", "/api/orgs/acme/members/ann", map[string]string{"role": "member"}).want(200, nil)
		f.do("POST", "/api/stacks/acme/proj", map[string]string{"stackName": "dev"}).want(200, nil)
		f.do("PUT", "/api/stacks/acme/proj/dev/deployments/settings", map[string]any{
			"operationContext": map[string]any{"environmentVariables": map[string]any{"KEY": map[string]string{"secret": "hush-hush"}}},
		}).want(200, nil)
		f.send(call{Method: "POST", Path: "/api/orgs/acme/members/admin", Body: map[string]string{"role": "member"}, Auth: ann}).want(403, nil)

		var page auditPage
		body := f.do("GET", log, nil).want(200, &page)
		made := page.Events[:len(page.Events)-len(before.Events)]
		var events []string
		for _, e := range made {
			events = append(events, e.Event)
			if e.ActorName != "admin" || e.SourceIP != "127.0.0.1" || e.Timestamp == 0 || e.TokenID == "" {
				t.Errorf("the entry %+v does not say who made the change, when and from where", e)
			}
		}
		if got, want := strings.Join(events, " "), "settings.changed stack.created member.added"; got != want {
			t.Errorf("entries %q, want %q", got, want)
		}
		if strings.Contains(string(body.Body), "hush") {
			t.Errorf("the log contains a secret: %s", body.Body)
		}

		f.do("GET", log+"?eventFilter=stack.created", nil).want(200, &page)
		if len(page.Events) != 1 {
			t.Errorf("the filter selects %d entries, want 1", len(page.Events))
		}
		f.send(call{Method: "GET", Path: log, Auth: ann}).want(403, nil)
		f.do("GET", log+"?continuationToken="+url.QueryEscape("x y"), nil).want(400, nil)
		f.do("GET", "/api/orgs/acme/auditlogs/export?format=json", nil).want(200, nil).says("stack.created")
		csv := string(f.do("GET", log+"/export?format=csv", nil).want(200, nil).Body)
		if lines := strings.Count(csv, "\n"); lines != len(before.Events)+len(made)+1 {
			t.Errorf("the export has %d lines:\n%s", lines, csv)
		}
	})
}

// TestAuditLogPages reads more entries than a page has.
func TestAuditLogPages(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixtureOn(t, db, options{})
		f.do("POST", "/api/stacks/acme/proj", map[string]string{"stackName": "dev"}).want(200, nil)
		const changes = 130
		for i := range changes {
			f.do("PATCH", "/api/stacks/acme/proj/dev/tags", map[string]string{"a": fmt.Sprint(i)}).want(204, nil)
		}
		total, next := 0, ""
		for pages := 0; pages == 0 || next != ""; pages++ {
			var page auditPage
			f.do("GET", "/api/orgs/acme/auditlogs?eventFilter=stack.tags-changed&continuationToken="+url.QueryEscape(next), nil).want(200, &page)
			total += len(page.Events)
			if next = page.ContinuationToken; pages > 3 {
				t.Fatal("the pages do not end")
			}
		}
		if total != changes {
			t.Errorf("%d entries, want %d", total, changes)
		}
	})
}
