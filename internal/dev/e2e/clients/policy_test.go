package clients

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/must"
)

const bucketState = `{"version": 3, "deployment": {"manifest": {"time": "2026-01-01T00:00:00Z", "magic": "", "version": ""}, "resources": [
{"urn": "urn:pulumi:dev::shop::pulumi:pulumi:Stack::shop-dev", "custom": false, "type": "pulumi:pulumi:Stack"},
{"urn": "urn:pulumi:dev::shop::aws:s3/bucketV2:BucketV2::logs", "custom": true, "id": "logs", "type": "aws:s3/bucketV2:BucketV2", "inputs": {"acl": "public-read-write"}, "outputs": {}}
]}}`

// TestClientsExamplePolicyPack builds the example of a policy pack and analyzes a state with it: as a program, and as a
// directory by the language host.
func TestClientsExamplePolicyPack(t *testing.T) {
	bin, tools := harness.Programs(t)
	home, pack := t.TempDir(), t.TempDir()
	must.OK(t, tools.Home(home))
	must.OK(t, lab.InstallLanguageHost(home, filepath.Join(bin, "workflow-runner")))
	source := must.Get(filepath.Abs(filepath.Join("..", "..", "..", "..", "examples", "policy-pack")))(t)
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-mod=readonly", "-buildvcs=false", "-ldflags", "-s -w", "-o", filepath.Join(pack, "policy"), ".")
	build.Dir, build.Env = source, append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the example: %v\n%s", err, out)
	}
	project := must.Get(os.ReadFile(filepath.Join(source, "PulumiPolicy.yaml")))(t)
	harness.Write(t, filepath.Join(pack, "PulumiPolicy.yaml"), project, 0o600)
	work := t.TempDir()
	harness.Write(t, filepath.Join(work, "state.json"), []byte(bucketState), 0o600)
	harness.Write(t, filepath.Join(work, "config.json"), []byte(`{"stack-size": {"max": 1}}`), 0o600)
	for _, path := range []string{filepath.Join(pack, "policy"), pack} {
		cmd := exec.CommandContext(t.Context(), tools.Pulumi(), "policy", "analyze", "--file", "state.json", "--policy-pack", path,
			"--policy-pack-config", "config.json", "--json")
		cmd.Dir, cmd.Env = work, tools.Env(home, "", "")
		out, err := cmd.CombinedOutput()
		got := string(out)
		for _, want := range []string{
			`"message":"The bucket has the ACL public-read-write: choose private.","color":"","policyName":"s3-no-public-read","policyPackName":"storage"`,
			`"message":"The stack has 2 resources, and may have 1: split it."`, `"enforcementLevel":"advisory"`, `"enforcementLevel":"mandatory"`,
		} {
			if err == nil || !strings.Contains(got, want) {
				t.Errorf("%s: %v, want %s\n%s", path, err, want, got)
			}
		}
	}
}

const nodePack = `const { PolicyPack } = require("@pulumi/policy");
new PolicyPack("files", {
  policies: [{
    name: "no-bad-file", description: "Files must not be bad.", enforcementLevel: "advisory",
    configSchema: { properties: { content: { type: "string", default: "none" } } },
    validateResource: (args, report) => {
      if (args.props.content === args.getConfig().content) report("the file has the content " + args.props.content);
    },
  }],
});
`

// TestClientsNodePolicyPack publishes a pack of Pulumi's SDK for Node.js and requires it with a configuration. The client
// downloads it, installs its dependencies and stops the update. It analyzes the same state as an evaluation does.
func TestClientsNodePolicyPack(t *testing.T) {
	if reason, ok := lab.NodeAvailable(); !ok {
		t.Skip(reason)
	}
	host := must.Get(lab.LanguageHost(t.Context(), os.Stderr))(t)
	packages := filepath.Join(filepath.Dir(must.Get(lab.AutomationNode(t.Context(), os.Stderr))(t)), "node_modules")
	w := harness.StartSite(t, "")
	bin, pack, program := t.TempDir(), t.TempDir(), t.TempDir()
	must.OK(t, os.Symlink(host, filepath.Join(bin, "pulumi-language-nodejs")))
	must.OK(t, os.Symlink(packages, filepath.Join(pack, "node_modules")))
	for path, text := range map[string]string{
		filepath.Join(pack, "PulumiPolicy.yaml"): "runtime: nodejs\n",
		filepath.Join(pack, "index.js"):          nodePack,
		// npm links these directories, so that the packages find their own dependencies there, and no registry is needed.
		filepath.Join(pack, "package.json"): fmt.Sprintf(`{"name": "files", "version": "1.2.3", "main": "index.js",
			"dependencies": {"@pulumi/policy": "file:%[1]s/@pulumi/policy", "@pulumi/pulumi": "file:%[1]s/@pulumi/pulumi"}}`, packages),
		filepath.Join(program, "config.json"): `{"no-bad-file": {"enforcementLevel": "mandatory", "content": "bad"}}`,
		filepath.Join(program, "Pulumi.yaml"): "name: files\nruntime: yaml\nresources:\n  file: {type: lab:File, properties: {path: ./made, content: bad}}\n",
	} {
		harness.Write(t, path, []byte(text), 0o600)
	}
	run := func(dir string, fails bool, want string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), w.Tools.Pulumi(), args...)
		cmd.Dir = dir
		cmd.Env = append(w.Tools.Env(w.Home, w.Server.URL, w.Server.Token), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "npm_config_offline=true")
		out, err := cmd.CombinedOutput()
		if fails != (err != nil) || !strings.Contains(string(out), want) {
			t.Fatalf("pulumi %s: %v, want %q\n%s", strings.Join(args, " "), err, want, out)
		}
	}
	run(pack, false, `Publishing "files" - version 1.2.3`, "policy", "publish", w.Server.Organization)
	run(program, false, "", "stack", "init", "dev")
	run(program, false, "2 created", "up", "--yes", "--skip-preview")
	run(program, false, "", "stack", "export", "--file", "state.json")
	run(program, false, "", "policy", "enable", w.Server.Organization+"/files", "1.2.3", "--config", "config.json")
	run(program, true, "the file has the content bad", "up", "--yes", "--skip-preview")
	installed := filepath.Join(w.Home, "policies", w.Server.Organization, "pulumi-analyzer-files-v1.2.3")
	run(program, true, `the file has the content bad","color":"","policyName":"no-bad-file","policyPackName":"files","policyPackVersion":"1.2.3"`,
		"policy", "analyze", "--file", "state.json", "--policy-pack", installed, "--policy-pack-config", "config.json", "--json")
}
