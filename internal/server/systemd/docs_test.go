package systemd

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"workflowagent/internal/dev/must"
)

// TestDocumentedService compares docs/server-install.md with the unit and with the packages.
func TestDocumentedService(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	page := text(t, filepath.Join(root, "docs", "server-install.md"))
	unit := string(render("/usr/bin/" + Name))
	setting := func(key string) string {
		t.Helper()
		found := regexp.MustCompile(`(?m)^` + key + `=-?(.*)$`).FindStringSubmatch(unit)
		if found == nil {
			t.Fatalf("the unit does not set %s", key)
		}
		return found[1]
	}
	_, config, _ := strings.Cut(setting("ExecStart"), "--config ")
	const sample = "/usr/share/doc/" + Name + "/workflow-server.yaml.sample"
	for row, want := range map[string]string{
		"unit": Name + ".service", "account": setting("User"), "configuration": config, "environment": setting("EnvironmentFile"),
		"data, with the key of all secrets": "/var/lib/" + setting("StateDirectory"), "sockets": "/run/" + setting("RuntimeDirectory"), "all settings": sample,
	} {
		if !strings.Contains(page, "\n| "+row+" | `"+want+"`") {
			t.Errorf("in docs/server-install.md, the row %q does not name %s", row, want)
		}
	}
	if s := At("/usr/bin/" + Name); config != s.ConfigFile() || "/"+dataDir != "/var/lib/"+setting("StateDirectory") {
		t.Errorf("the unit has the configuration %s and the data in %s", config, setting("StateDirectory"))
	}
	for code := range strings.FieldsSeq(setting("RestartPreventExitStatus")) {
		if !regexp.MustCompile(`except after the exit codes (\d .*)?` + code + ` \(`).MatchString(strings.ReplaceAll(page, "\n", " ")) {
			t.Errorf("docs/server-install.md does not say that systemd does not restart the server after the exit code %s", code)
		}
	}
	if packages := string(must.Get(os.ReadFile(filepath.Join(root, ".goreleaser.yaml")))(t)); !strings.Contains(packages, "dst: "+sample+",") {
		t.Errorf("the packages do not contain %s", sample)
	}
}
