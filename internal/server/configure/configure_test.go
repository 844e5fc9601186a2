package configure

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"workflowagent/internal/checkup"
	"workflowagent/internal/dev/dialogue"
	"workflowagent/internal/dev/lab/child"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/dev/testcert"
	"workflowagent/internal/server/config"
	"workflowagent/internal/server/doctor"
	"workflowagent/internal/settings"
)

// Exit codes of the configure command.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

func exitCode(err error) int {
	switch _, invalid := errors.AsType[settings.InvalidError](err); {
	case err == nil:
		return exitOK
	case invalid:
		return exitUsage
	}
	return exitFailed
}

// fileToWrite is the environment variable that makes the test binary configure a server on its
// terminal.
const fileToWrite = "TEST_CONFIGURE_FILE"

func TestMain(m *testing.M) {
	if file := os.Getenv(fileToWrite); file != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT)
		_, err := Run(ctx, Options{Load: config.ProcessOptions(file, nil), Version: "v1", In: os.Stdin, Out: os.Stdout})
		stop()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(exitCode(err))
	}
	os.Exit(storetest.Main(m))
}

// place is a directory in which tests configure a server.
type place struct {
	t                        *testing.T
	dir, file, data, address string
}

func newPlace(t *testing.T) *place {
	t.Helper()
	dir := t.TempDir()
	return &place{
		t: t, dir: dir, file: filepath.Join(dir, "etc", config.FileName), data: filepath.Join(dir, "data"),
		address: net.JoinHostPort("127.0.0.1", strconv.Itoa(must.Get(child.FreePort("127.0.0.1"))(t))),
	}
}

func (p *place) options(given map[string]string) Options {
	return Options{Load: config.LoadOptions{Path: p.file, Cwd: p.dir, Home: p.dir, UID: os.Geteuid()}, Version: "v1", In: strings.NewReader(""), Given: given}
}

func (p *place) run(o Options) (string, Result, int) {
	p.t.Helper()
	var out bytes.Buffer
	o.Out = &out
	result, err := Run(p.t.Context(), o)
	text := out.String()
	if err != nil {
		text += err.Error()
	}
	return text, result, exitCode(err)
}

func (p *place) content() string {
	p.t.Helper()
	return string(must.Get(os.ReadFile(p.file))(p.t))
}

// usual are flags with which a server can start.
func (p *place) usual() map[string]string {
	return map[string]string{
		"external_url": "https://deployments.example.com", "listen": p.address, "trusted_proxies": "127.0.0.1", "client_address": "x-forwarded-for", "data_dir": p.data,
	}
}

func TestConfigureWithFlags(t *testing.T) {
	p := newPlace(t)
	out, result, code := p.run(p.options(p.usual()))
	if code != exitOK || !result.Written || len(result.Changed) != 5 || len(result.Checks) == 0 {
		t.Fatalf("%d, %+v: %s", code, result, out)
	}
	for _, want := range []string{"Wrote " + p.file, p.address + " is free", "prints a link"} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q: %s", want, out)
		}
	}
	c := must.Get(config.Load(config.LoadOptions{Path: p.file, UID: os.Geteuid(), Cwd: p.dir}))(t)
	if c.ExternalURL != "https://deployments.example.com" || c.Listen != p.address || c.DataDir != p.data || c.TrustedProxies.String() != "127.0.0.1" {
		t.Errorf("got %+v", c)
	}
	if _, err := os.Stat(p.data); err == nil {
		t.Error("the data directory was created")
	}
	// Repeating the command changes nothing. The command below changes one line.
	before := p.content()
	if out, result, code := p.run(p.options(map[string]string{"listen": p.address})); code != exitOK || result.Written || !strings.Contains(out, "Nothing to change") {
		t.Errorf("%d, %+v: %s", code, result, out)
	}
	o := p.options(nil)
	o.Set = []string{"log_level=debug"}
	if out, _, code := p.run(o); code != exitOK || p.content() != before+"log_level: debug\n" {
		t.Errorf("%d: %s\n%s", code, out, p.content())
	}
}

// TestConfigureWithPlainHTTP checks that configure warns of a URL without TLS.
func TestConfigureWithPlainHTTP(t *testing.T) {
	p := newPlace(t)
	given := p.usual()
	for address, plain := range map[string]bool{"http://deployments.example.com": true, "https://deployments.example.com": false} {
		given["external_url"] = address
		if out, _, code := p.run(p.options(given)); code != exitOK || strings.Contains(out, "in plain text") != plain {
			t.Errorf("%s: %d: %s", address, code, out)
		}
	}
}

// TestConfigureKeepsTheSample checks that configure changes only the requested settings in the sample.
func TestConfigureKeepsTheSample(t *testing.T) {
	p := newPlace(t)
	sample := string(must.Get(os.ReadFile("../../../" + config.FileName + ".sample"))(t))
	must.OK(t, os.Mkdir(filepath.Dir(p.file), 0o700))
	must.OK(t, os.WriteFile(p.file, []byte(sample), 0o600))
	if out, _, code := p.run(p.options(map[string]string{"external_url": "https://a.example.com", "listen": p.address, "data_dir": p.data})); code != exitOK {
		t.Fatalf("%d: %s", code, out)
	}
	was, now := strings.Split(sample, "\n"), strings.Split(p.content(), "\n")
	changed := 0
	for i := range was {
		if i < len(now) && was[i] != now[i] {
			changed++
		}
	}
	if len(was) != len(now) || changed != 3 {
		t.Errorf("%d lines became %d, and %d of them differ:\n%s", len(was), len(now), changed, p.content())
	}
}

func TestConfigureRefuses(t *testing.T) {
	for _, tt := range []struct {
		name  string
		given map[string]string
		set   []string
		code  int
		want  string
	}{
		{"nothing to do", nil, nil, exitUsage, "no setting is given"},
		{"a secret as an argument", nil, []string{"metrics_token=hunter2"}, exitUsage, "metrics_token_file"},
		{"a password as an argument", map[string]string{"database": "postgres://u:hunter2@h/d"}, nil, exitUsage, "--database-password-file"},
		{"an unknown key", nil, []string{"lisen=x"}, exitUsage, "did you mean listen?"},
		{"a bad value", map[string]string{"external_url": "ftp://x"}, nil, exitUsage, "--external-url: has a scheme"},
		{"half of a certificate", map[string]string{"tls_cert_file": "/c"}, nil, exitUsage, "--tls-cert-file: needs tls_key_file"},
		{"a URL on loopback", map[string]string{"external_url": "http://localhost:8800"}, nil, exitFailed, "--allow-loopback"},
		{"no certificate", map[string]string{"tls_cert_file": "/c", "tls_key_file": "/k"}, nil, exitFailed, "a check failed"},
		{"no database", map[string]string{"database": "postgres://u@127.0.0.1:1/d"}, nil, exitFailed, "a check failed"},
		{"an address of another machine", map[string]string{"listen": "192.0.2.1:80"}, nil, exitFailed, "a check failed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlace(t)
			must.OK(t, os.Mkdir(filepath.Dir(p.file), 0o700))
			before := "# mine\nexternal_url: https://deployments.example.com\nlisten: " + p.address + "\ndata_dir: " + p.data + "\n"
			must.OK(t, os.WriteFile(p.file, []byte(before), 0o600))
			o := p.options(tt.given)
			o.Set = tt.set
			out, _, code := p.run(o)
			if code != tt.code || !strings.Contains(out, tt.want) || strings.Contains(out, "hunter2") {
				t.Errorf("%d; want %d and %q: %s", code, tt.code, tt.want, out)
			}
			if p.content() != before {
				t.Errorf("the file was changed:\n%s", p.content())
			}
			if tt.code == exitFailed {
				o.NoCheck, o.AllowLoopback = true, true
				if out, _, code := p.run(o); code != exitOK {
					t.Errorf("without checks: %d: %s", code, out)
				}
			}
		})
	}
}

// TestNoURL checks that a new file without a URL needs a confirmation, and gets an absolute data
// directory.
func TestNoURL(t *testing.T) {
	p := newPlace(t)
	o := p.options(map[string]string{"listen": p.address})
	if out, _, code := p.run(o); code != exitFailed || !strings.Contains(out, "external_url is not set") {
		t.Errorf("%d: %s", code, out)
	}
	o.AllowLoopback = true
	o.Load.UID = 12345 // not root, whose data are in /var/lib
	if out, _, code := p.run(o); code != exitOK {
		t.Errorf("%d: %s", code, out)
	}
	if want := "data_dir: \"" + filepath.Join(p.dir, "workflow-server-data") + "\"\n"; !strings.Contains(p.content(), want) {
		t.Errorf("the file lacks %s:\n%s", want, p.content())
	}
}

func (p *place) onTerminal() *dialogue.Dialogue {
	p.t.Helper()
	return dialogue.Start(p.t, fileToWrite+"="+p.file)
}

// TestConfigureBehindAProxy answers the questions of a server behind a proxy, with SQLite.
func TestConfigureBehindAProxy(t *testing.T) {
	p := newPlace(t)
	d := p.onTerminal()
	d.Expect("reach the server: ")
	d.Say("http://localhost:8800\n")
	d.Expect("only this machine reaches the server, and stacks store the URL. Use it nevertheless? [y/N]: ")
	d.Say("n\n")
	if code, shown := d.Ended(); code != exitFailed || !strings.Contains(shown, "nothing was written") {
		t.Fatalf("exit code %d: %s", code, shown)
	}
	d = p.onTerminal()
	d.Expect("reach the server: ")
	d.Say("https://no-such-host.invalid\n")
	d.Expect("fail  DNS of the URL")
	d.Expect("[https://no-such-host.invalid]: ")
	d.Say("https://127.0.0.1\n")
	d.Expect("[y/N]: ")
	d.Say("y\n")
	d.Expect("Who terminates TLS")
	d.Expect("[proxy]: ")
	d.Say("nobody\n")
	d.Expect("Answer acme, files or proxy.")
	d.Say("acme\n")
	d.Expect("external_url: host 1 of external_url and console_url is an address instead of a name")
	d.Say("\n")
	d.Expect("[127.0.0.1:8800]: ")
	d.Say(p.address + "\n")
	d.Expect("[127.0.0.1, ::1]: ")
	d.Say("\n")
	d.Expect("[x-forwarded-for]: ")
	d.Say("\n")
	d.Expect("contains the master key")
	d.Expect("Directory for keys and data [")
	d.Say(p.data + "\n")
	d.Expect("for one server")
	d.Expect("[sqlite]: ")
	d.Say("\n")
	if code, shown := d.Ended(); code != exitOK || !strings.Contains(shown, "Wrote "+p.file) {
		t.Fatalf("exit code %d: %s", code, shown)
	}
	want := header + "external_url: \"https://127.0.0.1\"\nlisten: \"" + p.address + "\"\ntrusted_proxies: \"127.0.0.1, ::1\"\nclient_address: \"x-forwarded-for\"\ndata_dir: \"" + p.data + "\"\n"
	if got := p.content(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	// Pressing Enter keeps every value.
	d = p.onTerminal()
	for _, prompt := range []string{"[https://127.0.0.1]: ", "[proxy]: ", "[" + p.address + "]: ", "[127.0.0.1, ::1]: ", "[x-forwarded-for]: ", "[" + p.data + "]: ", "[sqlite]: "} {
		d.Expect(prompt)
		d.Say("\n")
	}
	if code, shown := d.Ended(); code != exitOK || !strings.Contains(shown, "Nothing to change") || p.content() != want {
		t.Errorf("exit code %d: %s", code, shown)
	}
}

// TestConfigureWithTLSAndPostgres answers the questions of a server with a certificate, a role without
// rights, and then another one.
func TestConfigureWithTLSAndPostgres(t *testing.T) {
	p := newPlace(t)
	admin := must.Get(url.Parse(storetest.PostgresURL(t)))(t)
	password, _ := admin.User.Password()
	name := admin.User.Username()
	admin.User = url.User(name)
	cert, key := filepath.Join(p.dir, "cert.pem"), filepath.Join(p.dir, "key.pem")
	ca := must.Get(testcert.NewAuthority("the company"))(t)
	must.OK(t, testcert.Write(must.Get(ca.Issue(&x509.Certificate{}, "127.0.0.1"))(t), cert, key))
	d := p.onTerminal()
	d.Expect("reach the server: ")
	d.Say("https://127.0.0.1:8443\n")
	d.Expect("[y/N]: ")
	d.Say("y\n")
	d.Expect("[proxy]: ")
	d.Say("files\n")
	d.Expect("(PEM): ")
	d.Say(p.dir + "/missing.pem\n")
	d.Expect("missing.pem: no such file")
	d.Expect("missing.pem]: ")
	d.Say(cert + "\n")
	d.Expect("(PEM): ")
	d.Say(cert + "\n") // the certificate is not its key
	d.Expect("fail  certificate")
	d.Expect("(PEM) [")
	d.Say(key + "\n")
	d.Expect("[0.0.0.0:8443]: ")
	d.Say(p.address + "\n")
	d.Expect("Directory for keys and data [")
	d.Say(p.data + "\n")
	d.Expect("[sqlite]: ")
	d.Say("postgres://me:hunter2@db.example.com/x\n")
	d.Expect("Write it without the password")
	d.Say("postgres://me@127.0.0.1:1/x\n")
	d.Expect("not shown [none]: ")
	d.Say("\n")
	d.Expect("does not accept connections")
	d.Expect("[postgres://me@127.0.0.1:1/x]: ")
	d.Say(admin.String() + "\n")
	d.Expect("Password of the role, not shown [none]: ")
	d.Say("wrong-password\n")
	d.Expect("password authentication failed")
	d.Expect("[" + admin.String() + "]: ")
	d.Say("\n")
	d.Expect("[the one just given]: ")
	d.Say(password + "\n")
	code, shown := d.Ended()
	if code != exitOK || strings.Contains(shown, password) || strings.Contains(shown, "wrong-password") {
		t.Fatalf("exit code %d: %s", code, shown)
	}
	c := must.Get(config.Load(config.LoadOptions{Path: p.file, UID: os.Geteuid(), Cwd: p.dir}))(t)
	if c.TLSKey != key || c.DatabasePassword.Reveal() != password || string(c.Database) != admin.String() || !c.TrustedProxies.Empty() {
		t.Errorf("the file holds\n%s", p.content())
	}
	if info := must.Get(os.Stat(p.file))(t); info.Mode().Perm()&0o007 != 0 {
		t.Errorf("the file has mode %v", info.Mode())
	}
}

// TestConfigureWithACME answers the questions of a server that obtains its certificate, and then those of
// one behind a proxy.
func TestConfigureWithACME(t *testing.T) {
	p := newPlace(t)
	for _, agreed := range []bool{false, true} {
		d := p.onTerminal()
		d.Expect("reach the server: ")
		d.Say("https://localhost:8443\n")
		d.Expect("[y/N]: ")
		d.Say("y\n")
		d.Expect("[proxy]: ")
		d.Say("acme\n")
		d.Expect("external_url: host 1 of external_url and console_url has no domain")
		d.Say("\x03")
		d.Ended()
		d = p.onTerminal()
		d.Expect("reach the server: ")
		d.Say("no-such-host.invalid:8443\n")
		d.Expect("fail  DNS of the URL")
		d.Expect("[https://no-such-host.invalid:8443]: ")
		d.Say("\n")
		d.Expect("Keeping external_url, although its check failed.")
		d.Expect("[proxy]: ")
		d.Say("acme\n")
		d.Expect("[" + config.LetsEncrypt + "]: ")
		d.Say("https://ca.example.com/directory\n")
		d.Expect("terms of service of the authority at https://ca.example.com/directory? [y/N]: ")
		if !agreed {
			d.Say("\n")
			if code, shown := d.Ended(); code != exitFailed || !strings.Contains(shown, "without your agreement") {
				t.Errorf("exit code %d: %s", code, shown)
			}
			continue
		}
		d.Say("yes\n")
		d.Expect("[0.0.0.0:8443]: ")
		d.Say(p.address + "\n")
		d.Expect("Directory for keys and data [")
		d.Say(p.data + "\n")
		d.Expect("[sqlite]: ")
		d.Say("\n")
		if code, shown := d.Ended(); code != exitOK {
			t.Fatalf("exit code %d: %s", code, shown)
		}
	}
	c := must.Get(config.Load(config.LoadOptions{Path: p.file, UID: os.Geteuid(), Cwd: p.dir}))(t)
	if !c.ACMETerms || c.ACMEDirectory != "https://ca.example.com/directory" || c.Listen != p.address {
		t.Errorf("the file holds\n%s", p.content())
	}
	d := p.onTerminal()
	d.Expect("reach the server [https://no-such-host.invalid:8443]: ")
	d.Say("\n")
	d.Expect("[acme]: ")
	d.Say("proxy\n")
	for range 5 {
		d.Expect("]: ")
		d.Say("\n")
	}
	if code, shown := d.Ended(); code != exitOK || strings.Contains(p.content(), "acme") {
		t.Errorf("exit code %d: %s\n%s", code, shown, p.content())
	}
}

// TestNext checks that configure advises the operator to restart a running server, also one with other settings.
func TestNext(t *testing.T) {
	for _, tt := range []struct {
		result checkup.Result
		want   string
	}{
		{checkup.Result{Status: checkup.StatusOK}, "Restart the running server"},
		{checkup.Result{Status: checkup.StatusWarn, Finding: doctor.ServerSettings}, "Restart the running server"},
		{checkup.Result{Status: checkup.StatusWarn, Finding: "server-stopped"}, "systemctl restart workflow-server"},
	} {
		tt.result.Name = "server"
		w := &writer{result: Result{Checks: []checkup.Result{tt.result}}}
		if got := w.next(); !strings.Contains(got, tt.want) {
			t.Errorf("%+v: %s", tt.result, got)
		}
	}
}

// TestConfigureInterrupted checks that after Ctrl-C nothing is written.
func TestConfigureInterrupted(t *testing.T) {
	p := newPlace(t)
	d := p.onTerminal()
	d.Expect("reach the server: ")
	d.Say("https://127.0.0.1\n")
	d.Expect("[y/N]: ")
	d.Say("\x03")
	code, shown := d.Ended()
	if _, err := os.Stat(p.file); code != exitFailed || err == nil || !strings.Contains(shown, "nothing was written") {
		t.Errorf("exit code %d, file %v: %s", code, err, shown)
	}
}

// TestConfigureForTheService checks that root's new file can be read by the group of the server's user.
func TestConfigureForTheService(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files to a group")
	}
	p := newPlace(t)
	must.OK(t, os.Mkdir(p.data, 0o700))
	must.OK(t, os.Chown(p.data, 12345, 12345))
	if out, _, code := p.run(p.options(p.usual())); code != exitOK {
		t.Fatalf("%d: %s", code, out)
	}
	info := must.Get(os.Stat(p.file))(t)
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || info.Mode().Perm() != 0o640 || stat.Uid != 0 || stat.Gid != 12345 {
		t.Errorf("the file is %v of %d:%d", info.Mode(), stat.Uid, stat.Gid)
	}
}

// TestConfigureSignIn checks that configure examines the files that the file with the providers names.
func TestConfigureSignIn(t *testing.T) {
	p := newPlace(t)
	providers, secret := filepath.Join(p.dir, "sign-in.yaml"), filepath.Join(p.dir, "secret")
	must.OK(t, os.WriteFile(providers, []byte("providers: [{id: corp, issuer: https://login.example.com, client_id: x, allow_everyone: true, client_secret_file: secret}]\n"), 0o600))
	o := p.options(p.usual())
	o.Set = []string{"sign_in_file=" + providers}
	if out, result, code := p.run(o); code != exitFailed || result.Written || !strings.Contains(out, "client_secret_file of corp: "+secret) {
		t.Errorf("without the secret: exit code %d: %s", code, out)
	}
	must.OK(t, os.WriteFile(secret, []byte("x"), 0o600))
	if out, _, code := p.run(o); code != exitOK {
		t.Errorf("with the secret: exit code %d: %s", code, out)
	}
}

// TestConfigureAnotherDatabase checks that a change to PostgreSQL leaves no SQLite database behind unnoticed.
func TestConfigureAnotherDatabase(t *testing.T) {
	p := newPlace(t)
	if out, _, code := p.run(p.options(p.usual())); code != exitOK {
		t.Fatalf("%d: %s", code, out)
	}
	before := p.content()
	change := p.options(map[string]string{"database": "postgres://me@127.0.0.1:1/x"})
	change.NoCheck = true
	must.OK(t, os.Mkdir(p.data, 0o700))
	path := filepath.Join(p.data, "server.db")
	must.OK(t, os.WriteFile(path, []byte("x"), 0o600))
	out, result, code := p.run(change)
	if code != exitFailed || result.Written || p.content() != before || !strings.Contains(out, path) || !strings.Contains(out, "workflow-server backup") {
		t.Errorf("exit code %d: %s", code, out)
	}
	for name, untouched := range map[string]func(context.Context, string) (bool, error){
		"used": func(context.Context, string) (bool, error) { return false, nil }, "unreadable": func(context.Context, string) (bool, error) { return true, errors.New("no") },
	} {
		change.Untouched = untouched
		if out, result, code := p.run(change); code != exitFailed || result.Written {
			t.Errorf("%s: exit code %d: %s", name, code, out)
		}
	}
	change.Untouched = func(_ context.Context, file string) (bool, error) { return file == path, nil }
	if out, result, code := p.run(change); code != exitOK || !result.Written || !strings.Contains(out, path+" contains nothing to move") {
		t.Errorf("untouched: exit code %d: %s", code, out)
	}
	change.Untouched = nil
	must.OK(t, os.WriteFile(p.file, []byte(before), 0o600))
	change.AllowNewDatabase = true
	if out, result, code := p.run(change); code != exitOK || !result.Written {
		t.Errorf("with the flag: exit code %d: %s", code, out)
	}
	// The SQLite database is not in use now.
	change.AllowNewDatabase, change.Given = false, map[string]string{"database": "postgres://me@127.0.0.1:1/y"}
	if out, result, code := p.run(change); code != exitOK || !result.Written {
		t.Errorf("from PostgreSQL to PostgreSQL: exit code %d: %s", code, out)
	}
}

// TestConfigureInDirectoriesOfOthers checks that root writes nothing where another user could lead it elsewhere.
func TestConfigureInDirectoriesOfOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	for name, prepare := range map[string]func(t *testing.T, p *place, dir string){
		"a directory of another user": func(t *testing.T, _ *place, dir string) { must.OK(t, os.Chown(dir, 12345, 12345)) },
		"a directory for all":         func(t *testing.T, _ *place, dir string) { must.OK(t, os.Chmod(dir, 0o777)) },
		"a new directory in another's": func(t *testing.T, p *place, dir string) {
			must.OK(t, os.Chown(dir, 12345, 12345))
			p.file = filepath.Join(dir, "new", config.FileName)
		},
		"a file with a link of another user": func(t *testing.T, p *place, dir string) {
			target := filepath.Join(p.dir, "target")
			must.OK(t, os.WriteFile(target, []byte("{}\n"), 0o644))
			must.OK(t, os.Symlink(target, p.file))
			must.OK(t, os.Lchown(p.file, 12345, 12345))
			t.Cleanup(func() {
				info := must.Get(os.Stat(target))(t)
				if stat, ok := info.Sys().(*syscall.Stat_t); !ok || info.Mode() != 0o644 || stat.Gid != 0 || string(must.Get(os.ReadFile(target))(t)) != "{}\n" {
					t.Error("the target has changed")
				}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			dir := filepath.Dir(p.file)
			must.OK(t, os.Mkdir(dir, 0o755))
			prepare(t, p, dir)
			out, result, code := p.run(p.options(p.usual()))
			if code != exitFailed || result.Written || !strings.Contains(out, "not writing "+p.file+" as root") {
				t.Errorf("exit code %d: %s", code, out)
			}
			if info, err := os.Lstat(p.file); err == nil && info.Mode().IsRegular() {
				t.Error("the file was written")
			}
		})
	}
}
