package browser

import (
	"net/http"
	"strings"
	"testing"

	"workflowagent/internal/dev/consoletest"
)

// configured returns a server with a stack whose settings contain hostile values, and a tab of an administrator.
func configured(t *testing.T) *tab {
	t.Helper()
	s := consoletest.New(t)
	s.Stack("payments", "prod")
	type object = map[string]any
	const api = "/api/stacks/acme/payments/prod"
	s.API(http.MethodPost, "/api/orgs/acme/agent-pools", object{"name": "production"}, nil)
	s.API(http.MethodPost, api+"/deployments/settings", object{
		"sourceContext": object{"git": object{"repoUrl": "https://github.com/acme/payments.git", "branch": "refs/heads/main", "repoDir": "infra"}},
		"operationContext": object{"environmentVariables": object{
			"AWS_REGION": "eu-west-1", "NODE_OPTIONS": "--max-old-space-size=4096 " + hostile, "PULUMI_CONFIG_PASSPHRASE": object{"secret": "hunter2"},
		}},
	}, nil)
	s.API(http.MethodPost, api+"/deployments/drift/schedules", object{"scheduleCron": "0 3 * * *"}, nil)
	s.API(http.MethodPost, api+"/hooks", object{"name": "chat", "displayName": hostile, "payloadUrl": "https://hooks.example.com/" + strings.Repeat("x", 80), "active": true, "format": "slack"}, nil)
	tb := newTab(t, s.URL)
	signIn(tb, s.Token)
	return tb
}

// TestStackSettings changes the settings of a stack: the bar says what has changed, only then, the review leads back to
// the form with its values, and what is stored can be deployed at once.
func TestStackSettings(t *testing.T) {
	tb := configured(t)
	const settings = "/acme/payments/prod/settings"
	tb.ignore("422")
	tb.open(settings)
	tb.wait("the bar is hidden", loaded+"document.querySelector('.save').hidden")
	tb.fill("#branch", "release")
	tb.wait("the bar names the field", "!document.querySelector('.save').hidden && document.querySelector('.save').innerText.replace(/\\s+/g, ' ').startsWith('1 change Branch')")
	tb.fill("#branch", "main")
	tb.wait("the old value is no change", "document.querySelector('.save').hidden")
	tb.fill("#commands", "make")
	tb.wait("the bar names the commands", "!document.querySelector('.save').hidden && document.querySelector('.save').innerText.includes('Commands before the operation')")
	tb.open(settings)
	tb.fill("#name", "CHARGE_API_TOKEN")
	tb.fill("#value", "tok-123")
	tb.wait("a new variable is one change", "document.querySelector('.save').innerText.replace(/\\s+/g, ' ').startsWith('1 change New variable')")
	tb.fill("#branch", "release")
	tb.fill("#name", "CHARGE_API_TOKEN")
	tb.fill("#value", "tok-123")
	tb.click("#variables .addv .btn")
	tb.wait("the variable is in the form", loaded+"location.hash === '#variables' && document.querySelector('.secrets').innerText.includes('CHARGE_API_TOKEN')")
	tb.fill("#folder", "../infra")
	tb.click(".save .primary")
	tb.wait("the wrong field is marked", loaded+"document.querySelector('#folder[aria-invalid]') && document.querySelector('.save').innerText.includes('1 to correct') && document.querySelector('#branch').value === 'release'")
	tb.axe("wrong")
	tb.shot("wrong")
	tb.fill("#folder", "app")
	tb.click(".save .primary")
	tb.wait("the review is open", loaded+"document.querySelector('dialog[open]')?.contains(document.activeElement) && document.activeElement.innerText === 'Save the settings'")
	tb.axe("review")
	tb.shot("review")
	tb.click("dialog .btn:not(.primary)")
	tb.wait("the form is back", loaded+"!document.querySelector('dialog') && document.querySelector('#branch').value === 'release' && document.querySelector('.save').innerText.startsWith('3 changes')")
	tb.click(".save .primary")
	tb.wait("the review is open again", loaded+"document.querySelector('dialog[open]')")
	tb.click("dialog .primary")
	tb.wait("the page offers to deploy", loaded+"document.activeElement.innerText === 'Deploy now' && document.querySelector('.save').hidden && document.querySelector('#folder').value === 'app'")
	tb.leaves(".toast")
	tb.check()
}
