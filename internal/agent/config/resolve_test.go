package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestStateDirectory(t *testing.T) {
	for _, tt := range []struct {
		name    string
		uid     int
		home    string
		environ []string
		want    string
	}{
		{"set", 1000, "/home/me", []string{"PULUMI_AGENT_STATE_DIRECTORY=~/state", "STATE_DIRECTORY=/var/lib/x"}, "/home/me/state"},
		{"service manager", 1000, "/home/me", []string{"STATE_DIRECTORY=/var/lib/x"}, "/var/lib/x"},
		{"service manager with several", 0, "", []string{"STATE_DIRECTORY=/var/lib/x:/var/lib/y"}, "/var/lib/x"},
		{"service manager, odd", 0, "", []string{"STATE_DIRECTORY=relative"}, "/var/lib/workflow-agent"},
		{"root", 0, "/root", []string{"XDG_STATE_HOME=/x"}, "/var/lib/workflow-agent"},
		{"user with XDG", 1000, "/home/me", []string{"XDG_STATE_HOME=/x"}, "/x/workflow-agent"},
		{"user with relative XDG", 1000, "/home/me", []string{"XDG_STATE_HOME=x"}, "/home/me/.local/state/workflow-agent"},
		{"user", 1000, "/home/me", nil, "/home/me/.local/state/workflow-agent"},
		{"user of the machine's service", 999, "/home/me", []string{"XDG_STATE_HOME=/x"}, "/var/lib/service"},
		{"user of another service", 999, "/home/me", []string{"STATE_DIRECTORY=/var/lib/x"}, "/var/lib/x"},
		{"user without home", 1000, "", nil, "/tmp/workflow-agent-1000"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := testOptions("", tt.environ...)
			o.UID, o.Home = tt.uid, tt.home
			o.ServiceState = func(_ string, uid int) string {
				return map[int]string{0: "/x", 999: "/var/lib/service"}[uid]
			}
			c, err := Load(o)
			if err != nil || c.StateDirectory != tt.want {
				t.Errorf("got %q, %v, want %q", c.StateDirectory, err, tt.want)
			}
		})
	}
}

func TestPrepareStateDirectory(t *testing.T) {
	prepare := func(dir string) error {
		o := testOptions("", "PULUMI_AGENT_STATE_DIRECTORY="+dir)
		c, err := Load(o)
		if err != nil {
			t.Fatal(err)
		}
		return c.PrepareStateDirectory()
	}
	root := t.TempDir()
	dir := filepath.Join(root, "a", "b", "state")
	for range 2 {
		must(t, prepare(dir))
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("got %v, %v, want mode 0700", info.Mode(), err)
	}

	link := filepath.Join(root, "link")
	must(t, os.Symlink(dir, link))
	if err := prepare(link); err != nil {
		t.Errorf("through a link: %v", err)
	}
	// In a directory such as /tmp, the link could belong to another user.
	shared := filepath.Join(root, "tmp")
	must(t, os.Mkdir(shared, 0o755))
	must(t, os.Chmod(shared, 0o1777))
	must(t, os.Symlink(dir, filepath.Join(shared, "state")))
	if err := prepare(filepath.Join(shared, "state")); err == nil || !strings.Contains(err.Error(), "is not a directory") {
		t.Errorf("through a link in a shared directory: %v", err)
	}
	must(t, os.Chmod(dir, 0o770))
	if err := prepare(dir); err == nil || !strings.Contains(err.Error(), "run chmod 700 on it") {
		t.Errorf("writable by the group: %v", err)
	}
	file := filepath.Join(root, "file")
	must(t, os.WriteFile(file, nil, 0o600))
	if err := prepare(file); err == nil || !strings.Contains(err.Error(), "is not a directory") {
		t.Errorf("a file: %v", err)
	}
	if err := prepare(filepath.Join(file, "state")); err == nil || !strings.Contains(err.Error(), "state_directory: ") {
		t.Errorf("below a file: %v", err)
	}
	if os.Geteuid() == 0 {
		foreign := filepath.Join(root, "foreign")
		must(t, os.Mkdir(foreign, 0o700))
		must(t, os.Chown(foreign, 12345, -1))
		if err := prepare(foreign); err == nil || !strings.Contains(err.Error(), "belongs to user 12345") {
			t.Errorf("another user's: %v", err)
		}
	}
}

func TestWorkingDirectory(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(root, "bin")
	must(t, os.Mkdir(bin, 0o755))
	binary, link := filepath.Join(bin, "customer-managed-workflow-agent"), filepath.Join(root, "customer-managed-deployment-agent")
	must(t, os.WriteFile(binary, nil, 0o755))
	must(t, os.Symlink(binary, link))
	for value, want := range map[string]string{
		"": "/opt/agent", binary: bin, link: bin, bin: bin, bin + "/": bin, "relative": "/cwd/relative",
		"<location of customer-managed-deployment-agent binary>": "/opt/agent",
	} {
		c, err := Load(testOptions("", "PULUMI_AGENT_WORKING_DIRECTORY="+value))
		if err != nil || c.WorkingDirectory != want {
			t.Errorf("%q became %q, %v, want %q", value, c.WorkingDirectory, err, want)
		}
	}
}

func TestForwardedEnv(t *testing.T) {
	c, err := loadAndValidate(testOptions("",
		"PULUMI_AGENT_TOKEN="+testToken, "PULUMI_AGENT_ENV_FORWARD_ALLOWLIST=B DOCKER_HOST A ABSENT EMPTY",
		"A=value-of-a", "B=value=of b", "EMPTY=", "C=not listed", "DOCKER_HOST=tcp://engine:2375"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, v := range c.ForwardedEnv() {
		got = append(got, v.Name+"="+v.Value.Reveal())
	}
	if want := "B=value=of b|A=value-of-a|EMPTY=|DOCKER_HOST=tcp://engine:2375"; strings.Join(got, "|") != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if c.Docker.Host != "tcp://engine:2375" {
		t.Errorf("the engine is %q", c.Docker.Host)
	}
	if text := fmt.Sprintf("%+v %#v %v", *c, c.ForwardedEnv(), c.Settings()); strings.Contains(text, "value-of-a") || strings.Contains(text, testToken) {
		t.Errorf("a secret appears in %s", text)
	}

	c, err = Load(testOptions(""))
	if err != nil || c.ForwardedEnv() != nil || c.Docker.Host != "" {
		t.Errorf("without anything: %v, %v", c.ForwardedEnv(), err)
	}
}

func TestDerivedValues(t *testing.T) {
	load := func(environ ...string) *Config {
		t.Helper()
		c, err := Load(testOptions("", environ...))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for _, tt := range []struct {
		name, got, want string
	}{
		{"threshold by poll", load("PULUMI_AGENT_POLLING_INTERVAL=5m").HealthThreshold.String(), "10m0s"},
		{"threshold by status", load("PULUMI_AGENT_JOB_STATUS_LOOP_INTERVAL=3m").HealthThreshold.String(), "6m0s"},
		{"threshold", load("PULUMI_AGENT_HEALTH_THRESHOLD=7s").HealthThreshold.String(), "7s"},
		{"server", load().HTTPServerListen(), "127.0.0.1:8080"},
		{"server off", load("PULUMI_AGENT_HTTP_SERVER_PORT=0").HTTPServerListen(), ""},
		{"server in a pod", load("KUBERNETES_SERVICE_HOST=10.0.0.1").HTTPServerListen(), ":8080"},
		{"server configured", load("KUBERNETES_SERVICE_HOST=10.0.0.1", "PULUMI_AGENT_HTTP_SERVER_ADDRESS=localhost").HTTPServerListen(), "localhost:8080"},
		{"temp", load().TempDirectory(), "/tmp"},
		{"temp configured", load("PULUMI_AGENT_SHARED_VOLUME_DIRECTORY=/shared").TempDirectory(), "/shared"},
		{"expiration in seconds", load("PULUMI_AGENT_TOKEN_EXPIRATION=90").TokenExpiration.String(), "1m30s"},
		{"expiration as a duration", load("PULUMI_AGENT_TOKEN_EXPIRATION=90m").TokenExpiration.String(), "1h30m0s"},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, tt.got, tt.want)
		}
	}
	if c := load("PULUMI_AGENT_OIDC_TOKEN_FILE=/run/token"); !c.UsesOIDC() || load().UsesOIDC() {
		t.Error("UsesOIDC ignores oidc_token_file")
	}
}

func TestOIDCWinsOverToken(t *testing.T) {
	path := writeFile(t, FileName, "token: pul-0123456789abcdef\noidc_token_file: /run/token\norganization_name: acme\nrunner_pool_id: pool\n")
	c, err := loadAndValidate(testOptions(path))
	if err != nil {
		t.Fatal(err)
	}
	if !c.UsesOIDC() || !slices.ContainsFunc(c.Warnings(), func(s string) bool { return strings.Contains(s, "token is not used") }) {
		t.Errorf("uses OIDC: %t; warnings: %q", c.UsesOIDC(), c.Warnings())
	}
}
