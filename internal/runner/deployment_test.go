package runner_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"workflowagent/internal/dev/lab"
	"workflowagent/internal/workflow"
)

const fakePulumi = `#!/bin/sh
echo "pulumi $*" >> "$CALLS"
env > "$CALLS.env"
pwd > "$CALLS.pwd"
ls -l /proc/self/fd > "$CALLS.fd"
[ -f script ] && . ./script
exit 0
`

const gitToken = "git-token-5f1c2a90b7"

type program struct {
	*harness
	repo  *lab.Repo
	head  string // commit of the repository's main branch
	calls string
}

func newProgram(t *testing.T, op workflow.Operation, files map[string]string, steps ...workflow.Step) *program {
	t.Helper()
	return newProgramOn(t, lab.GitOptions{}, op, files, steps...)
}

func newProgramOn(t *testing.T, options lab.GitOptions, op workflow.Operation, files map[string]string, steps ...workflow.Step) *program {
	t.Helper()
	git, err := lab.StartGitServer(t.Context(), t.TempDir(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = git.Close() })
	repo, head, err := git.NewRepo(t.Context(), "program", files)
	if err != nil {
		t.Fatal(err)
	}
	d := deployment(&workflow.JobDefinition{
		OS: "linux", Image: &workflow.Image{}, Shell: "sh",
		Env:       map[string]string{"PULUMI_ACCESS_TOKEN": "pul-0123456789abcdef"},
		SecretEnv: []string{"PULUMI_ACCESS_TOKEN"},
		Steps:     append([]workflow.Step{{Name: "Setup"}, {Name: "Get source", Run: workflow.RunSourceGit}}, steps...),
	}, op)
	d.Deployment.Source = &workflow.Source{Git: &workflow.GitSource{
		RepoURL: repo.URL, Branch: "main", RepoDir: "infra", Auth: &workflow.GitAuth{AccessToken: gitToken},
	}}
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "pulumi"), []byte(fakePulumi), 0o755); err != nil {
		t.Fatal(err)
	}
	p := &program{harness: newHarness(t, d), repo: repo, head: head, calls: filepath.Join(t.TempDir(), "calls")}
	p.environ = append(p.environ, "PATH="+bin+":"+os.Getenv("PATH"), "CALLS="+p.calls)
	return p
}

func pulumiStep(op workflow.Operation) workflow.Step {
	return workflow.Step{Name: workflow.PulumiStepName(op), Run: workflow.RunPulumi + " " + string(op)}
}

func (p *program) read(suffix string) string {
	p.t.Helper()
	data, err := os.ReadFile(p.calls + suffix)
	if err != nil && !os.IsNotExist(err) {
		p.t.Error(err)
	}
	return string(data)
}

var yamlProject = map[string]string{"infra/Pulumi.yaml": "name: shop\nruntime: yaml\n"}

func TestOperations(t *testing.T) {
	for op, want := range map[workflow.Operation]string{
		workflow.OperationUpdate:         "up --yes --skip-preview",
		workflow.OperationPreview:        "preview",
		workflow.OperationRefresh:        "refresh --yes --skip-preview",
		workflow.OperationDestroy:        "destroy --yes --skip-preview",
		workflow.OperationDetectDrift:    "refresh --preview-only --expect-no-changes",
		workflow.OperationRemediateDrift: "up --refresh --yes --skip-preview",
	} {
		t.Run(string(op), func(t *testing.T) {
			p := newProgram(t, op, yamlProject, pulumiStep(op))
			if code, _ := p.run(); code != 0 {
				t.Errorf("exit code %d: %s%s", code, p.text(1), p.text(2))
			}
			if p.job.Commit != p.head {
				t.Errorf("the runner reports the commit %q, want %s", p.job.Commit, p.head)
			}
			if got := p.read(""); got != "pulumi "+want+" --stack=acme/shop/dev --non-interactive --color never\n" {
				t.Errorf("got %q", got)
			}
		})
	}
}

func TestDeploymentEnvironment(t *testing.T) {
	op := workflow.OperationUpdate
	p := newProgramOn(t, lab.GitOptions{Password: gitToken}, op, yamlProject, pulumiStep(op))
	p.launch.OIDCToken = "oidc-token-123456"
	p.launch.Definition.Env["PULUMI_BACKEND_URL"] = "http://evil.example"
	p.launch.Definition.Env["PULUMI_CI_BUILD_URL"] = "http://server.example/build"
	if code, _ := p.run(); code != 0 {
		t.Errorf("exit code %d: %s%s", code, p.text(1), p.text(2))
	}
	env := "\n" + p.read(".env")
	for _, want := range []string{
		"PULUMI_ACCESS_TOKEN=pul-0123456789abcdef",
		"PULUMI_BACKEND_URL=http://server.example",
		"PULUMI_SERVICE_URL=http://server.example/api",
		"PULUMI_CI_SYSTEM=Pulumi Deployments",
		"PULUMI_CI_BUILD_ID=dep-1",
		"PULUMI_CI_BUILD_NUMBER=4",
		"PULUMI_CI_BUILD_URL=http://server.example/build",
		"PULUMI_CI_ORGANIZATION=acme",
		"PULUMI_CI_PROJECT=shop",
		"PULUMI_CI_STACK=dev",
		"PULUMI_CI_OPERATION=update",
		"PULUMI_OIDC_TOKEN=oidc-token-123456",
		"PULUMI_CREDENTIALS_PATH=" + p.dir,
	} {
		if !strings.Contains(env, "\n"+want) {
			t.Errorf("the environment of pulumi lacks %s", want)
		}
	}
	for _, bad := range []string{"WORKFLOW_RUNNER", gitToken, jobToken} {
		if strings.Contains(env, bad) {
			t.Errorf("the environment of pulumi holds %s", bad)
		}
	}
	p.wantLog(1, "PULUMI_BACKEND_URL, which the deployment sets itself")
	if got, want := strings.TrimSpace(p.read(".pwd")), filepath.Join(p.dir, "work", "infra"); got != want {
		t.Errorf("pulumi ran in %s, want %s", got, want)
	}
	if strings.Contains(p.read(".fd"), " 3 -> pipe") {
		t.Errorf("pulumi has inherited the pipe with the parameters:\n%s", p.read(".fd"))
	}
	if entries, err := filepath.Glob(filepath.Join(p.dir, "git*")); err != nil || len(entries) != 0 {
		t.Errorf("credentials are left behind: %v, %v", entries, err)
	}
}

func TestPreRunCommandsAndDependencies(t *testing.T) {
	op := workflow.OperationUpdate
	files := map[string]string{"infra/Pulumi.yaml": "name: shop\nruntime:\n  name: nodejs\n"}
	p := newProgram(
		t, op, files,
		workflow.Step{Name: "Download dependencies", Run: workflow.RunDependencies},
		workflow.Step{Name: "Pre-run command 1", Run: workflow.RunPreRun},
		workflow.Step{Name: "Pre-run command 2", Run: workflow.RunPreRun},
		pulumiStep(op),
	)
	p.launch.Definition.Deployment.PreRunCommands = []string{
		`echo "COLOUR=blue and green" >> "$PULUMI_ENV"`,
		`echo "the colour is $COLOUR in $(basename "$PWD")"`,
	}
	p.launch.Definition.Deployment.Options.Shell = "sh -eu"
	if code, _ := p.run(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	p.wantLog(4, "Loading PULUMI_ENV from", "+ echo", "the colour is blue and green in infra\n")
	if want := "pulumi install --non-interactive --color never\npulumi up "; !strings.HasPrefix(p.read(""), want) {
		t.Errorf("got %q", p.read(""))
	}
	if env := p.read(".env"); !strings.Contains(env, "\nCOLOUR=blue and green\n") {
		t.Error("pulumi did not get the variable")
	}
}

func TestDependenciesOfYAML(t *testing.T) {
	p := newProgram(t, workflow.OperationUpdate, yamlProject, workflow.Step{Name: "Dependencies", Run: workflow.RunDependencies})
	if code, _ := p.run(); code != 0 || p.read("") != "" {
		t.Errorf("exit code %d, calls %q", code, p.read(""))
	}
	p.wantLog(2, "no dependencies to install")
}

func TestDestroyRemovesStack(t *testing.T) {
	op := workflow.OperationDestroy
	p := newProgram(t, op, yamlProject, pulumiStep(op), workflow.Step{Name: "Remove stack", Run: workflow.RunRemoveStack})
	if code, _ := p.run(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if want := "\npulumi stack rm --yes --preserve-config --stack=acme/shop/dev"; !strings.Contains(p.read(""), want) {
		t.Errorf("got %q", p.read(""))
	}
}

// TestUserErrors checks that a user's error results in one clear line, the last of the step's log.
func TestUserErrors(t *testing.T) {
	op := workflow.OperationUpdate
	for _, tt := range []struct {
		name   string
		files  map[string]string
		change func(p *program)
		step   int
		want   string
	}{
		{"no project", map[string]string{"infra/main.txt": "x"}, nil, 2, `no Pulumi.yaml in the directory "infra" of the repository: check the repository directory and branch in the deployment settings (--folder and`},
		{"no directory", map[string]string{"Pulumi.yaml": "x"}, nil, 1, `the directory "infra" does not exist in the repository`},
		{"branch", yamlProject, func(p *program) { p.git().Branch = "nope" }, 1, `branch "nope" does not exist in the repository`},
		{"commit", yamlProject, func(p *program) { p.git().Commit = strings.Repeat("0f", 20) }, 1, "commit 0f0f"},
		{"token", yamlProject, func(p *program) { p.git().Auth.AccessToken = "wrong-token" }, 1, "rejected the credentials"},
		{"url", yamlProject, func(p *program) { p.git().RepoURL = "nonsense" }, 1, "has no scheme"},
		{"exit code", map[string]string{"infra/Pulumi.yaml": "x", "infra/script": "echo oops; exit 255"}, nil, 2, "pulumi update exited with code 255"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			options := lab.GitOptions{}
			if tt.name == "token" {
				options.Password = gitToken
			}
			p := newProgramOn(t, options, op, tt.files, pulumiStep(op))
			if tt.change != nil {
				tt.change(p)
			}
			code, left := p.run()
			if code == 0 || left.Reason != workflow.ReasonExitCode {
				t.Errorf("exit code %d, left %+v", code, left)
			}
			lines := strings.Split(strings.TrimSpace(p.text(tt.step)), "\n")
			last := lines[len(lines)-1]
			if !strings.HasPrefix(last, "error: ") || !strings.Contains(last, tt.want) {
				t.Errorf("the last line is %q, want %q", last, tt.want)
			}
			if result := p.oneResult(); !strings.Contains(result.Message, tt.want) {
				t.Errorf("the message is %q", result.Message)
			}
		})
	}
}

func (p *program) git() *workflow.GitSource { return p.launch.Definition.Deployment.Source.Git }

// TestCancelEndsLoop checks that a cancellation ends the program for which the shell of a pre-run
// command waits, and therefore the shell.
func TestCancelEndsLoop(t *testing.T) {
	p := newProgram(t, workflow.OperationUpdate, map[string]string{"infra/Pulumi.yaml": "name: shop\nruntime: yaml\n"}, preRunStep())
	p.launch.Definition.Deployment.PreRunCommands = []string{"echo ready; while :; do sleep 3600; done"}
	p.timing.PatienceChange = time.Hour
	var once sync.Once
	p.server.OnFault(func(_ http.ResponseWriter, _ *http.Request) bool {
		if strings.Contains(p.text(2), "ready") {
			once.Do(func() { p.server.Update(func() { p.job.Cancel = true }) })
		}
		return false
	})
	code, left := p.run()
	if code == 0 || left.Reason != workflow.ReasonCancelled {
		t.Errorf("exit code %d, left %+v\n%s", code, left, p.text(2))
	}
	p.wantLog(2, "the deployment was cancelled while Pre-run command 1 was running")
}

// TestPulumiGetsOneInterrupt checks that pulumi, as the leader of the step, receives exactly one
// interrupt.
func TestPulumiGetsOneInterrupt(t *testing.T) {
	op := workflow.OperationUpdate
	for _, remediate := range []bool{false, true} {
		if remediate {
			op = workflow.OperationDetectDrift
		}
		t.Run(string(op), func(t *testing.T) {
			files := map[string]string{
				"infra/Pulumi.yaml": "name: shop\nruntime: yaml\n",
				"infra/script":      "cd ..\n" + strings.Replace(countSignals, "exit 3", "exit 8", 1),
			}
			p := newProgram(t, op, files, pulumiStep(op))
			p.launch.Definition.Deployment.Options.RemediateIfDriftDetected = remediate
			var once sync.Once
			p.server.OnFault(func(_ http.ResponseWriter, _ *http.Request) bool {
				if strings.Contains(p.text(2), "ready") {
					once.Do(func() { p.server.Update(func() { p.job.Cancel = true }) })
				}
				return false
			})
			code, left := p.run()
			if code == 0 || left.Reason != workflow.ReasonCancelled {
				t.Errorf("exit code %d, left %+v\n%s", code, left, p.text(2))
			}
			if got := p.signalsSeen(); got != "leader\n" {
				t.Errorf("the signals seen were %q, want one by pulumi", got)
			}
			p.wantLog(2, "ended gracefully", "\nerror: ")
			if result := p.oneResult(); !strings.HasPrefix(result.Message, "the deployment was cancelled while pulumi "+string(op)) {
				t.Errorf("the message is %q", result.Message)
			}
		})
	}
}

func TestRemediateIfDriftDetected(t *testing.T) {
	op := workflow.OperationDetectDrift
	for _, tt := range []struct {
		script string
		code   int
		calls  string
	}{
		{`case "$*" in refresh*) exit 7;; esac`, 0, "refresh up"},
		{"exit 0", 0, "refresh"},
		{"exit 255", 1, "refresh"},
	} {
		files := map[string]string{"infra/Pulumi.yaml": "x", "infra/script": tt.script}
		p := newProgram(t, op, files, pulumiStep(op))
		p.launch.Definition.Deployment.Options.RemediateIfDriftDetected = true
		code, _ := p.run()
		var calls []string
		for line := range strings.Lines(p.read("")) {
			calls = append(calls, strings.Fields(line)[1])
		}
		if got := strings.Join(calls, " "); code != tt.code || got != tt.calls {
			t.Errorf("%s: exit code %d after %q, want %d after %q", tt.script, code, got, tt.code, tt.calls)
		}
	}
}

func TestProgramInImage(t *testing.T) {
	op := workflow.OperationUpdate
	p := newProgram(t, op, yamlProject, pulumiStep(op))
	d := p.launch.Definition
	d.Deployment.Source = nil
	d.Steps = append(d.Steps[:1:1], d.Steps[2])
	d.Steps[1].WorkingDir = t.TempDir()
	if code, _ := p.run(); code == 0 {
		t.Error("a directory without a project was accepted")
	}
	p.wantLog(1, "the directory "+d.Steps[1].WorkingDir+" contains no Pulumi.yaml")

	if err := os.WriteFile(filepath.Join(d.Steps[1].WorkingDir, "Pulumi.yaml"), []byte("name: x\nruntime: yaml\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.renew()
	if code, _ := p.run(); code != 0 || !strings.HasPrefix(p.read(""), "pulumi up") {
		t.Errorf("exit code %d, calls %q", code, p.read(""))
	}
}
