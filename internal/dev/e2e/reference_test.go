package e2e

import (
	"net/http"
	"strings"
	"testing"

	"workflowagent/internal/dev/lab"
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

// TestClientsReferToStacksFromDeployments lets deployments read the plain and
// secret outputs of another stack by a stock StackReference. One that an
// organization's token started may not.
func TestClientsReferToStacksFromDeployments(t *testing.T) {
	ctx := t.Context()
	w := testWorld(t, "")
	if _, err := w.startAgent(ctx, "process", nil); err != nil {
		t.Fatal(err)
	}
	source := w.newStack(ctx, t, "source", "dev", "", nil)
	sourceRepo, _, err := w.git.NewRepo(ctx, "source", map[string]string{"Pulumi.yaml": sourceProgram})
	if err != nil {
		t.Fatal(err)
	}
	readerRepo, _, err := w.git.NewRepo(ctx, "reader", map[string]string{
		"Pulumi.yaml": strings.ReplaceAll(readerProgram, "%s", source.name),
	})
	if err != nil {
		t.Fatal(err)
	}
	run := func(s *stack, operation, repo, status, says string) {
		t.Helper()
		d := s.deploy(ctx, t, operation, repo)
		end := s.finish(ctx, t, d)
		log := s.log(ctx, t, d)
		if end.Status != status || !strings.Contains(log, says) {
			t.Errorf("%s of %s: %s (%s), want %s and a log with %q:\n%s", operation, s.name, end.Status, end.Message, status, says, log)
		}
	}
	run(source, "update", sourceRepo.URL, "succeeded", "word")
	reader := w.newStack(ctx, t, "reader", "dev", "", nil)
	run(reader, "preview", readerRepo.URL, "succeeded", `word`)
	run(reader, "update", readerRepo.URL, "succeeded", `: "hello"`)
	run(reader, "detect-drift", readerRepo.URL, "succeeded", "unchanged")

	var made struct{ TokenValue string }
	err = w.server.Call(ctx, http.MethodPost, "/api/orgs/"+w.server.Organization+"/tokens", map[string]string{"name": "robot"}, &made)
	if err != nil {
		t.Fatal(err)
	}
	robot := &lab.Server{URL: w.server.URL, Token: made.TokenValue, Organization: w.server.Organization}
	run(&stack{w: &world{server: robot}, name: reader.name}, "update", readerRepo.URL, "failed", `unknown stack "`+source.name)
	run(&stack{w: &world{server: robot}, name: source.name}, "preview", sourceRepo.URL, "succeeded", "unchanged")
}
