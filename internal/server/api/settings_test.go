package api_test

import (
	"encoding/json"
	"strings"
	"testing"

	"workflowagent/internal/server/deployments"
)

func TestSettingsLife(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		path := l.stack("dev") + "/deployments/settings"
		l.do("GET", path, nil).want(404, nil)
		l.do("PUT", path, `{"agentPoolID":"`+l.pool+`","future":1,
			"sourceContext":{"Git":{"RepoURL":"https://example.com/r.git","branch":"main","gitAuth":{"accessToken":{"secret":"hunter2"}}}},
			"operationContext":{"environmentVariables":{"A":"plain","B":{"secret":"hunter2"}}},
			"executorContext":{"executorImage":{"reference":"img:1"}}}`).want(200, nil)
		var got struct {
			AgentPoolID   string
			SourceContext struct {
				Git struct{ RepoURL, Branch string }
			}
			OperationContext struct{ EnvironmentVariables map[string]any }
			ExecutorContext  struct{ ExecutorImage string }
			Version          int
		}
		a := l.do("GET", path, nil).want(200, &got)
		if strings.Contains(string(a.Body), "hunter2") {
			t.Errorf("settings show a secret: %s", a.Body)
		}
		if got.ExecutorContext.ExecutorImage != "img:1" || got.SourceContext.Git.Branch != "main" || got.Version != 1 {
			t.Errorf("settings = %+v", got)
		}
		b, _ := got.OperationContext.EnvironmentVariables["B"].(map[string]any)
		if b["ciphertext"] == nil || len(b) != 1 {
			t.Errorf("a secret variable is returned as %v", b)
		}
		// A client that writes back the settings that it has read changes nothing.
		var whole map[string]any
		if err := json.Unmarshal(a.Body, &whole); err != nil {
			t.Fatal(err)
		}
		l.do("PUT", path, whole).want(200, nil)

		l.do("POST", path, `{"operationContext":{"environmentVariables":{"A":null}},"agentPoolID":null}`).want(200, nil)
		a = l.do("GET", path, nil).want(200, nil)
		if strings.Contains(string(a.Body), "agentPoolID") || strings.Contains(string(a.Body), `"A"`) {
			t.Errorf("null did not remove: %s", a.Body)
		}
		l.do("DELETE", path, nil).want(200, nil)
		l.do("GET", path, nil).want(404, nil)
		l.do("POST", path, `{"tag":"x"}`).want(200, nil) // creates

		// A ciphertext is valid only in the settings of its stack.
		var sealed struct{ Ciphertext string }
		l.do("POST", path+"/encrypt", `{"secret":"hunter2"}`).want(200, &sealed)
		l.do("POST", path+"/encrypt", `{"secret":""}`).want(400, nil).says("Invalid empty value")
		patch := `{"operationContext":{"environmentVariables":{"C":{"ciphertext":"` + sealed.Ciphertext + `"}}}}`
		l.do("POST", path, patch).want(200, nil)
		other := l.stack("other")
		l.do("POST", other+"/deployments/settings", patch).want(400, nil).says("ciphertext")
		l.do("POST", strings.TrimSuffix(path, "/deployments/settings")+"/decrypt", `{"ciphertext":"`+sealed.Ciphertext+`"}`).want(400, nil)
	})
}

// TestMisspelledMembers sends members that do not exist. They are no errors, because clients send those
// of other versions, but the answers name them until the settings change again.
func TestMisspelledMembers(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		stack := l.stack("dev")
		path := stack + "/deployments/settings"
		warned := func(a answer, texts ...string) {
			t.Helper()
			var got struct{ Warnings []string }
			if err := json.Unmarshal(a.Body, &got); err != nil {
				t.Fatal(err)
			}
			if len(got.Warnings) != len(texts) {
				t.Fatalf("the warnings are %q, want %q", got.Warnings, texts)
			}
			for i, text := range texts {
				if !strings.Contains(got.Warnings[i], text) {
					t.Errorf("the warnings are %q, want %q", got.Warnings, texts)
				}
			}
		}
		body := `{"executorContext":{"executorImage":{"image":"a/b"}},"agentPoolID":"` + l.pool + `","sourceContext":{"git":{"repoUrl":"https://example.com/a/b.git","brunch":"main","branch":"main"}}}`
		for _, method := range []string{"PUT", "POST"} {
			warned(l.do(method, path, body).want(200, nil), `"executorContext.executorImage.image"`, `"sourceContext.git.brunch"`)
			warned(l.do("GET", path, nil).want(200, nil), `"executorContext.executorImage.image"`, `"sourceContext.git.brunch"`)
			warned(l.do("POST", path, `{"tag":"x"}`).want(200, nil))
			warned(l.do("GET", path, nil).want(200, nil))
		}
		warned(l.do("POST", stack+"/deployments", `{"operation":"update","inheritSettings":true,"operationContext":{"preRunCommand":["a"]}}`).want(202, nil), `"operationContext.preRunCommand"`)
	})
}

func TestSettingsRefuseBadInput(t *testing.T) {
	l := newLab(t, sqlite(t), deployments.Options{})
	path := l.stack("dev") + "/deployments/settings"
	named, _ := l.newPool("known by name")
	for body, text := range map[string]string{
		`{"executorContext":{"executorImage":"EVIL/x"}}`: "is not the name of an image",
		`{"agentPoolID":"nope"}`:                         "Invalid agent pool id",
		`{"agentPoolID":"known by name"}`:                "use its id, " + named,
		`{"sourceContext":{"git":{"repoUrl":"https://h/x","branch":"a","commit":"abcdef1"}}}`: "branch or commit",
		`{"sourceContext":{"git":{"repoUrl":"ext::sh -c id"}}}`:                               "repoUrl",
		`{"sourceContext":{"git":{"repoUrl":"https://h/x","branch":"-x"}}}`:                   "branch",
		`{"operationContext":{"preRunCommands":7}}`:                                           "preRunCommands",
		`{"sourceContext"`: "JSON",
		`{"operationContext":{"environments":["prod"]}}`:   "operationContext.environments: \\\"prod\\\" does not name an environment",
		`{"operationContext":{"environments":"app/prod"}}`: "operationContext.environments",
		``: "empty",
	} {
		for _, method := range []string{"PUT", "POST"} {
			l.do(method, path, body).want(400, nil).says(text)
		}
	}
	l.do("GET", path, nil).want(404, nil)
}
