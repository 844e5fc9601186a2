package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/dev/must"
)

func write(t *testing.T, path, text string) string {
	t.Helper()
	must.OK(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must.OK(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// TestSearchOrder checks that the first file wins and that the others are named.
func TestSearchOrder(t *testing.T) {
	root := t.TempDir()
	o := LoadOptions{
		Cwd: filepath.Join(root, "cwd"), Home: filepath.Join(root, "home"), Etc: filepath.Join(root, "etc"),
		Binary: filepath.Join(root, "bin", "workflow-server"), UID: os.Geteuid(),
	}
	var files []string
	for _, dir := range []string{"bin", "etc", "home", "cwd"} {
		path := write(t, filepath.Join(root, dir, FileName), "organization: "+dir+"\n")
		c := must.Get(Load(o))(t)
		if c.Organization != dir || c.File() != path || c.Source("organization").String() != path+":1" {
			t.Errorf("%s: got %q from %q", dir, c.Organization, c.Source("organization"))
		}
		var warnings []string
		for _, shadowed := range files {
			warnings = append(warnings, shadowed+" is not used, because "+path+" comes first")
		}
		slices.Reverse(warnings)
		if diff := cmp.Diff(warnings, c.Warnings()); diff != "" {
			t.Errorf("%s: warnings (-want +got):\n%s", dir, diff)
		}
		files = append(files, path)
	}
	o.Path = filepath.Join(root, "other.yaml")
	if _, err := Load(o); err == nil || !strings.Contains(err.Error(), "other.yaml given with --config does not exist") {
		t.Errorf("a given file that does not exist: %v", err)
	}
	write(t, o.Path, "organization: other\n")
	if c := must.Get(Load(o))(t); c.Organization != "other" || len(c.Warnings()) > 0 {
		t.Errorf("a given file: %q, %v", c.Organization, c.Warnings())
	}
}

func TestProcessOptions(t *testing.T) {
	t.Setenv("WORKFLOW_SERVER_CONFIG", "/from/variable.yaml")
	o := ProcessOptions("", map[string]string{"listen": "x"})
	if o.Path != "/from/variable.yaml" || o.Etc != "/etc/workflow-server" || o.Cwd == "" || !filepath.IsAbs(o.Binary) || o.UID != os.Geteuid() {
		t.Errorf("path %q, etc %q, cwd %q, binary %q", o.Path, o.Etc, o.Cwd, o.Binary)
	}
	if o := ProcessOptions("x.yaml", nil); o.Path != "x.yaml" {
		t.Errorf("the flag does not override the variable: %q", o.Path)
	}
}

// TestStateDirectory checks the default data directory in a service of systemd.
func TestStateDirectory(t *testing.T) {
	for _, tt := range []struct {
		variable, file, want string
		flags                map[string]string
	}{
		{"", "", "/cwd/workflow-server-data", nil},
		{"/var/lib/workflow-server", "", "/var/lib/workflow-server", nil},
		{"/var/lib/a:/var/lib/b", "data_dir:\n", "/var/lib/a", nil},
		{"/var/lib/a", "data_dir: /srv/data\n", "/srv/data", nil},
		{"/var/lib/a", "data_dir: /srv/data\n", "/var/lib/a", map[string]string{"data_dir": ""}},
		{"relative", "", "/cwd/workflow-server-data", nil},
	} {
		o := LoadOptions{Cwd: "/cwd", Environ: []string{"STATE_DIRECTORY=" + tt.variable}, Flags: tt.flags}
		c := must.Get(LoadText(o, "FILE", []byte(tt.file)))(t)
		if c.DataDir != tt.want {
			t.Errorf("%+v: got %q", tt, c.DataDir)
		}
	}
}

func TestFileTrust(t *testing.T) {
	const withSecret = "metrics_token: hunter2hunter2\n"
	path := write(t, filepath.Join(t.TempDir(), FileName), withSecret)
	o := LoadOptions{Path: path, UID: os.Geteuid(), Cwd: "/cwd"}
	for _, tt := range []struct {
		text     string
		mode     os.FileMode
		problem  string
		warnings int
	}{
		{withSecret, 0o600, "", 0},
		{withSecret, 0o644, "", 1},
		{"database_password: hunter2hunter2\ndatabase: postgres://u@h/d\n", 0o644, "", 1},
		{"database: postgres://u:hunter2hunter2@h/d\n", 0o644, "", 1},
		{"database: postgres://u@h/d?password=hunter2hunter2\n", 0o644, "", 1},
		{"database: postgres://u@h/d\nmetrics_token_file: " + path + "\n", 0o644, "lines", 0},
		{"listen: 127.0.0.1:1\n", 0o644, "", 0},
		{withSecret, 0o620, "who could change the settings of this server: run chmod go-w on it", 0},
	} {
		write(t, path, tt.text)
		must.OK(t, os.Chmod(path, tt.mode))
		c, err := Load(o)
		if tt.problem != "" && (err == nil || !strings.Contains(err.Error(), tt.problem)) || tt.problem == "" && err != nil || len(c.Warnings()) != tt.warnings {
			t.Errorf("%q %04o: %v, %v", tt.text, tt.mode, c.Warnings(), err)
		}
		if text := fmt.Sprintf("%v %+v %v %v", err, c, c.Warnings(), c.Settings()); strings.Contains(text, "hunter2") {
			t.Errorf("%q: the secret shows in %s", tt.text, text)
		}
	}
}

func TestDatabasePassword(t *testing.T) {
	secret := write(t, filepath.Join(t.TempDir(), "password"), "p@ss/w\n")
	credentials := t.TempDir()
	write(t, filepath.Join(credentials, "database_password"), "from-credential")
	write(t, filepath.Join(credentials, "metrics_token"), "token")
	key := write(t, filepath.Join(credentials, "master_key"), "key")
	env := func(pairs ...string) LoadOptions {
		return LoadOptions{Cwd: "/cwd", Environ: pairs}
	}
	flags := func(o LoadOptions, database string) LoadOptions {
		o.Flags = map[string]string{"database": database}
		return o
	}
	for _, tt := range []struct {
		name          string
		o             LoadOptions
		want, problem string
	}{
		{"none", env("WORKFLOW_SERVER_DATABASE=postgres://u@h/d"), "postgres://u@h/d", ""},
		{"a file", flags(env("WORKFLOW_SERVER_DATABASE_PASSWORD_FILE="+secret), "postgres://u@h:5/d?x=y"), "postgres://u:p%40ss%2Fw@h:5/d?x=y", ""},
		{"a variable", flags(env("WORKFLOW_SERVER_DATABASE_PASSWORD=p"), "postgres://u@h/d"), "postgres://u:p@h/d", ""},
		{"a credential", flags(env("CREDENTIALS_DIRECTORY="+credentials), "postgres://u@h/d"), "postgres://u:from-credential@h/d", ""},
		{"in the URL of a variable", env("WORKFLOW_SERVER_DATABASE=postgres://u:p@h/d"), "postgres://u:p@h/d", ""},
		{"on the command line", flags(env(), "postgres://u:hunter2@h/d"), "", "flag --database: database: contains a password"},
		{"as a parameter on the command line", flags(env(), "postgres://u@h/d?password=hunter2"), "", "flag --database: database: contains a password"},
		{"SQLite", env("WORKFLOW_SERVER_DATABASE_PASSWORD=p"), "", "env WORKFLOW_SERVER_DATABASE_PASSWORD: database_password: is set, but the database is not PostgreSQL"},
		{"no user", flags(env("WORKFLOW_SERVER_DATABASE_PASSWORD=p"), "postgres://h/d"), "", "names no user"},
		{"two passwords", env("WORKFLOW_SERVER_DATABASE_PASSWORD=p", "WORKFLOW_SERVER_DATABASE=postgres://u:hunter2@h/d"), "", "in addition to database_password"},
		{"not a URL", env("WORKFLOW_SERVER_DATABASE=postgres://u:hunter2#%zz@h"), "", "is not a URL"},
	} {
		c, err := Load(tt.o)
		if tt.problem != "" {
			if err == nil || !strings.Contains(err.Error(), tt.problem) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s: got %v, want %s", tt.name, err, tt.problem)
			}
			continue
		}
		if err != nil || c.DSN() != tt.want {
			t.Errorf("%s: got %q, %v; want %q", tt.name, c.DSN(), err, tt.want)
		}
		if tt.name == "a credential" && (c.MasterKeyFile != key || c.MetricsToken.Reveal() != "token") {
			t.Errorf("the other credentials were not used: %q", c.MasterKeyFile)
		}
	}
}

func TestUnknownVariables(t *testing.T) {
	c := must.Get(Load(LoadOptions{Cwd: "/cwd", Environ: []string{
		"WORKFLOW_SERVER_LISTN=1", "WORKFLOW_SERVER_CONFIG=x", "WORKFLOW_SERVER_PORT=tcp://10.0.0.1:80", "WORKFLOW_SERVER_PORT_80_TCP_ADDR=10.0.0.1",
		"WORKFLOW_SERVER_SERVICE_HOST=10.0.0.1", "WORKFLOW_SERVER_SERVICE_PORT_HTTP=80", "WORKFLOW_SERVER_EMPTY=",
	}}))(t)
	want := []string{"the variable WORKFLOW_SERVER_LISTN is not one of this server's settings and has no effect"}
	if diff := cmp.Diff(want, c.Warnings()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestChanged(t *testing.T) {
	load := func(text string) Config {
		return must.Get(LoadText(LoadOptions{Cwd: "/cwd"}, "FILE", []byte(text)))(t)
	}
	before, after := load("log_level: debug\nlisten: 127.0.0.1:1\n"), load("metrics_token: x\n")
	applied, restart := before.Changed(after)
	if diff := cmp.Diff([][]string{{"metrics_token", "log_level"}, {"listen"}}, [][]string{applied, restart}); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if applied, restart = before.Reloaded(after).Changed(after); len(applied) != 0 || !slices.Equal(restart, []string{"listen"}) {
		t.Errorf("after a reload, %q and %q differ", applied, restart)
	}
	different := "metrics_token_file: " + write(t, filepath.Join(t.TempDir(), "token"), "y") + "\nlog_level: error\nlog_format: json\n"
	if applied, _ = before.Reloaded(load(different)).Changed(load(different)); len(applied) != 0 {
		t.Errorf("a reload does not apply %q", applied)
	}
}

func TestExternalURL(t *testing.T) {
	c, err := Load(LoadOptions{Cwd: "/cwd", Flags: map[string]string{"external_url": "https://h:1//"}})
	if err != nil || c.ExternalURL != "https://h:1" {
		t.Errorf("external URL = %q, %v", c.ExternalURL, err)
	}
}

func TestNetworkSettings(t *testing.T) {
	for _, test := range []struct {
		flags map[string]string
		want  string
	}{
		{map[string]string{"tls_cert_file": "c.pem"}, "set both, or none"},
		{map[string]string{"tls_key_file": "k.pem"}, "set both, or none"},
		{map[string]string{"tls_cert_file": "c.pem", "tls_key_file": "k.pem", "external_url": "http://a.example.com"}, "begin it with https"},
		{map[string]string{"redirect_listen": ":80"}, "does not use TLS"},
		{map[string]string{"acme_email": "a@example.com"}, "has no effect without acme_agree_to_terms"},
		{map[string]string{"acme_directory": "https://acme.example.com"}, "has no effect without acme_agree_to_terms"},
		{map[string]string{"acme_agree_to_terms": "true"}, "does not know the name"},
		{map[string]string{"acme_agree_to_terms": "true", "external_url": "http://a.example.com"}, "begin it with https"},
		{map[string]string{"acme_agree_to_terms": "true", "external_url": "https://a.example.com", "tls_cert_file": "c.pem", "tls_key_file": "k.pem"}, "remove one of them"},
		{map[string]string{"acme_agree_to_terms": "true", "external_url": "https://192.168.1.20"}, "host 1 of external_url and console_url is an address"},
		{map[string]string{"acme_agree_to_terms": "true", "external_url": "https://deployments"}, "full name"},
		{map[string]string{"acme_agree_to_terms": "true", "acme_names": "a.example.com, *.example.com"}, "entry 2 is a wildcard"},
		{map[string]string{"acme_agree_to_terms": "true", "acme_names": "a_b.example.com"}, "is not a host name"},
		{map[string]string{"acme_agree_to_terms": "true", "acme_names": "a.example.com", "listen": "unix:/s"}, "authority cannot reach"},
		{map[string]string{"acme_agree_to_terms": "true", "acme_names": "a.example.com", "acme_eab_key_id": "k"}, "set both, or none"},
		{map[string]string{"acme_agree_to_terms": "true", "acme_names": "a.example.com", "acme_email": "operator"}, "is not an email address"},
		{map[string]string{"acme_agree_to_terms": "true", "acme_names": "a.example.com", "acme_directory": "http://acme.example.com"}, "must begin with https"},
		{map[string]string{"listen": "unix:http.sock"}, "unix:/run/workflow-server/http.sock"},
		{map[string]string{"client_address": "forwarded"}, "needs trusted_proxies"},
		{map[string]string{"trusted_proxies": "10.0.0.0/8"}, "trusted_proxies has no effect"},
		{map[string]string{"client_address": "x-real-ip"}, "client-address"},
		{map[string]string{"tls_cert_file": "c.pem", "tls_key_file": "k.pem", "console_url": "http://a.example.com"}, "console_url"},
		{map[string]string{"listen": "unix:/s", "client_address": "forwarded", "trusted_proxies": "127.0.0.1"}, "must contain unix"},
		{map[string]string{"client_address": "forwarded", "trusted_proxies": "unix"}, "does not listen on a unix socket"},
		{map[string]string{"listen": "unix:/s", "runners": "1"}, "runners cannot reach"},
		{map[string]string{"client_address": "proxy-protocol", "trusted_proxies": "127.0.0.1", "runners": "1"}, "do not speak"},
	} {
		if _, err := Load(LoadOptions{Flags: test.flags, Cwd: t.TempDir()}); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: %v, want %q", test.flags, err, test.want)
		}
	}
}

func TestCertificateNames(t *testing.T) {
	for _, test := range []struct {
		flags map[string]string
		want  []string
	}{
		{map[string]string{"external_url": "https://a.example.com:8443"}, []string{"a.example.com"}},
		{map[string]string{"external_url": "https://api.example.com"}, []string{"api.example.com", "app.example.com"}},
		{map[string]string{"external_url": "https://a.example.com", "console_url": "https://b.example.com"}, []string{"a.example.com", "b.example.com"}},
		{map[string]string{"external_url": "https://a.example.com", "acme_names": "b.example.com, c.example.com"}, []string{"b.example.com", "c.example.com"}},
	} {
		test.flags["acme_agree_to_terms"] = "true"
		c := must.Get(Load(LoadOptions{Flags: test.flags, Cwd: t.TempDir()}))(t)
		if got := c.CertificateNames(); !slices.Equal(got, test.want) || !c.TLS() {
			t.Errorf("%v: %q, want %q", test.flags, got, test.want)
		}
	}
}
