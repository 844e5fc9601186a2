package hooks_test

import (
	"net/http"
	"net/url"
	"slices"
	"testing"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

// stored is a webhook in the API.
type stored struct {
	Name, Format string
	Filters      []string
}

// TestSendFailures follows the links of failures to a form that only lacks the address of a chat.
func TestSendFailures(t *testing.T) {
	s := consoletest.New(t)
	token := s.AddUser("ada", "member")
	s.Stack("web", "prod")
	code := 1
	s.StartJob(s.Pool(), "web", "prod").Finish(protocol.ResultRequest{Status: workflow.StatusFailed, Reason: workflow.ReasonExitCode, ExitCode: &code})
	s.RunUpdate(consoletest.Update{Stack: "web/prod", Kind: "update", Result: "failed"})
	b, ada := s.SignIn(), s.SignInWith(token)
	const ofStack, ofOrg = "/acme/web/prod/settings/webhooks", "/acme/-/settings/webhooks"
	for page, form := range map[string]string{"/acme": ofOrg, "/acme/web/prod": ofStack, "/acme/web/prod/deployments/1": ofStack} {
		link := `href="` + form + `?send=failures#new"`
		if p := b.Get(page); !p.Contains(link, "Send failures to a chat") {
			t.Errorf("%s lacks the link %s", page, link)
		}
		if p := ada.Get(page); p.Status != http.StatusOK || p.Contains("Send failures") {
			t.Errorf("%s: status %d, or a member sees the link", page, p.Status)
		}
	}
	for _, list := range []string{ofStack, ofOrg} {
		for i, want := range []struct{ format, name string }{{"slack", "failures"}, {"ms_teams", "failures-2"}} {
			p := b.Get(list + "?send=failures")
			if !p.Contains(`name="send" value="failures"`, `value="`+want.name+`"`, `value="`+want.format+`"`, "update_failed destroy_failed refresh_failed deployment_failed") || p.Contains("<select") {
				t.Fatalf("%s: the form is %s", list, p.Body)
			}
			form := url.Values{"send": {"failures"}, "name": {want.name}, "format": {want.format}, "filters": {"update_failed deployment_failed"}, "url": {"ftp://x"}}
			if p := b.Post(list, form); p.Status != http.StatusUnprocessableEntity || !p.Contains(`aria-describedby="url-problem`, "Send to Slack", `value="ftp://x"`) {
				t.Errorf("%s: a wrong address: status %d: %s", list, p.Status, p.Body)
			}
			form.Set("url", "https://chat.example.com/x")
			if p := b.Post(list, form); p.Status != http.StatusSeeOther {
				t.Fatalf("%s: status %d: %s", list, p.Status, p.Body)
			}
			var hooks []stored
			s.API(http.MethodGet, map[string]string{ofStack: "/api/stacks/acme/web/prod/hooks", ofOrg: "/api/orgs/acme/hooks"}[list], nil, &hooks)
			if len(hooks) != i+1 || !slices.ContainsFunc(hooks, func(h stored) bool {
				return h.Name == want.name && h.Format == want.format && slices.Equal(h.Filters, []string{"update_failed", "deployment_failed"})
			}) {
				t.Errorf("%s: the webhooks are %+v", list, hooks)
			}
		}
	}
}
