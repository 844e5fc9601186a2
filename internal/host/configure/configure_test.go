package configure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/checkup"
	"workflowagent/internal/dev/dialogue"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/testcert"
	"workflowagent/internal/protocol"
)

const goodToken = "pul-0123456789good"

// site is a directory in which tests configure an agent, and a server that accepts one token.
type site struct {
	dir, file string
	url       string
	polls     int
}

func newSite(t *testing.T) *site {
	t.Helper()
	w := &site{dir: t.TempDir()}
	w.file = filepath.Join(w.dir, "agent.yaml")
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path != protocol.StatusProbe {
			w.polls++
		}
		code := http.StatusUnauthorized
		if r.Header.Get("Authorization") == "token "+goodToken {
			code = http.StatusNotFound
		}
		rw.WriteHeader(code)
	}))
	t.Cleanup(server.Close)
	w.url = server.URL
	if err := os.WriteFile(filepath.Join(w.dir, "workflow-runner"), []byte("#!/bin/sh\necho v9.8.7\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PULUMI_AGENT_WORKING_DIRECTORY", w.dir)
	t.Setenv("PULUMI_AGENT_STATE_DIRECTORY", filepath.Join(w.dir, "state"))
	t.Setenv("PULUMI_AGENT_TOKEN", "")
	t.Setenv("PULUMI_AGENT_SERVICE_URL", "")
	t.Setenv("PULUMI_AGENT_DEPLOY_TARGET", "")
	return w
}

// Exit codes of the configure command.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

func exitCode(err error) int {
	switch _, invalid := errors.AsType[config.InvalidError](err); {
	case err == nil:
		return exitOK
	case invalid:
		return exitUsage
	}
	return exitFailed
}

// configure runs the command without a terminal.
func (w *site) configure(t *testing.T, stdin string, o Options) (string, int, error) {
	t.Helper()
	var out bytes.Buffer
	o.Load, o.Version, o.In, o.Out = config.ProcessOptions(w.file), "v9.8.7", strings.NewReader(stdin), &out
	err := Run(t.Context(), o)
	text := out.String()
	if err != nil {
		text += err.Error()
	}
	if strings.Contains(text, "0123456789") {
		t.Errorf("the token shows: %s", text)
	}
	if w.polls > 0 {
		t.Error("the server was polled")
	}
	return text, exitCode(err), err
}

func (w *site) content(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(w.file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestConfigureWithFlags(t *testing.T) {
	w := newSite(t)
	out, code, err := w.configure(t, goodToken+"\n", Options{ServiceURL: w.url, TokenFile: "-", DeployTarget: "process", Set: []string{"max_concurrent_jobs=4"}})
	if code != exitOK {
		t.Fatalf("%d, %v: %s", code, err, out)
	}
	info, err := os.Stat(w.file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v", info.Mode(), err)
	}
	c, err := config.Load(config.LoadOptions{Path: w.file, UID: os.Geteuid()})
	if err != nil || c.Token.Reveal() != goodToken || c.ServiceURL != w.url || c.Agent.MaxConcurrentJobs != 4 || c.DeployTarget != config.TargetProcess {
		t.Errorf("%v: %+v\n%s", err, c, w.content(t))
	}
	for _, want := range []string{"Wrote " + w.file, "the server accepts the token"} {
		if !strings.Contains(out, want) {
			t.Errorf("the output has no %q: %s", want, out)
		}
	}
	// Repeating the command changes nothing. The command below changes one line.
	before := w.content(t)
	if out, code, _ := w.configure(t, "", Options{Set: []string{"max_concurrent_jobs=4"}}); code != exitOK || !strings.Contains(out, "Nothing to change") {
		t.Errorf("%d: %s", code, out)
	}
	if out, code, _ := w.configure(t, "", Options{Set: []string{"max_concurrent_jobs=5"}}); code != exitOK || w.content(t) != strings.Replace(before, "jobs: 4", "jobs: 5", 1) {
		t.Errorf("%d: %s\n%s", code, out, w.content(t))
	}
	awaited := func(_ context.Context, path string) bool { return path == w.file }
	if out, _, _ := w.configure(t, "", Options{Set: []string{"max_concurrent_jobs=7"}, Awaited: awaited}); !strings.Contains(out, "starts the agent within seconds") || strings.Contains(out, "service start") {
		t.Errorf("a service waits: %s", out)
	}
	t.Setenv("PULUMI_AGENT_MAX_CONCURRENT_JOBS", "9")
	if out, _, _ := w.configure(t, "", Options{Set: []string{"max_concurrent_jobs=6"}}); !strings.Contains(out, "PULUMI_AGENT_MAX_CONCURRENT_JOBS is set here and overrides") {
		t.Errorf("nothing about the environment: %s", out)
	}
}

// TestConfigureForTheService writes a new file as root, which the service's user must be able to read.
func TestConfigureForTheService(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	nobody := must.Get(checkup.AccountNamed("nobody"))(t)
	for account, want := range map[string]string{"nobody": fmt.Sprintf("0 %d 0640", nobody.GID), "root": "0 0 0600", "": "0 0 0600", "no-such-user": "0 0 0600"} {
		w := newSite(t)
		service := func(path string) string {
			if path != w.file {
				t.Errorf("asked for the service of %s", path)
			}
			return account
		}
		out, code, err := w.configure(t, goodToken+"\n", Options{ServiceURL: w.url, TokenFile: "-", DeployTarget: "process", Account: service})
		if code != exitOK {
			t.Fatalf("%d, %v: %s", code, err, out)
		}
		info := must.Get(os.Stat(w.file))(t)
		stat := info.Sys().(*syscall.Stat_t)
		if got := fmt.Sprintf("%d %d %04o", stat.Uid, stat.Gid, info.Mode().Perm()); got != want {
			t.Errorf("the file of a service of %q is %s, want %s", account, got, want)
		}
	}
}

// TestConfigureAuthority checks the flag for a private authority.
func TestConfigureAuthority(t *testing.T) {
	w := newSite(t)
	given := Options{ServiceURL: w.url, TokenFile: "-", DeployTarget: "process", CACertificateFile: "/absent.pem"}
	if out, code, _ := w.configure(t, goodToken, given); code != exitUsage || !strings.Contains(out, "--ca-certificate-file: cannot be read") {
		t.Errorf("without the file: %d: %s", code, out)
	}
	authority, err := testcert.NewAuthority("The Company")
	if err != nil {
		t.Fatal(err)
	}
	given.CACertificateFile = filepath.Join(w.dir, "ca.pem")
	if err := os.WriteFile(given.CACertificateFile, authority.PEM(), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, code, _ := w.configure(t, goodToken, given); code != exitOK || !strings.Contains(w.content(t), given.CACertificateFile) {
		t.Errorf("%d: %s", code, out)
	}
}

// TestPrevents checks that configure writes the file for a service whose sandbox is changed afterwards.
func TestPrevents(t *testing.T) {
	for r, want := range map[*checkup.Result]bool{
		{Name: "files", Status: checkup.StatusFail}:   true,
		{Name: "service", Status: checkup.StatusFail}: false,
		{Name: "token", Status: checkup.StatusWarn}:   false,
	} {
		if got := prevents(*r); got != want {
			t.Errorf("%s %s: %t", r.Name, r.Status, got)
		}
	}
}

// TestConfigureKeepsTheSample checks that configure changes only the requested settings in the
// sample file.
func TestConfigureKeepsTheSample(t *testing.T) {
	w := newSite(t)
	data, err := os.ReadFile("../../../" + config.FileName + ".sample")
	if err != nil {
		t.Fatal(err)
	}
	sample := string(data)
	if err := os.WriteFile(w.file, []byte(sample), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, code, _ := w.configure(t, goodToken, Options{TokenFile: "-", ServiceURL: w.url, DeployTarget: "process"}); code != exitOK {
		t.Fatalf("%d: %s", code, out)
	}
	want := strings.NewReplacer("token: pul-xxx", "token: "+goodToken, `#service_url: "https://api.pulumi.com"`, `service_url: "`+w.url+`"`, `#deploy_target: "docker"`, `deploy_target: "process"`).Replace(sample)
	if got := w.content(t); got != want {
		t.Errorf("got\n%s", got)
	}
}

func TestConfigureRefuses(t *testing.T) {
	for _, tt := range []struct {
		name  string
		stdin string
		given Options
		code  int
		want  string
	}{
		{"nothing to do", "", Options{}, exitUsage, "no setting is given"},
		{"a token as an argument", "", Options{Set: []string{"token=" + goodToken}}, exitUsage, "--token-file"},
		{"a token as a setting", "", Options{Set: []string{goodToken}}, exitUsage, "KEY=VALUE"},
		{"unknown key", "", Options{Set: []string{"polling=1m"}}, exitUsage, "polling: is not a known key"},
		{"a variable's key", "", Options{Set: []string{"docker_host=x"}}, exitUsage, "DOCKER_HOST"},
		{"bad value", "", Options{Set: []string{"polling_interval=soon"}}, exitUsage, "polling_interval: is not a duration"},
		{"bad URL", "", Options{ServiceURL: "ftp://x"}, exitUsage, "--service-url: has a scheme"},
		{"no token file", "", Options{TokenFile: "/does/not/exist"}, exitUsage, "/does/not/exist"},
		{"empty token", " \n", Options{TokenFile: "-"}, exitUsage, "standard input is empty"},
		{"two words", "pul-x 0123", Options{TokenFile: "-"}, exitUsage, "--token-file: contains white space"},
		{"another product's target", "", Options{DeployTarget: "ecs"}, exitUsage, "--deploy-target: is ecs, the ECS target, which this agent does not support: set it to docker, kubernetes or process"},
		{"no image of the agent", "", Options{DeployTarget: "kubernetes"}, exitUsage, "image: is required because deploy_target is kubernetes"},
		{"no token left", "", Options{Set: []string{"token="}}, exitUsage, "token: is required"},
		{"a wrong token", "pul-wrong", Options{TokenFile: "-"}, exitFailed, "a check failed"},
		{"no server", "", Options{ServiceURL: "http://127.0.0.1:1"}, exitFailed, "a check failed"},
		{"no runner", "", Options{Set: []string{"single_run=true", "working_directory=/"}}, exitFailed, "a check failed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newSite(t)
			t.Setenv("PULUMI_AGENT_WORKING_DIRECTORY", "")
			before := "# mine\ntoken: " + goodToken + "\nservice_url: " + w.url + "\ndeploy_target: process\nworking_directory: " + w.dir + "\n"
			if err := os.WriteFile(w.file, []byte(before), 0o600); err != nil {
				t.Fatal(err)
			}
			out, code, err := w.configure(t, tt.stdin, tt.given)
			if code != tt.code || !strings.Contains(out, tt.want) {
				t.Errorf("%d, %v; want %d and %q: %s", code, err, tt.code, tt.want, out)
			}
			if w.content(t) != before {
				t.Errorf("the file was changed:\n%s", w.content(t))
			}
			if entries, err := os.ReadDir(w.dir); err != nil || len(entries) != 2 {
				t.Errorf("left %v, %v", entries, err)
			}
			if tt.code == exitFailed {
				tt.given.NoCheck = true
				if out, code, _ := w.configure(t, tt.stdin, tt.given); code != exitOK {
					t.Errorf("with --no-check: %d: %s", code, out)
				}
			}
		})
	}
	t.Run("bad file", func(t *testing.T) {
		w := newSite(t)
		if err := os.WriteFile(w.file, []byte("tokens: x\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, code, _ := w.configure(t, "", Options{Set: []string{"single_run=true"}}); code != exitUsage || !strings.Contains(out, w.file+":1: tokens") {
			t.Errorf("%d: %s", code, out)
		}
	})
}

// TestConfigureInDirectoriesOfOthers checks that root writes nothing where another user could lead it elsewhere.
func TestConfigureInDirectoriesOfOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	w := newSite(t)
	dir := t.TempDir()
	w.file = filepath.Join(dir, "agent.yaml")
	if err := os.Chown(dir, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	out, code, _ := w.configure(t, goodToken, Options{ServiceURL: w.url, TokenFile: "-", DeployTarget: "process"})
	if _, err := os.Lstat(w.file); err == nil || code != exitFailed || !strings.Contains(out, "not writing "+w.file+" as root") {
		t.Errorf("exit code %d, file %v: %s", code, err, out)
	}
}

// fileToWrite is the environment variable that makes the test binary configure an agent on its
// terminal.
const fileToWrite = "TEST_CONFIGURE_FILE"

// urlFlag is the environment variable with the flag --service-url of that run.
const urlFlag = "TEST_CONFIGURE_URL"

func TestMain(m *testing.M) {
	if file := os.Getenv(fileToWrite); file != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT)
		err := Run(ctx, Options{Load: config.ProcessOptions(file), Version: "v9.8.7", In: os.Stdin, Out: os.Stdout, ServiceURL: os.Getenv(urlFlag)})
		stop()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(exitCode(err))
	}
	os.Exit(m.Run())
}

func (w *site) onTerminal(t *testing.T) *dialogue.Dialogue {
	t.Helper()
	return dialogue.Start(t, fileToWrite+"="+w.file)
}

func TestConfigureOnATerminal(t *testing.T) {
	w := newSite(t)
	d := w.onTerminal(t)
	d.Expect("The default is Pulumi Cloud")
	d.Expect("URL of the control plane [https://api.pulumi.com]: ")
	d.Say("ftp://nonsense\n")
	d.Expect("has a scheme")
	d.Expect("URL of the control plane")
	d.Say("http://127.0.0.1:1\n") // the value is checked immediately, and the prompt is repeated
	d.Expect("fail  TCP")
	d.Expect("URL of the control plane [http://127.0.0.1:1]: ")
	d.Say(strings.TrimPrefix(w.url, "http://") + "\n") // for a loopback address without a scheme, the scheme is http
	d.Expect("Token of the agent pool, not shown: ")
	d.Say("\n")
	d.Expect("An answer is required.")
	d.Expect("not shown: ")
	d.Say(goodToken + "\n")
	d.Expect("process runs jobs as the agent's user")
	d.Expect("Where jobs run: docker, or process (no isolation) [docker]: ")
	d.Say("process\n")
	code, shown := d.Ended()
	if strings.Contains(shown, "0123456789") {
		t.Errorf("the token shows: %s", shown)
	}
	if code != exitOK || !strings.Contains(shown, "Wrote "+w.file) {
		t.Fatalf("exit code %d: %s", code, shown)
	}
	before := w.content(t)
	if !strings.Contains(before, "token: "+goodToken+"\n") || !strings.Contains(before, `deploy_target: "process"`) {
		t.Errorf("the file holds\n%s", before)
	}
	// Pressing Enter keeps every value.
	d = w.onTerminal(t)
	d.Expect("[" + w.url + "]: ")
	d.Say("\n")
	d.Expect("[the configured one]: ")
	d.Say("\n")
	d.Expect("[process]: ")
	d.Say("\n")
	if code, shown := d.Ended(); code != exitOK || !strings.Contains(shown, "Nothing to change") || w.content(t) != before {
		t.Errorf("exit code %d: %s", code, shown)
	}
}

// TestConfigureURLOnATerminal runs the command that the console shows: the flag sets the URL, and the
// rest is asked for once.
func TestConfigureURLOnATerminal(t *testing.T) {
	w := newSite(t)
	t.Setenv(urlFlag, w.url)
	d := w.onTerminal(t)
	d.Expect("Token of the agent pool, not shown: ")
	d.Say(goodToken + "\n")
	d.Expect("[docker]: ")
	d.Say("process\n")
	if code, shown := d.Ended(); code != exitOK || strings.Contains(shown, "URL of the control plane") || !strings.Contains(shown, "Wrote "+w.file) {
		t.Fatalf("exit code %d: %s", code, shown)
	}
	before := w.content(t)
	if !strings.Contains(before, w.url) || !strings.Contains(before, "token: "+goodToken+"\n") {
		t.Errorf("the file holds\n%s", before)
	}
	d = w.onTerminal(t)
	if code, shown := d.Ended(); code != exitOK || strings.Contains(shown, "Token of the agent pool") || w.content(t) != before {
		t.Errorf("the second time: exit code %d: %s", code, shown)
	}
}

// TestConfirmsAFailedCheck checks that a rejected token is written only if the operator confirms.
func TestConfirmsAFailedCheck(t *testing.T) {
	for answer, want := range map[string]int{"\n": exitFailed, "y\n": exitOK} {
		w := newSite(t)
		d := w.onTerminal(t)
		d.Expect("]: ")
		d.Say(w.url + "\n")
		d.Expect("not shown: ")
		d.Say("pul-wrong\n")
		d.Expect("the server rejects the token")
		d.Expect("[the one just given]: ")
		d.Say("\n")
		d.Expect("[docker]: ")
		d.Say("process\n")
		d.Expect("nevertheless? [y/N]: ")
		d.Say(answer)
		code, shown := d.Ended()
		_, err := os.Stat(w.file)
		if code != want || (err == nil) != (want == exitOK) {
			t.Errorf("%q: exit code %d, file %v: %s", answer, code, err, shown)
		}
	}
}

// TestConfigureInterrupted checks that after Ctrl-C or the end of the input, nothing is written and
// the echo is restored.
func TestConfigureInterrupted(t *testing.T) {
	for name, key := range map[string]string{"ctrl-c": "\x03", "end of input": "\x04"} {
		w := newSite(t)
		d := w.onTerminal(t)
		d.Expect("]: ")
		d.Say(w.url + "\n")
		d.Expect("not shown: ")
		d.Say(key)
		code, shown := d.Ended()
		if _, err := os.Stat(w.file); code != exitFailed || err == nil || !strings.Contains(shown, "nothing was written") {
			t.Errorf("%s: exit code %d, file %v: %s", name, code, err, shown)
		}
	}
}

// TestConfigureRestoresTheTerminal checks the terminal's modes after Ctrl-C at the prompt for the
// token.
func TestConfigureRestoresTheTerminal(t *testing.T) {
	w := newSite(t)
	d := w.onTerminal(t)
	d.Expect("]: ")
	d.Say(w.url + "\n")
	d.Expect("not shown: ")
	d.Say("\x03")
	if _, shown := d.Ended(); !strings.Contains(shown, " echo ") || strings.Contains(shown, " -echo ") {
		t.Errorf("the terminal is left as %s", shown)
	}
}
