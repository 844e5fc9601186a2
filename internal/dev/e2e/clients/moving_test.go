package clients

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab/child"
	"workflowagent/internal/dev/must"
)

// TestClientsMoveIn runs the commands of docs/moving.md: environments with secrets and revisions, and a stack that uses them,
// move from one server to another.
func TestClientsMoveIn(t *testing.T) {
	t.Parallel()
	from, to := harness.StartSite(t, ""), harness.StartSite(t, "")
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"base.yaml":        "values:\n  region: eu-west\n  password: {fn::secret: planted-word}\n",
		"prod.yaml":        "imports: [app/base]\nvalues:\n  pulumiConfig:\n    website:region: ${region}\n    website:password: ${password}\n",
		"Pulumi.yaml":      "name: website\nruntime: yaml\nconfig:\n  region: {type: string}\n  password: {type: string}\n  own: {type: string}\noutputs:\n  all: ${region} ${password} ${own}\nresources:\n  file: {type: lab:File, properties: {path: ./file, content: \"${own}\"}}\n",
		"Pulumi.prod.yaml": "environment:\n  - app/prod@stable\n",
	} {
		harness.Write(t, filepath.Join(dir, name), []byte(text), 0o600)
	}
	sh := func(w *harness.Site, script string) string {
		t.Helper()
		cmd := child.Command(ctx, "sh", "-c", "set -e\n"+script)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), w.Tools.Env(w.Home, w.Server.URL, w.Server.Token)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s\n%s", err, script, out)
		}
		return string(out)
	}
	sh(from, `pulumi env init organization/app/base --file base.yaml
pulumi env init organization/app/prod --file prod.yaml
pulumi env version tag organization/app/prod@stable @2
pulumi env set organization/app/base region eu-north
pulumi env set organization/app/base --secret password second-word
pulumi env set organization/app/prod 'pulumiConfig["website:region"]' us-east
pulumi env tag organization/app/prod team 'core, and web'
pulumi env settings set organization/app/prod deletion-protected true
pulumi stack init organization/website/prod
pulumi config set own --secret third-word
pulumi up --yes --skip-preview
test "$(pulumi stack output all --show-secrets)" = "eu-north second-word third-word"`)

	script := "set -e\n"
	for _, block := range harness.Blocks(t, "moving.md") {
		script += block.Text
	}
	script = strings.NewReplacer(
		"https://api.pulumi.com", from.Server.URL, "OLD_TOKEN=pul-…", "OLD_TOKEN="+from.Server.Token, "OLD_ORG=acme", "OLD_ORG=organization",
		"https://deployments.example.com", to.Server.URL, "NEW_TOKEN=pul-…", "NEW_TOKEN="+to.Server.Token, "PASSPHRASE=…", "PASSPHRASE=passphrase",
	).Replace(script)
	out := sh(to, script)
	for _, want := range []string{"app/base is equal", "app/prod is equal"} {
		if !strings.Contains(out, want) {
			t.Errorf("the commands printed %s", out)
		}
	}
	if strings.Contains(out, "-word") {
		t.Errorf("the commands printed a secret: %s", out)
	}
	got := sh(to, `pulumi env open organization/app/base@2 region --format string; pulumi env open organization/app/base@2 password --format string
pulumi env open organization/app/prod@stable --format json
pulumi env version tag ls organization/app/prod; pulumi env tag get organization/app/prod team; pulumi env settings get organization/app/prod
pulumi stack output all --show-secrets; pulumi config get own; pulumi up --yes --skip-preview --expect-no-changes`)
	for _, want := range []string{"eu-west\nplanted-word\n", `"website:region": "eu-north"`, "core, and web", "deletion-protected true", "eu-north second-word third-word\nthird-word\n", "2 unchanged"} {
		if !strings.Contains(got, want) {
			t.Errorf("the new server lacks %q:\n%s", want, got)
		}
	}
	for _, file := range must.Get(os.ReadDir(dir))(t) {
		if text := string(harness.Read(t, filepath.Join(dir, file.Name()))); file.Name() != "file" && file.Name() != "base.yaml" && strings.Contains(text, "-word") {
			t.Errorf("%s has a secret: %s", file.Name(), text)
		}
	}
}
