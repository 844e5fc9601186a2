package api_test

import (
	"strings"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
)

// TestEnvironmentWebhooks makes the calls of pulumi env webhook.
func TestEnvironmentWebhooks(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixtureOn(t, db, options{})
		f.runWebhooks()
		env := f.environment("prod")
		url, got := receiver(t, "hush")
		body := map[string]any{
			"organizationName": "acme", "projectName": "app", "envName": "prod", "displayName": "First", "payloadUrl": url, "active": true,
			"groups": []string{"environments"}, "secret": "hush", "format": "raw",
		}
		var made struct {
			hook
			EnvName string
		}
		f.do("POST", env+"/hooks", body).want(201, &made)
		if made.EnvName != "prod" || made.ProjectName != "app" || made.StackName != "" || made.SecretCiphertext != digest("hush") {
			t.Errorf("created webhook %+v", made)
		}
		body["envName"] = "other"
		f.do("POST", env+"/hooks", body).want(400, nil).says("Environment name from request body doesn't match URL")
		f.do("POST", env+"/hooks", map[string]any{"displayName": "x", "payloadUrl": url, "groups": []string{"stacks"}}).want(400, nil)
		var ping delivery
		if f.do("POST", env+"/hooks/"+made.Name+"/ping", nil).want(200, &ping); ping.ResponseCode != 200 {
			t.Errorf("the ping is %+v", ping)
		}
		<-got
		f.send(call{Method: "PATCH", Path: env, Body: "a: {fn::secret: planted}\n", Auth: "token " + f.admin}).want(200, nil)
		first := <-got
		if first.kind != "environment_revision" || !strings.Contains(first.body, `"environmentName":"prod"`) || !strings.Contains(first.body, `"revision":2`) {
			t.Errorf("received %+v", first)
		}
		if strings.Contains(first.body, "planted") || strings.Contains(first.body, "stackName") {
			t.Errorf("the payload is %s", first.body)
		}
		var again delivery
		f.do("POST", env+"/hooks/"+made.Name+"/deliveries/"+first.id+"/redeliver", nil).want(200, &again)
		if second := <-got; again.Kind != first.kind || second.body != first.body || second.id == first.id {
			t.Errorf("redelivered %+v after %+v", second, first)
		}
		var list []delivery
		if f.do("GET", env+"/hooks/"+made.Name+"/deliveries", nil).want(200, &list); len(list) != 3 {
			t.Errorf("the webhook has %d deliveries", len(list))
		}
		other := f.environment("other")
		f.do("GET", other+"/hooks/"+made.Name, nil).want(404, nil)
		f.do("GET", "/api/orgs/acme/hooks/"+made.Name, nil).want(404, nil)
		f.do("DELETE", env+"/hooks/"+made.Name, nil).want(204, nil)
		f.do("GET", env+"/hooks", nil).want(200, nil).says("[]")
	})
}
