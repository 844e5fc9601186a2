package environ

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

func stepEnv(t *testing.T, environ []string, launch *protocol.Launch, definition map[string]string) map[string]string {
	t.Helper()
	for name, value := range missingProxy(environ, launch.Proxy) { // as UseProxy does
		environ = append(environ, name+"="+value)
	}
	e, err := New(t.TempDir(), "/PULUMI_ENV", environ, launch, &workflow.JobDefinition{Env: definition})
	if err != nil {
		t.Fatal(err)
	}
	return e.vars
}

func TestTheJournalsBatchPeriodIsADefault(t *testing.T) {
	const name = "PULUMI_JOURNALING_BATCH_PERIOD"
	for _, tt := range []struct {
		of                           string
		image, definition, forwarded string
		want                         string
	}{
		{of: "no layer", want: "2"},
		{of: "the image", image: "10", want: "10"},
		{of: "the definition", image: "10", definition: "20", want: "20"},
		{of: "the agent", image: "10", definition: "20", forwarded: "30", want: "30"},
	} {
		launch := &protocol.Launch{}
		var definition map[string]string
		if tt.definition != "" {
			definition = map[string]string{name: tt.definition}
		}
		if tt.forwarded != "" {
			launch.ForwardedEnv = map[string]string{name: tt.forwarded}
		}
		if got := stepEnv(t, []string{name + "=" + tt.image}, launch, definition)[name]; got != tt.want {
			t.Errorf("with the value of %s: %s is %q, want %q", tt.of, name, got, tt.want)
		}
	}
}

func TestProxyLayers(t *testing.T) {
	agent := map[string]string{"HTTPS_PROXY": "http://agent", "http_proxy": "http://agent", "NO_PROXY": ".agent"}
	const loopback = "localhost,127.0.0.1,::1"
	for _, tt := range []struct {
		name              string
		place             []string
		definition        map[string]string
		forwarded         map[string]string
		https, http, none string // expected values, in both cases of the name
	}{
		{"the agent's", nil, nil, nil, "http://agent", "http://agent", ".agent," + loopback},
		{"the image's", []string{"https_proxy=http://image"}, nil, nil, "http://image", "http://agent", ".agent," + loopback},
		{"the definition's", []string{"HTTPS_PROXY=http://image"}, map[string]string{"https_proxy": "http://settings"}, nil, "http://settings", "http://agent", ".agent," + loopback},
		{"none in the definition", nil, map[string]string{"HTTPS_PROXY": "", "HTTP_PROXY": ""}, nil, "", "", ".agent"},
		{"forwarded ones", nil, map[string]string{"https_proxy": "http://settings", "NO_PROXY": "*"}, map[string]string{"HTTPS_PROXY": "http://forwarded"}, "http://forwarded", "http://agent", "*"},
		{"loopback only once", nil, map[string]string{"no_proxy": "127.0.0.1 .local"}, nil, "http://agent", "http://agent", "127.0.0.1,.local,localhost,::1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			vars := stepEnv(t, tt.place, &protocol.Launch{Proxy: agent, ForwardedEnv: tt.forwarded}, tt.definition)
			for name, want := range map[string]string{"HTTPS_PROXY": tt.https, "HTTP_PROXY": tt.http, "NO_PROXY": tt.none} {
				if upper, lower := vars[name], vars[strings.ToLower(name)]; upper != want || lower != want {
					t.Errorf("%s is %q and %q, want %q", name, upper, lower, want)
				}
			}
		})
	}
	vars := stepEnv(t, nil, &protocol.Launch{}, nil)
	for _, name := range protocol.ProxyNames() {
		if value, ok := vars[name]; ok {
			t.Errorf("without a proxy %s is %q", name, value)
		}
	}
}

func TestProxyPasswordsAreSecrets(t *testing.T) {
	launch := &protocol.Launch{
		Proxy:      map[string]string{"HTTPS_PROXY": "http://user:agents-password@proxy"},
		Definition: &workflow.JobDefinition{Env: map[string]string{"http_proxy": "http://user:settings-password@proxy", "OTHER": "http://a:not-a-proxy@b"}},
	}
	var got []string
	for _, secret := range Secrets(launch) {
		if strings.HasPrefix(secret.Name, "the password in") {
			got = append(got, secret.Value)
		}
	}
	if diff := cmp.Diff([]string{"agents-password", "settings-password"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestCertificatesAreAddedToThoseOfThePlace(t *testing.T) {
	const extra = "-----BEGIN CERTIFICATE-----\nextra\n-----END CERTIFICATE-----\n"
	authority := func(name string) string {
		return "-----BEGIN CERTIFICATE-----\n" + name + "\n-----END CERTIFICATE-----\n"
	}
	dir := t.TempDir()
	for name, content := range map[string]string{
		"own.pem": authority("own"), "a.pem": authority("a"), "b.crt": authority("b"), "readme": "not a certificate",
	} {
		sub := "certs"
		if name == "own.pem" {
			sub = "."
		}
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, sub, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("a.pem", filepath.Join(dir, "certs", "0123abcd.0")); err != nil {
		t.Fatal(err)
	}
	vars := stepEnv(t, []string{"SSL_CERT_FILE=" + filepath.Join(dir, "own.pem"), "AWS_CA_BUNDLE=/the/images/own"}, &protocol.Launch{CACertPEM: extra}, nil)
	bundle := vars["SSL_CERT_FILE"]
	data, err := os.ReadFile(bundle)
	if err != nil || string(data) != authority("own")+"\n"+extra {
		t.Errorf("the bundle %s: %q, %v", bundle, data, err)
	}
	for _, name := range bundleNames {
		want := bundle
		if name == "AWS_CA_BUNDLE" {
			want = "/the/images/own"
		}
		if vars[name] != want {
			t.Errorf("%s is %q, want %q", name, vars[name], want)
		}
	}
	files, dirs := systemBundles, systemDirs
	systemBundles, systemDirs = nil, []string{filepath.Join(dir, "certs")}
	t.Cleanup(func() { systemBundles, systemDirs = files, dirs })
	vars = stepEnv(t, nil, &protocol.Launch{CACertPEM: extra}, nil)
	data, err = os.ReadFile(vars["SSL_CERT_FILE"])
	if want := authority("a") + "\n" + authority("b") + "\n\n" + extra; err != nil || string(data) != want {
		t.Errorf("the bundle is %q, %v; want %q", data, err, want)
	}
	// Without extra authorities, nothing changes.
	vars = stepEnv(t, []string{"SSL_CERT_FILE=/x"}, &protocol.Launch{}, nil)
	if vars["SSL_CERT_FILE"] != "/x" || vars["GIT_SSL_CAINFO"] != "" {
		t.Errorf("without extra authorities: %q, %q", vars["SSL_CERT_FILE"], vars["GIT_SSL_CAINFO"])
	}
}

// TestTheConfigurationWithAWSProfileReplacesTheGivenOne checks that the profile remains selectable.
func TestTheConfigurationWithAWSProfileReplacesTheGivenOne(t *testing.T) {
	given := map[string]string{"AWS_CONFIG_FILE": "/given", "AWS_ACCESS_KEY_ID": "given"}
	for name, e := range map[string]*workflow.JobDefinition{"settings": {Env: given}, "agent": {}} {
		launch := &protocol.Launch{}
		if e.Env == nil {
			launch.ForwardedEnv = given
		}
		environment, err := New(t.TempDir(), "/PULUMI_ENV", nil, launch, e)
		if err != nil {
			t.Fatal(err)
		}
		env, _, _ := environment.ForStep(map[string]string{"AWS_CONFIG_FILE": "/copy", "AWS_ACCESS_KEY_ID": "ours"})
		if !slices.Contains(env, "AWS_CONFIG_FILE=/copy") || !slices.Contains(env, "AWS_ACCESS_KEY_ID=given") {
			t.Errorf("given by %s: %q", name, env)
		}
	}
}

// TestBundlesThatCannotBeRead checks that a path in the image's environment does not hold the job.
func TestBundlesThatCannotBeRead(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	bundles := systemBundles
	systemBundles = []string{filepath.Join(t.TempDir(), "system.pem")}
	t.Cleanup(func() { systemBundles = bundles })
	if err := os.WriteFile(systemBundles[0], []byte("system"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, "/dev/zero"} {
		if got := trusted(path, ""); string(got) != "system" {
			t.Errorf("%s: got %d bytes, want the system's authorities", path, len(got))
		}
	}
}

// TestAnEngineOnTheNetworkIsReported forwards DOCKER_HOST to a job.
func TestAnEngineOnTheNetworkIsReported(t *testing.T) {
	for host, warned := range map[string]bool{"": false, "unix:///run/docker.sock": false, "tcp://127.0.0.1:2375": true} {
		launch := &protocol.Launch{ForwardedEnv: map[string]string{"DOCKER_HOST": host}}
		e, err := New(t.TempDir(), "/PULUMI_ENV", nil, launch, &workflow.JobDefinition{})
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(e.Notices, engineNotice) != warned {
			t.Errorf("DOCKER_HOST=%s: the notices are %q", host, e.Notices)
		}
	}
}

// TestFunctionsOfBashAreReserved checks a name by which bash replaces a program with a function.
func TestFunctionsOfBashAreReserved(t *testing.T) {
	const name = "BASH_FUNC_pulumi%%"
	e, err := New(t.TempDir(), "/PULUMI_ENV", nil, &protocol.Launch{}, &workflow.JobDefinition{Env: map[string]string{name: "() { evil; }"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, set := e.vars[name]; set || !strings.Contains(strings.Join(e.Notices, "\n"), name+", which is reserved") {
		t.Errorf("the variable is set: %v; the notices are %q", set, e.Notices)
	}
}
