package clients

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	agentconfig "workflowagent/internal/agent/config"
	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/lab/child"
	"workflowagent/internal/dev/lab/postgres"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/server/config"
)

// operatorPages are the pages for operators of the server, whose commands the tests below run. Those of
// server-install.md, server-upgrade.md and compose.md run on machines and engines of other tests.
var operatorPages = []string{
	"server-configure.md", "configuration-server.md", "server-troubleshooting.md", "sign-in.md", "server-administration.md",
	"secret-rotation.md", "server-monitoring.md", "private-ca.md", "tls.md", "postgresql.md", "air-gap.md",
	"ci.md", "access.md", "grants.md", "organizations.md", "deleted-stacks.md",
}

// host is a directory in place of a host's root, with a server that runs the commands of pages.
type host struct {
	*harness.Site
	env    []string
	config string // path
}

// shims stand for programs that need root, or a booted machine.
var shims = map[string]string{
	"sudo":      `exec "$@"`,
	"chgrp":     "",
	"curl":      `PATH=${PATH#*:} exec curl --fail --silent --show-error "$@"`,
	"systemctl": `exec curl --output /dev/null --unix-socket "$HOST_DIR/systemd" "http://systemd/$1"`,
}

// newHost prepares a host with a configuration file. It does not start the server.
func newHost(t *testing.T, settings string) *host {
	t.Helper()
	bin, tools := harness.Programs(t)
	dir := must.Get(os.MkdirTemp("", "host-"))(t) // a socket must have a short path
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(must.Get(child.FreePort("127.0.0.1"))(t)))
	h := &host{Site: &harness.Site{
		Dir: dir, Bin: bin, Tools: tools, Home: filepath.Join(dir, "home"),
		Server: &lab.Server{URL: "http://" + address, Organization: "organization", DataDir: filepath.Join(dir, "var/lib/workflow-server"), LogFile: filepath.Join(dir, "log")},
	}}
	for _, name := range []string{"etc/workflow-server", "var/lib", "home/user", "shims"} {
		must.OK(t, os.MkdirAll(filepath.Join(dir, name), 0o700))
	}
	for name, text := range shims {
		harness.Write(t, filepath.Join(dir, "shims", name), []byte("#!/bin/sh\n"+text+"\n"), 0o700)
	}
	h.config = filepath.Join(dir, "etc/workflow-server/workflow-server.yaml")
	harness.Write(t, h.config, fmt.Appendf(nil, "listen: %s\ndata_dir: %s\n%s", address, h.Server.DataDir, settings), 0o600)
	h.env = append(
		tools.Env(h.Home, "", ""), "HOST_DIR="+dir, "WORKFLOW_SERVER_CONFIG="+h.config,
		"PATH="+strings.Join([]string{filepath.Join(dir, "shims"), bin, tools.Dir, os.Getenv("PATH")}, ":"),
	)
	must.OK(t, tools.Home(h.Home))
	h.serveSystemctl(t)
	t.Cleanup(func() {
		h.stop(t)
		if t.Failed() {
			t.Log(child.Tail(h.Server.LogFile, 40))
		}
	})
	return h
}

// serveSystemctl does for the shim of systemctl what systemd does.
func (h *host) serveSystemctl(t *testing.T) {
	t.Helper()
	listener := must.Get((&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(h.Dir, "systemd")))(t)
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/stop":
			h.stop(t)
		case "/start":
			h.start(t)
		case "/restart":
			h.stop(t)
			h.start(t)
		case "/reload":
			_ = h.Server.Process.Signal(syscall.SIGHUP)
		default:
			http.NotFound(w, r)
		}
	})}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		_ = server.Close()
		<-served
	})
}

// start starts the server and waits until it is ready.
func (h *host) start(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	program := filepath.Join(h.Bin, "workflow-server")
	p, err := child.Start(ctx, program, []string{"serve"}, h.env, h.Server.LogFile)
	if err != nil {
		t.Errorf("starting the server: %v", err)
		return
	}
	h.Server.Process = p
	ctx, cancel := context.WithTimeout(ctx, harness.Patience)
	defer cancel()
	err = p.Await(ctx, 50*time.Millisecond, func() (bool, error) {
		cmd := child.Command(ctx, program, "healthcheck")
		cmd.Env = h.env
		return cmd.Run() == nil, nil
	})
	if err != nil {
		t.Errorf("waiting for the server: %v", err)
	}
}

func (h *host) stop(t *testing.T) {
	t.Helper()
	if h.Server.Process != nil {
		_ = h.Server.Process.Stop(syscall.SIGTERM, harness.Patience)
	}
}

// serve starts the server for the first time, and reads the administrator's token.
func (h *host) serve(t *testing.T) {
	t.Helper()
	h.start(t)
	h.Server.Token = strings.TrimSpace(string(harness.Read(t, filepath.Join(h.Server.DataDir, "admin-token"))))
	h.env = append(h.env, "PULUMI_ACCESS_TOKEN="+h.Server.Token, "PULUMI_BACKEND_URL="+h.Server.URL)
}

// run runs the commands of a page in one shell, with the directories of the host and the URL of the server. values are
// further texts and their replacements, each of which must occur. Blocks in skipped, by their first line, do not run.
func (h *host) run(t *testing.T, page string, skipped []string, values ...string) string {
	t.Helper()
	script := "set -e\n"
	for _, block := range harness.Blocks(t, page) {
		first, _, _ := strings.Cut(block.Text, "\n")
		if i := slices.Index(skipped, first); i >= 0 {
			skipped = slices.Delete(slices.Clone(skipped), i, i+1)
		} else if block.Language == "sh" {
			script += block.Text
		}
	}
	if len(skipped) > 0 {
		t.Fatalf("docs/%s has no blocks that begin with %q", page, skipped)
	}
	for i := 0; i < len(values); i += 2 {
		if !strings.Contains(script, values[i]) {
			t.Fatalf("docs/%s has no command with %q", page, values[i])
		}
	}
	script = strings.NewReplacer(append(
		values, "https://deployments.example.com", h.Server.URL, "/etc/workflow-server", filepath.Dir(h.config), "/var/lib", filepath.Join(h.Dir, "var/lib"),
	)...).Replace(script)
	return h.sh(t, page, script)
}

func (h *host) sh(t *testing.T, what, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	cmd := child.Command(ctx, "sh", "-c", script)
	cmd.Dir, cmd.Env = h.Dir, h.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s\n%s", what, err, script, out)
	}
	return string(out)
}

// TestOperatorPages runs the commands of the pages that need only a server.
func TestOperatorPages(t *testing.T) {
	t.Parallel()
	h := newHost(t, "metrics_token: a-token-of-metrics\n")
	harness.Write(t, h.config, []byte(string(harness.Read(t, h.config))+"external_url: "+h.Server.URL+"\n"), 0o600)
	h.serve(t)
	h.run(t, "server-configure.md", []string{
		"sudo workflow-server configure", // asks on a terminal
		`sudo workflow-server configure --external-url https://deployments.example.com \`, // TestOperatorPagesConfigure
	}, "pul-…", h.Server.Token)
	h.run(t, "configuration-server.md", nil)
	h.run(t, "server-troubleshooting.md", nil)

	h.testFirstSteps(t)

	newest := `$(workflow-server token list --user ann --json | sed -n 's/.*"id": "\([^"]*\)".*/\1/p' | tail -n 1)`
	h.sh(t, "two stacks", "for s in prod staging; do pulumi stack init organization/website/$s --no-select --non-interactive; done")
	h.run(
		t, "server-administration.md", nil,
		"workflow-server user owned ann\n", "workflow-server user create bob --member-of organization\nworkflow-server user owned ann\n",
		"USERS=https://deployments.example.com", "workflow-server user create ann --member-of organization\nUSERS="+h.Server.URL,
		"organization/website/prod research\n", "organization/website/prod archive\nworkflow-server stack transfer archive/website/prod organization\n",
		"workflow-server stack list --org", "workflow-server org create archive --admin admin\nworkflow-server stack list --org",
		"workflow-server stack deleted\n", deleteStack("prod")+deleteStack("staging")+"workflow-server stack deleted\n",
		"workflow-server user sessions ann\n", "workflow-server user create ann\nworkflow-server user sessions ann\n",
		"0b7b6c1e-6a8e-4ff7-9c52-6e0e6a3d1c11", newest,
		"PULUMI_ACCESS_TOKEN\" -d '{\"name\":\"production\"}'", "PULUMI_ACCESS_TOKEN\" -d '{\"name\":\"second\"}'",
	)
	h.run(t, "sign-in.md", nil, "sudo install -m 640 -g workflow-server", "touch sign-in.yaml corp-secret\nsudo install -m 640")

	if out := h.run(t, "server-monitoring.md", nil, "$METRICS_TOKEN", "a-token-of-metrics"); !strings.Contains(out, "workflow_server_http_requests_total") {
		t.Errorf("the metrics are\n%s", out)
	}
	h.run(t, "secret-rotation.md", nil)
	if out := h.sh(t, "the doctor", "workflow-server doctor --json || true"); !strings.Contains(out, "master-key-2 contains a master key") {
		t.Errorf("after the replacement of the master key, the doctor finds\n%s", out)
	}
	h.run(t, "air-gap.md", nil)
	h.testAccess(t)
	h.testGrants(t)
	h.testOrganizations(t)
	h.testDeletedStacks(t)
	h.testCI(t)
}

// testFirstSteps runs the commands of README.md that follow the installation of the packages.
func (h *host) testFirstSteps(t *testing.T) {
	t.Helper()
	_, commands, found := strings.Cut(harness.Block(t, "../README.md", "readme packages"), "sudo systemctl restart")
	if !found {
		t.Fatal("README.md does not restart the server")
	}
	file := filepath.Join(h.Dir, "agent.yaml")
	h.sh(t, "README.md", "set -e\nexport PULUMI_AGENT_DEPLOY_TARGET=process\nsudo systemctl restart"+strings.NewReplacer(
		"create production", "create readme", "agent configure", "agent configure --config "+file, "https://deployments.example.com", h.Server.URL,
	).Replace(commands))
	if text := string(harness.Read(t, file)); !strings.Contains(text, "token: pul-") || !strings.Contains(text, h.Server.URL) {
		t.Errorf("the agent's configuration is\n%s", text)
	}
}

// testAccess runs the commands of access.md, whose variables the reader sets.
func (h *host) testAccess(t *testing.T) {
	t.Helper()
	h.sh(t, "a stack", "pulumi stack init organization/hello/dev --no-select --non-interactive && workflow-server org create other --admin admin")
	h.sh(t, "an environment", `curl -f -H "Authorization: token $PULUMI_ACCESS_TOKEN" -d '{"project":"app","name":"prod"}' $PULUMI_BACKEND_URL/api/esc/environments/organization`)
	h.run(
		t, "access.md", nil,
		"workflow-server user create ann --email", "workflow-server user create carl --email",
		"$ORG/invites/ID", `$ORG/invites/$(curl -H "$AUTH" $ORG/invites | sed -n 's/.*"id":"\([^"]*\)".*/\1/p')`,
		`{"toOrg":"other"}' $STACK/transfer`, `{"toOrg":"other"}' $STACK/transfer && curl -H "$AUTH" -d '{"toOrg":"organization"}' $PULUMI_BACKEND_URL/api/stacks/other/hello/dev/transfer`,
		"curl -H \"$AUTH\" -X DELETE $ORG/members/ann\n", "curl -H \"$AUTH\" -X DELETE $ORG/members/ann\ncurl -H \"$AUTH\" -d '{\"role\":\"member\"}' $ORG/members/ann\n",
	)
}

// testOrganizations runs the commands of organizations.md, which delete the same organization more than once.
func (h *host) testOrganizations(t *testing.T) {
	t.Helper()
	create := "workflow-server org create research --admin admin --reuse-name\n"
	h.run(
		t, "organizations.md", nil,
		"workflow-server org create research --admin ann\n", create,
		`'{"name":"research","admin":"ann"}'`, `'{"name":"fourth","admin":"bob"}'`,
		"/api/orgs/research/rename\n", "/api/orgs/research/rename\ncurl -H \"$AUTH\" -d '{\"newName\":\"research\"}' $PULUMI_BACKEND_URL/api/orgs/science/rename\n",
		"workflow-server org delete research  ", "! workflow-server org delete research  ", // it only says what would be lost
		"curl -H \"$AUTH\" -X DELETE -d '{}'", "! curl -H \"$AUTH\" -X DELETE -d '{}'",
		"workflow-server org delete research --confirm research\n", "workflow-server org delete research --confirm research\n"+create,
		"workflow-server org appoint research ann\n", create+"workflow-server org appoint research ann\n",
	)
}

// deleteStack returns a command that deletes a stack of the project website.
func deleteStack(name string) string {
	return "curl -H \"Authorization: token $PULUMI_ACCESS_TOKEN\" -X DELETE $PULUMI_BACKEND_URL/api/stacks/organization/website/" + name + "\n"
}

// testDeletedStacks runs the commands of deleted-stacks.md, before each of which the stack is deleted again.
func (h *host) testDeletedStacks(t *testing.T) {
	t.Helper()
	id := `$DELETED/$(curl -H "$AUTH" $DELETED | sed -n 's/.*"programId":"\([^"]*\)".*/\1/p')`
	h.run(
		t, "deleted-stacks.md", nil,
		"workflow-server stack deleted\n", deleteStack("prod")+"workflow-server stack deleted\n",
		"workflow-server stack restore organization/website/prod\n", "workflow-server stack restore organization/website/prod\n"+deleteStack("prod"),
		"curl -H \"$AUTH\" $DELETED\n", deleteStack("prod-before")+"curl -H \"$AUTH\" $DELETED\n",
		"curl -X DELETE -H \"$AUTH\" $DELETED/ID", deleteStack("prod")+"curl -X DELETE -H \"$AUTH\" "+id,
		"$DELETED/ID", id,
	)
}

// testCI runs the commands of ci.md that call the server.
func (h *host) testCI(t *testing.T) {
	t.Helper()
	h.sh(t, "a stack", "pulumi stack init organization/network/dev --no-select --non-interactive")
	stack := &harness.Stack{W: h.Site, Name: "organization/network/dev"}
	must.OK(t, h.Server.Call(t.Context(), http.MethodPut, stack.Path("settings"), map[string]any{
		"sourceContext": map[string]any{"git": map[string]any{"repoUrl": "https://git.example.com/network.git", "branch": "main"}},
	}, nil))
	if out := h.run(t, "ci.md", nil); !strings.Contains(out, `"consoleUrl"`) {
		t.Errorf("the deployment is\n%s", out)
	}
}

// TestReadme creates a pool, an agent, a repository and a deployment with the commands of README.md.
func TestReadme(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skipf("%v: install the package python3", err)
	}
	h := newHost(t, "")
	h.Server.DataDir = filepath.Join(h.Dir, "data", "server")
	must.OK(t, os.Mkdir(filepath.Join(h.Dir, "data"), 0o700))
	must.OK(t, os.Symlink(h.Bin, filepath.Join(h.Dir, "bin")))
	address := strings.TrimPrefix(h.Server.URL, "http://")
	harness.Write(t, h.config, []byte("listen: "+address+"\ndata_dir: "+h.Server.DataDir+"\n"), 0o600)
	h.serve(t)
	block := func(mark string) string {
		return strings.ReplaceAll(harness.Block(t, "../README.md", mark), "127.0.0.1:8800", address)
	}
	setUp, run, found := strings.Cut(block("readme agent"), "bin/customer-managed-workflow-agent run ")
	if !found {
		t.Fatal("README.md does not start the agent")
	}
	// Jobs of the test use no internet.
	h.env = append(h.env, "PULUMI_AGENT_ENV_FORWARD_ALLOWLIST=PULUMI_SKIP_UPDATE_CHECK PULUMI_DISABLE_REGISTRY_RESOLVE", "PULUMI_AGENT_HTTP_SERVER_PORT=0",
		"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@example.com")
	h.sh(t, "README.md", "set -e\n"+setUp)
	if t.Failed() {
		return
	}
	log := filepath.Join(h.Dir, "agent.log")
	args := strings.Fields("run " + strings.ReplaceAll(run, "data/", h.Dir+"/data/"))
	agent := must.Get(child.Start(context.WithoutCancel(t.Context()), filepath.Join(h.Bin, "customer-managed-workflow-agent"), args, h.env, log))(t)
	t.Cleanup(func() {
		_ = agent.Stop(syscall.SIGTERM, harness.Patience)
		if t.Failed() {
			t.Log(child.Tail(log, 40))
		}
	})
	port := strconv.Itoa(must.Get(child.FreePort("127.0.0.1"))(t))
	out := h.sh(t, "README.md", "set -e\n"+strings.ReplaceAll(block("readme repository")+"trap 'kill $!' EXIT\n"+block("readme deploy"), "8801", port))
	if !strings.Contains(out, "greeting") {
		t.Errorf("the log lacks the output of the program:\n%s", out)
	}
}

// TestOperatorPagesConfigure writes the configuration file with the flags of server-configure.md.
func TestOperatorPagesConfigure(t *testing.T) {
	t.Parallel()
	h := newHost(t, "")
	commands := harness.Blocks(t, "server-configure.md")[1].Text
	out := h.sh(t, "configure", commands)
	if text := string(harness.Read(t, h.config)); !strings.Contains(text, "https://deployments.example.com") || !strings.Contains(text, "x-forwarded-for") {
		t.Errorf("the file is\n%s\nafter\n%s", text, out)
	}
	h.start(t) // as after the installation of a package
	h.sh(t, "configure", commands)
}

// TestOperatorPagesTLS runs a server with a certificate of an authority that the commands of private-ca.md create.
func TestOperatorPagesTLS(t *testing.T) {
	t.Parallel()
	h := newHost(t, "")
	blocks := harness.Blocks(t, "private-ca.md")
	h.sh(t, "private-ca.md", strings.ReplaceAll(blocks[0].Text, "HOST=deployments.example.com", "HOST=localhost"))
	at := must.Get(url.Parse(h.Server.URL))(t)
	h.Server.URL = "https://localhost:" + at.Port()
	h.serve(t)
	commands := strings.NewReplacer(
		"https://deployments.example.com", h.Server.URL+" --allow-loopback", "0.0.0.0:443", at.Host,
		" -g workflow-server", "", "/etc/workflow-server", filepath.Dir(h.config),
		"sudo workflow-server doctor", "workflow-server config show | grep "+filepath.Dir(h.config)+"/cert.pem\nsudo workflow-server doctor",
	).Replace("set -e\n" + blocks[1].Text)
	if out := h.sh(t, "private-ca.md", commands); !strings.Contains(out, "certificate") {
		t.Errorf("the doctor says\n%s", out)
	}
	authorities := filepath.Join(h.Dir, "authorities.pem")
	h.run(t, "tls.md", nil, "~/authorities.pem", authorities)
	if text := string(harness.Read(t, authorities)); strings.Count(text, "BEGIN CERTIFICATE") < 2 {
		t.Errorf("%s lacks the system's authorities", authorities)
	}
}

// TestOperatorPagesPostgreSQL runs a server with the role of postgresql.md, and replaces its password as
// secret-rotation.md does.
func TestOperatorPagesPostgreSQL(t *testing.T) {
	t.Parallel()
	psql, err := exec.LookPath("psql")
	if reason, ok := postgres.Available(); !ok || err != nil {
		t.Skipf("PostgreSQL is not installed: %s %v", reason, err)
	}
	dsn, stop, err := postgres.Start(t.Context(), filepath.Join(t.TempDir(), "pg"))
	must.OK(t, err)
	t.Cleanup(stop)
	password := filepath.Join(t.TempDir(), "password")
	inPage := regexp.MustCompile(`PASSWORD '[^']+'`)
	run := func(page, value string) {
		t.Helper()
		var statements string
		for _, block := range harness.Blocks(t, page) {
			if block.Language == "sql" {
				statements += block.Text
			}
		}
		if !inPage.MatchString(statements) {
			t.Fatalf("docs/%s sets no password", page)
		}
		cmd := exec.CommandContext(t.Context(), psql, "--no-psqlrc", "--set=ON_ERROR_STOP=1", dsn)
		cmd.Stdin = strings.NewReader(inPage.ReplaceAllString(statements, "PASSWORD '"+value+"'"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("docs/%s: %v\n%s", page, err, out)
		}
		harness.Write(t, password, []byte(value+"\n"), 0o600)
	}
	at := must.Get(url.Parse(dsn))(t)
	h := newHost(t, fmt.Sprintf("database: postgres://workflow@%s/workflow?sslmode=disable\ndatabase_password_file: %s\n", at.Host, password))
	run("postgresql.md", "first")
	h.start(t)
	run("secret-rotation.md", "second")
	h.sh(t, "a restart", "systemctl restart workflow-server")
	if out := h.sh(t, "pools", "workflow-server pool create after"); !strings.HasPrefix(out, "pul-") {
		t.Errorf("after the new password:\n%s", out)
	}
}

// TestOperatorPagesSettings checks that the files in the pages are YAML, with settings that exist.
func TestOperatorPagesSettings(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, f := range slices.Concat(config.Table().Fields(), agentconfig.Table().Fields()) {
		known[f.Key] = true
	}
	files := 0
	for _, page := range operatorPages {
		for _, block := range harness.Blocks(t, page) {
			if block.Language != "yaml" {
				continue
			}
			files++
			var keys map[string]any
			if err := yaml.Unmarshal([]byte(block.Text), &keys); err != nil {
				t.Errorf("docs/%s: %v\n%s", page, err, block.Text)
			}
			for key := range keys {
				if !known[key] && page != "ci.md" && key != "providers" {
					t.Errorf("docs/%s sets %s, which is no setting", page, key)
				}
			}
		}
	}
	if files < 10 {
		t.Errorf("found only %d files", files)
	}
}

// TestOperatorPagesCI checks the commands of the files in ci.md against the flags of the stock CLI. The inputs of the
// action are those that its version has.
func TestOperatorPagesCI(t *testing.T) {
	t.Parallel()
	_, tools := harness.Programs(t)
	flag := regexp.MustCompile(`--[a-z-]+`)
	commands := 0
	for _, block := range harness.Blocks(t, "ci.md") {
		for line := range strings.Lines(block.Text) {
			line = strings.TrimPrefix(strings.TrimPrefix(strings.TrimSpace(line), "- "), "run: ")
			words := strings.Fields(line)
			if len(words) < 2 || words[0] != "pulumi" {
				continue
			}
			commands++
			args := slices.DeleteFunc(words[1:], func(w string) bool {
				return strings.HasPrefix(w, "-") || strings.Contains(w, "/") || strings.HasPrefix(w, "$")
			})
			out := must.Get(exec.CommandContext(t.Context(), tools.Pulumi(), append(args, "--help")...).CombinedOutput())(t)
			for _, name := range flag.FindAllString(line, -1) {
				if !strings.Contains(string(out), name+" ") && !strings.Contains(string(out), name+"\n") {
					t.Errorf("docs/ci.md: pulumi %s has no flag %s", strings.Join(args, " "), name)
				}
			}
		}
	}
	if commands < 5 {
		t.Errorf("docs/ci.md has only %d commands of pulumi", commands)
	}
}
