package deployments_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/identity/issuer"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/workflow"
)

// TestDocumentedVariables checks the variables that Pulumi documents for jobs, except those that the
// runner sets.
func TestDocumentedVariables(t *testing.T) {
	storetest.Each(t, testDocumentedVariables)
}

func testDocumentedVariables(t *testing.T, db *store.DB) {
	secrets, err := keyring.Open(t.Context(), db, bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	tokens := issuer.New(db, issuer.Options{Log: storetest.Log(), Secrets: secrets, URL: "https://server.test/oidc"})
	if err := tokens.Maintain(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := newPlant(t, db, deployments.Options{Console: links.Of("https://console.example"), Issuer: tokens})
	for i, tt := range []struct {
		name, settings, token string
	}{
		{"token", `"sourceContext":{"git":{"repoUrl":"https://github.com/o/r.git","branch":"refs/tags/v1","gitAuth":{"accessToken":{"secret":"pat-12345"}}}}`, "pat-12345"},
		{"password", `"sourceContext":{"git":{"repoUrl":"https://github.com/o/r","branch":"refs/tags/v1","gitAuth":{"basicAuth":{"userName":"me","password":{"secret":"pat-12345"}}}}}`, "pat-12345"},
		{"other host", `"sourceContext":{"git":{"repoUrl":"https://github.com.example/o/r","branch":"refs/tags/v1","gitAuth":{"accessToken":{"secret":"pat-12345"}}}}`, ""},
		{"unencrypted", `"sourceContext":{"git":{"repoUrl":"http://github.com/o/r","branch":"refs/tags/v1","gitAuth":{"accessToken":{"secret":"pat-12345"}}}}`, ""},
		{"public", `"sourceContext":{"git":{"repoUrl":"https://github.com/o/r","branch":"refs/tags/v1"}}`, ""},
		{"given", `"sourceContext":{"git":{"repoUrl":"https://github.com/o/r","branch":"refs/tags/v1","gitAuth":{"accessToken":{"secret":"pat-12345"}}}},
			"operationContext":{"environmentVariables":{"GITHUB_TOKEN":"mine"},"oidc":{"aws":{"roleArn":"arn:aws:iam::1:role/r","sessionName":"session"}}}`, "mine"},
	} {
		st := p.stack(fmt.Sprint("dev", i))
		_, err := p.service.ReplaceSettings(t.Context(), p.user, st, []byte("{"+tt.settings+"}"), "test")
		p.must(err)
		var d store.Deployment
		p.must(p.db.Write(t.Context(), scope.Server(), func(tx *store.Tx) (err error) {
			d, err = p.service.CreateTriggered(t.Context(), tx, st, deployments.Trigger{Operation: workflow.OperationPreview})
			return err
		}))
		c := p.poll("a")
		p.must(p.heartbeat(c, "starting"))
		def, err := p.service.Definition(t.Context(), runner(c), c.Job.ID)
		p.must(err)
		stack := def.Deployment
		for name, want := range map[string]string{
			"GITHUB_TOKEN": tt.token, "PULUMI_CI_SYSTEM": "Pulumi Deployments", "PULUMI_CI_BUILD_ID": d.ID, "PULUMI_CI_BUILD_NUMBER": "1",
			"PULUMI_CI_BUILD_URL":    links.Of("https://console.example").Deployment(stack.Organization, stack.Project, stack.Stack, 1),
			"PULUMI_CI_ORGANIZATION": stack.Organization, "PULUMI_CI_PROJECT": stack.Project, "PULUMI_CI_STACK": st.Name,
			"PULUMI_CI_OPERATION": "preview", "PULUMI_CI_TAG_NAME": "v1",
		} {
			if def.Env[name] != want {
				t.Errorf("%s: %s = %q, want %q", tt.name, name, def.Env[name], want)
			}
		}
		if tt.token == "pat-12345" && !slices.Contains(def.SecretEnv, "GITHUB_TOKEN") {
			t.Errorf("%s: the log does not mask the token", tt.name)
		}
		var oidc struct{ AWS *struct{ RoleARN string } }
		config := def.Env["PULUMI_DEPLOY_OIDC_CONFIG"]
		if tt.name != "given" {
			if config != "" {
				t.Errorf("%s: the OIDC configuration is %q", tt.name, config)
			}
		} else if err := json.Unmarshal([]byte(config), &oidc); err != nil || oidc.AWS == nil || oidc.AWS.RoleARN != "arn:aws:iam::1:role/r" {
			t.Errorf("the OIDC configuration is %q, %v", config, err)
		}
		p.must(p.result(c, workflow.StatusSucceeded))
	}
}
