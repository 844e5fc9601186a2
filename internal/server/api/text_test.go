package api_test

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	"workflowagent/internal/server/deployments"
)

var pathParameter = regexp.MustCompile(`\{(\w+)\}`)

// TestTextThatIsNoText sends NUL and invalid UTF-8 wherever a client can send text. Every route
// must reject both, with either database.
func TestTextThatIsNoText(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		ours := l.tenant("acme", "token "+l.admin)
		handler, ok := l.server.Config.Handler.(chi.Routes)
		if !ok {
			t.Fatalf("the handler is a %T", l.server.Config.Handler)
		}
		tried := 0
		try := func(c call, as ...string) {
			t.Helper()
			for _, auth := range as {
				tried++
				c.Auth = auth
				if a := l.send(c); a.Status >= 500 && a.Status != http.StatusServiceUnavailable {
					t.Errorf("%s %s as %.20s: status %d, body %s", c.Method, c.Path, auth, a.Status, a.Body)
				}
			}
		}
		err := chi.Walk(handler, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
			plain := pathParameter.ReplaceAllStringFunc(route, func(p string) string { return ours.names[strings.Trim(p, "{}")] })
			as := authorizations(ours, route)
			for _, bad := range []string{"a%00b", "%ff"} {
				for _, p := range pathParameter.FindAllString(route, -1) {
					try(call{Method: method, Path: strings.Replace(pathParameter.ReplaceAllStringFunc(route, func(q string) string {
						if q == p {
							return q
						}
						return ours.names[strings.Trim(q, "{}")]
					}), p, bad, 1)}, as...)
				}
				query := url.Values{}
				for _, name := range []string{"organization", "project", "tagName", "tagValue", "continuationToken", "sort", "type", "output-type", "job", "step"} {
					query.Set(name, "x")
				}
				try(call{Method: method, Path: plain + "?" + strings.ReplaceAll(query.Encode(), "=x", "="+bad)}, as...)
			}
			return nil
		})
		if err != nil || tried < 500 {
			t.Errorf("%d calls, %v", tried, err)
		}
	})
}

// authorizations returns two Authorization headers: none, and the tenant's credential that the
// route accepts.
func authorizations(n tenant, route string) []string {
	who := "administrator"
	switch {
	case strings.HasPrefix(route, "/api/deployments/"):
		who = "agent"
	case strings.HasPrefix(route, "/api/workflow/"):
		who = "runner"
	case strings.HasSuffix(route, "/complete"), strings.HasSuffix(route, "/checkpoint"), strings.HasSuffix(route, "/journalentries"),
		strings.HasSuffix(route, "/events"), strings.HasSuffix(route, "/batch"), strings.HasSuffix(route, "/renew_lease"):
		who = "update"
	}
	return []string{"none", n.auth[who]}
}

// TestBodiesThatAreNoText sends NUL and invalid UTF-8 in members of bodies that are stored as text.
// Bodies that are stored as JSON or bytes may contain an escaped NUL, as do states and events of
// real programs.
func TestBodiesThatAreNoText(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		stack := l.stack("dev")
		for _, tt := range []struct{ method, path, body string }{
			{"POST", "/api/user/tokens", `{"description":"BAD"}`},
			{"POST", "/api/orgs/acme/tokens", `{"name":"BAD"}`},
			{"POST", "/api/orgs/acme/agent-pools", `{"name":"a","description":"BAD"}`},
			{"PATCH", "/api/orgs/acme/agent-pools/" + l.pool, `{"name":"BAD"}`},
			{"POST", stack + "/tags", `{"name":"BAD","value":"v"}`},
			{"POST", stack + "/tags", `{"name":"n","value":"BAD"}`},
			{"PATCH", stack + "/tags", `{"n":"BAD"}`},
			{"POST", stack + "/rename", `{"newName":"BAD"}`},
			{"POST", "/api/stacks/acme/proj", `{"stackName":"new","tags":{"n":"BAD"}}`},
			{"POST", "/api/stacks/acme/BADproj", `{"stackName":"new"}`},
			{"POST", "/api/orgs/acme/oidc/issuers", `{"name":"BAD","url":"https://issuer.example"}`},
			{"POST", stack + "/deployments", `{"operation":"update","agentPoolID":"BAD"}`},
			{"PUT", stack + "/deployments/settings", `{"agentPoolID":"BAD"}`},
			{"POST", "/api/oauth/token", `{"grant_type":"urn:ietf:params:oauth:grant-type:token-exchange","audience":"urn:pulumi:org:BAD","subject_token":"a.b.c"}`},
		} {
			for _, bad := range []string{`a\u0000b`, "a\x00b", "\xff", "\xed\xa0\x80"} {
				body := strings.ReplaceAll(tt.body, "BAD", bad)
				path := strings.ReplaceAll(tt.path, "BAD", "a%00b")
				if a := l.send(call{Method: tt.method, Path: path, Body: body}); a.Status != http.StatusBadRequest {
					t.Errorf("%s %s with %q: status %d, body %s, want 400", tt.method, tt.path, body, a.Status, a.Body)
				}
			}
		}
		l.do("POST", stack+"/tags", `{"name":"lone","value":"\ud800"}`).want(204, nil)
		l.do("POST", stack+"/tags", `{"name":"slash","value":"\\u0000"}`).want(204, nil)

		const odd = `"a\u0000b\ud800c"`
		l.do("POST", stack+"/import", `{"version":3,"deployment":{"manifest":{"time":"2024-01-01T00:00:00Z","magic":"","version":""},"resources":[{"urn":"urn:pulumi:dev::proj::pulumi:pulumi:Stack::proj-dev","custom":false,"type":"pulumi:pulumi:Stack","outputs":{"o":`+odd+`}}]}}`).want(200, nil)
		if a := l.do("GET", stack+"/export", nil).want(200, nil); !strings.Contains(string(a.Body), odd) {
			t.Errorf("the state came back as %s", a.Body)
		}
		u := l.fixture.start(stack, "update")
		u.send("POST", "/events/batch", `{"events":[{"sequence":0,"timestamp":1,"diagnosticEvent":{"message":`+odd+`}}]}`).want(200, nil)
		u.send("POST", "/events/batch", "{\"events\":[{\"sequence\":1,\"timestamp\":1,\"diagnosticEvent\":{\"message\":\"\xff\"}}]}").want(400, nil)
		if a := l.do("GET", u.path+"/events", nil).want(200, nil); !strings.Contains(string(a.Body), odd) {
			t.Errorf("the events came back as %s", a.Body)
		}
		journaled := l.fixture.startJournal(l.stack("journaled"), "update")
		for _, bad := range []string{"\xff", "\xed\xa0\x80", "a\x00b"} {
			resource := `{"urn":"urn:pulumi:dev::proj::a:b:C::r","type":"a:b:C","outputs":{"o":"` + bad + `"}}`
			l.do("POST", stack+"/import", `{"version":3,"deployment":{"resources":[`+resource+`]}}`).want(400, nil)
			u.send("PATCH", "/checkpoint", `{"version":3,"deployment":{"resources":[`+resource+`]}}`).want(400, nil)
			journaled.send("PATCH", "/journalentries", entries(`{"version":1,"kind":1,"sequenceID":1,"operationID":1,"state":`+resource+`}`)).want(400, nil)
		}
		if a := l.do("GET", stack+"/export", nil).want(200, nil); !strings.Contains(string(a.Body), odd) {
			t.Errorf("after refused states, the state is %s", a.Body)
		}
		p := program()
		p["config"] = map[string]any{"proj:k": map[string]any{"string": "a\x00b"}}
		l.do("POST", stack+"/preview", p).want(200, nil)
	})
}
