package api_test

import (
	"encoding/hex"
	"net/http"
	"net/url"
	"strings"
	"testing"

	signing "workflowagent/internal/server/vcs/forges/hook"
)

// TestSignedForms sends deliveries as forms, which is the default of GitHub's webhooks. The forge signs
// the form, not the JSON in it.
func TestSignedForms(t *testing.T) {
	f := newFixture(t, options{})
	var made integration
	f.do("POST", integrationsPath+"/github", map[string]any{"name": "hub", "accessToken": "token", "owner": "acme"}).want(http.StatusCreated, &made)
	f.do("POST", "/api/stacks/acme/proj", map[string]any{"stackName": "dev"}).want(http.StatusOK, nil)
	const payload = `{"action":"renamed","repository":{"id":7,"full_name":"acme/app"},"sender":{"id":1,"login":"ada"},"zen":"a + b & c=d% é"}`
	sent := 0
	send := func(kind, body, signed string) answer {
		t.Helper()
		sent++
		return f.send(call{Method: "POST", Path: "/workflow/github/" + made.ID, Body: body, Auth: "none", Header: map[string]string{
			"X-GitHub-Event": kind, "X-GitHub-Delivery": strings.Repeat("d", sent), "Content-Type": "application/x-www-form-urlencoded",
			"X-Hub-Signature-256": "sha256=" + hex.EncodeToString(signing.MAC([]byte(made.WebhookSecret), []byte(signed))),
		}})
	}
	form := url.Values{"payload": {payload}}.Encode()
	send("installation", form, form).want(http.StatusAccepted, nil).says(`"accepted":1`)
	send("ping", form, form).want(http.StatusAccepted, nil).says(`"ignored":"test-delivery"`)
	send("installation", form, payload).want(http.StatusUnauthorized, nil)
	send("installation", form+"&x=y", form).want(http.StatusUnauthorized, nil)
	send("installation", "a=b", "a=b").want(http.StatusBadRequest, nil).says("content type of the webhook to application/json")
	send("star", "a=b", "a=b").want(http.StatusAccepted, nil).says(`"ignored":"event-not-supported"`)
	var got struct{ Events []vcsEvent }
	f.do("GET", integrationsPath+"/github/"+made.ID+"/events", nil).want(http.StatusOK, &got)
	if len(got.Events) != 1 || got.Events[0].Kind != "access" {
		t.Errorf("events %+v", got.Events)
	}
}
