package runner_test

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"workflowagent/internal/dev/lab"
	"workflowagent/internal/workflow"
)

// newRealProgram returns a program that runs the real pulumi. It skips the test unless pulumi has
// been built, which takes minutes.
func newRealProgram(t *testing.T, op workflow.Operation, project string, steps ...workflow.Step) *program {
	t.Helper()
	cache, err := lab.CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	if built, err := filepath.Glob(filepath.Join(cache, "pulumi-*", "pulumi")); err != nil || len(built) == 0 {
		t.Skip("the pulumi command line is not in the lab's cache")
	}
	tools, err := lab.PulumiTools(t.Context(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	p := newProgram(t, op, map[string]string{"infra/Pulumi.yaml": project}, steps...)
	home, state := t.TempDir(), t.TempDir()
	if err := tools.Home(home); err != nil {
		t.Fatal(err)
	}
	p.environ = slices.DeleteFunc(p.environ, func(entry string) bool {
		return strings.HasPrefix(entry, "PATH=") || strings.HasPrefix(entry, "HOME=")
	})
	p.environ = append(p.environ, tools.Env(home, "", "")...)
	d := p.launch.Definition
	delete(d.Env, "PULUMI_ACCESS_TOKEN")
	d.Env["PULUMI_CONFIG_PASSPHRASE"] = ""
	d.Deployment.Organization = "organization"
	d.Deployment.BackendURL = "file://" + state
	d.Deployment.PreRunCommands = []string{"pulumi stack init " + d.Deployment.StackName()}
	return p
}

func preRunStep() workflow.Step {
	return workflow.Step{Name: "Pre-run command 1", Run: workflow.RunPreRun}
}

func TestRealPulumi(t *testing.T) {
	file := filepath.Join(t.TempDir(), "made")
	project := `name: shop
runtime: yaml
resources:
  greeting: { type: "lab:File", properties: { path: "` + file + `", content: hello } }
outputs: { path: "${greeting.path}" }
`
	update, drift := workflow.OperationUpdate, workflow.OperationDetectDrift
	destroy := workflow.OperationDestroy
	p := newRealProgram(
		t, update, project,
		workflow.Step{Name: "Dependencies", Run: workflow.RunDependencies},
		preRunStep(),
		pulumiStep(workflow.OperationPreview),
		pulumiStep(update),
		pulumiStep(workflow.OperationRefresh),
		pulumiStep(drift),
		pulumiStep(workflow.OperationRemediateDrift),
		pulumiStep(destroy),
		workflow.Step{Name: "Remove stack", Run: workflow.RunRemoveStack},
	)
	code, _ := p.run()
	for step := range p.launch.Definition.Steps {
		t.Logf("step %d\n%s", step, p.text(step))
	}
	if code != 0 {
		t.Fatalf("exit code %d", code)
	}
	p.wantLog(5, "path: ", file)
	p.wantLog(10, "Stack 'dev' has been removed!")
	for step := range p.launch.Definition.Steps {
		if strings.ContainsAny(p.text(step), "\x1b\r") {
			t.Errorf("the log of step %d has escape sequences", step)
		}
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("destroy left the resource: %v", err)
	}
}

// TestRealDrift detects drift, with and without remediation, after a resource was removed outside
// of Pulumi.
func TestRealDrift(t *testing.T) {
	file := filepath.Join(t.TempDir(), "made")
	project := `name: shop
runtime: yaml
resources:
  greeting: { type: "lab:File", properties: { path: "` + file + `", content: hello } }
`
	drift := workflow.OperationDetectDrift
	for _, remediate := range []bool{false, true} {
		p := newRealProgram(t, drift, project, preRunStep(), preRunStep(), preRunStep(), pulumiStep(drift))
		d := p.launch.Definition.Deployment
		d.PreRunCommands = append(
			d.PreRunCommands,
			"pulumi up --yes --skip-preview --stack "+d.StackName(),
			"rm "+file,
		)
		d.Options.RemediateIfDriftDetected = remediate
		code, _ := p.run()
		_, err := os.Stat(file)
		if remediate && (code != 0 || err != nil) || !remediate && (code != 7 || err == nil) {
			t.Errorf("remediate %v: exit code %d, %v\n%s", remediate, code, err, p.text(5))
		}
	}
}

// TestRealPulumiCancelled checks that a cancelled update exits by itself and leaves a complete
// state.
func TestRealPulumiCancelled(t *testing.T) {
	started := filepath.Join(t.TempDir(), "started")
	project := `name: shop
runtime: yaml
resources:
  slow: { type: "lab:Sleep", properties: { seconds: 120, started: "` + started + `" } }
`
	update := workflow.OperationUpdate
	p := newRealProgram(t, update, project, preRunStep(), pulumiStep(update))
	var once sync.Once
	p.server.OnFault(func(_ http.ResponseWriter, _ *http.Request) bool {
		if _, err := os.Stat(started); err == nil {
			once.Do(func() { p.server.Update(func() { p.job.Cancel = true }) })
		}
		return false
	})
	code, left := p.run()
	if code == 0 || code > 128 || left.Reason != workflow.ReasonCancelled {
		t.Errorf("exit code %d, left %+v", code, left)
	}
	p.wantLog(3, "interrupting the running command", "error: ")
	if strings.Contains(p.text(3), "is killed") {
		t.Errorf("pulumi was killed:\n%s", p.text(3))
	}
	t.Log(p.text(3))
}
