package clients

import (
	"net/http"
	"strings"
	"testing"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/must"
)

const (
	sourceProgram = `name: source
runtime: yaml
resources:
  value: {type: lab:Random}
outputs:
  word: hello
  password:
    fn::secret: ${value.hex}
`
	readerProgram = `name: reader
runtime: yaml
resources:
  source:
    type: pulumi:pulumi:StackReference
    properties: {name: %s}
outputs:
  word: ${source.outputs.word}
  password: ${source.outputs.password}
`
)

// TestClientsReferToStacksFromDeployments checks that deployments can read plain and secret outputs
// of another stack through a stock StackReference, unless an organization token started them: grants.txtar has those.
func TestClientsReferToStacksFromDeployments(t *testing.T) {
	ctx := t.Context()
	w := harness.StartSite(t, "")
	must.Get(w.StartAgent(ctx, "process", nil))(t)
	source := w.NewStack(ctx, t, "source", "dev", "", nil)
	sourceRepo, _, err := w.Git.NewRepo(ctx, "source", map[string]string{"Pulumi.yaml": sourceProgram})
	must.OK(t, err)
	readerRepo, _, err := w.Git.NewRepo(ctx, "reader", map[string]string{
		"Pulumi.yaml": strings.ReplaceAll(readerProgram, "%s", source.Name),
	})
	must.OK(t, err)
	run := func(s *harness.Stack, operation, repo, status, says string) {
		t.Helper()
		d := s.Deploy(ctx, t, operation, repo)
		end := s.Finish(ctx, t, d)
		log := s.Log(ctx, t, d)
		if end.Status != status || !strings.Contains(log, says) {
			t.Errorf("%s of %s: %s (%s), want %s and a log with %q:\n%s", operation, s.Name, end.Status, end.Message, status, says, log)
		}
	}
	run(source, "update", sourceRepo.URL, "succeeded", "word")
	reader := w.NewStack(ctx, t, "reader", "dev", "", nil)
	run(reader, "preview", readerRepo.URL, "succeeded", `word`)
	run(reader, "update", readerRepo.URL, "succeeded", `: "hello"`)
	run(reader, "detect-drift", readerRepo.URL, "succeeded", "unchanged")

	var made struct{ TokenValue string }
	err = w.Server.Call(ctx, http.MethodPost, "/api/orgs/"+w.Server.Organization+"/tokens", map[string]string{"name": "robot"}, &made)
	must.OK(t, err)
	robot := &lab.Server{URL: w.Server.URL, Token: made.TokenValue, Organization: w.Server.Organization}
	run(&harness.Stack{W: &harness.Site{Server: robot}, Name: reader.Name}, "update", readerRepo.URL, "failed", "may not read the outputs of "+source.Name+": no grant can cover it")
	run(&harness.Stack{W: &harness.Site{Server: robot}, Name: source.Name}, "preview", sourceRepo.URL, "succeeded", "unchanged")
}
