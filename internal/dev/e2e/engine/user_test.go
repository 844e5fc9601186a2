package engine

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/workflow"
)

// TestEngineOtherUser runs deployments in an image whose user is not root, of a program in a
// submodule.
func TestEngineOtherUser(t *testing.T) {
	ctx := t.Context()
	w, engine, _ := harness.StartEngineSite(t, harness.OnLoopback)
	image := must.Get(lab.NewExecutorImage(ctx, w.Tools))(t)
	ref := must.Get(image.AsUser("1234:1234").Load(ctx, engine.Host))(t)
	must.Get(w.StartAgent(ctx, "docker", map[string]string{"pull_image": "false"}, "DOCKER_HOST="+engine.Host))(t)
	_, commit, err := w.Git.NewRepo(ctx, "inner", map[string]string{"word": "from the submodule\n"})
	if err != nil {
		t.Fatal(err)
	}
	repo, _, err := w.Git.NewRepo(ctx, "box", map[string]string{"Pulumi.yaml": harness.YamlProgram})
	if err != nil {
		t.Fatal(err)
	}
	addSubmodule(t, repo, "../inner.git", commit)
	s := w.NewStack(ctx, t, "box", "dev", ref, map[string]string{workflow.SubmodulesVariable: "true"})
	for _, operation := range []string{"update", "destroy"} {
		d := s.Finish(ctx, t, s.Deploy(ctx, t, operation, repo.URL, "echo I am $(id -u):$(id -g), and the word is $(cat inner/word)", "touch written", harness.RunLanguageHost))
		log := s.Log(ctx, t, d)
		if d.Status != "succeeded" || !strings.Contains(log, "I am 1234:1234, and the word is from the submodule") {
			t.Errorf("%s ended as %+v; its log:\n%s", operation, d, log)
		}
	}
}

// addSubmodule adds a commit to main, with the submodule inner.
func addSubmodule(t *testing.T, repo *lab.Repo, url, commit string) {
	t.Helper()
	modules := fmt.Sprintf("[submodule \"inner\"]\n\tpath = inner\n\turl = %s\n", url)
	cmd := exec.CommandContext(t.Context(), "git", "fast-import", "--quiet", "--date-format=now")
	cmd.Dir = repo.Dir()
	cmd.Stdin = strings.NewReader(fmt.Sprintf("commit refs/heads/main\ncommitter Lab <lab@example.invalid> now\ndata 3\nadd\nfrom refs/heads/main^0\nM 100644 inline .gitmodules\ndata %d\n%s\nM 160000 %s inner\n", len(modules), modules, commit))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("adding a submodule: %v: %s", err, out)
	}
}
