package runner_test

import (
	"os"
	"strings"
	"testing"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/workflow"
)

// TestMissingHost checks that the log says what to do about a required policy pack whose runtime the image does not
// contain. The lines are those of pulumi 3.276.
func TestMissingHost(t *testing.T) {
	line := func(pack, language string) string {
		return "error: failed to install policy pack " + pack + ": failed to load language plugin " + language +
			": no language plugin 'pulumi-language-" + language + "' found in the workspace or on your $PATH"
	}
	for name, tt := range map[string]struct{ script, want string }{
		"node": {
			"printf 'error: failed to install policy pack cis@v1.0.7: failed to load'; " +
				"printf \" language plugin nodejs: no language plugin 'pulumi-language-nodejs' found\n\"; exit 255",
			"error: the policy pack cis@v1.0.7, which the stack requires, needs the program pulumi-language-nodejs: " +
				"use an image that contains it and its language, such as pulumi/pulumi, or publish the pack as a program (runtime: executable)",
		},
		"no program": {"echo \"" + line("lab@v1", "executable") + `"; exit 255`, "error: the policy pack lab@v1, which the stack requires, needs the program pulumi-language-executable, which the runner could not install: "},
		"project":    {"echo \"error: failed to load language plugin go: no language plugin 'pulumi-language-go' found\"; exit 255", "error: failed to load language plugin go: "},
	} {
		t.Run(name, func(t *testing.T) {
			op := workflow.OperationUpdate
			p := newProgram(t, op, map[string]string{"infra/Pulumi.yaml": yamlProject["infra/Pulumi.yaml"], "infra/script": tt.script}, pulumiStep(op))
			p.run()
			lines := strings.Split(strings.TrimSpace(p.text(2)), "\n")
			if last := lines[len(lines)-1]; !strings.HasPrefix(last, tt.want) {
				t.Errorf("the log ends with %q, want %q\n%s", last, tt.want, p.text(2))
			}
		})
	}
}

// TestLanguageHost checks that a job's pulumi finds the language host of policy packs that are programs.
func TestLanguageHost(t *testing.T) {
	op := workflow.OperationUpdate
	script := `readlink "$HOME/.pulumi/plugins/"language-executable-v*/pulumi-language-executable`
	p := newProgram(t, op, map[string]string{"infra/Pulumi.yaml": yamlProject["infra/Pulumi.yaml"], "infra/script": script}, pulumiStep(op))
	self := must.Get(os.Executable())(t)
	if code, _ := p.run(); code != 0 || !strings.Contains(p.text(2), self+"\n") {
		t.Errorf("code %d, %q does not contain %s", code, p.text(2), self)
	}
}
