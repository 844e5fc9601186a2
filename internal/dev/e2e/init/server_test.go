package service

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/lab/child"
	"workflowagent/internal/dev/must"
)

const (
	serverName   = "workflow-server"
	serverConfig = "/etc/" + serverName + "/workflow-server.yaml"
	serverData   = "/var/lib/" + serverName
	serverUnit   = "/usr/lib/systemd/system/" + serverName + ".service"
	// mostExposed is the largest score of the server's sandbox.
	mostExposed = 2.0
	// cliInside and pluginsInside are the directories of the pulumi CLI and its plugins.
	cliInside     = "/opt/pulumi"
	pluginsInside = "/opt/plugins"
)

// serverMachine is a machine for the server, which the site stands for.
type serverMachine struct {
	*packaged
	address string // host:port
}

// newServerMachine boots a machine in which jobs can run the real CLI. Machines share the network of this
// host, so the server gets its own port before its first start.
func newServerMachine(t *testing.T) *serverMachine {
	t.Helper()
	ctx := t.Context()
	_, tools := harness.Programs(t)
	p := newPackaged(t, lab.Bind{Host: tools.Dir, Inside: cliInside, ReadOnly: true}, lab.Bind{Host: tools.ProviderDir, Inside: pluginsInside, ReadOnly: true})
	must.OK(t, lab.Tools{ProviderDir: pluginsInside}.Home(filepath.Join(p.shared, "home")))
	port := must.Get(child.FreePort("127.0.0.1"))(t)
	s := &serverMachine{address: net.JoinHostPort("127.0.0.1", fmt.Sprint(port))}
	site := *p.Site
	site.Home = sharedInside + "/home"
	site.Server = &lab.Server{URL: "http://" + s.address, Organization: "organization"}
	site.Pool.ID, site.Pool.Token = "", ""
	s.packaged = &packaged{&service{&site, p.Machine, p.shared}, p.mirror}
	s.run(ctx, t, "chmod -R a+rwX "+sharedInside+"/home && mkdir -p /etc/systemd/system/"+serverName+".service.d && printf '[Service]\\nEnvironment=WORKFLOW_SERVER_LISTEN="+s.address+
		"\\n' >/etc/systemd/system/"+serverName+".service.d/port.conf && systemctl daemon-reload")
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := s.Run(context.Background(), "journalctl --no-pager -n 40 -u "+serverName)
			t.Log(out)
		}
	})
	return s
}

// follow runs the commands after a mark in a page of docs/, as root.
func (s *serverMachine) follow(ctx context.Context, t *testing.T, page, mark string, values map[string]string) string {
	t.Helper()
	if values == nil {
		values = map[string]string{"MIRROR": s.mirror}
	}
	return s.run(ctx, t, harness.Script(t, page, mark, values))
}

// wantServer checks the state of the service, and that its process is the installed program.
func (s *serverMachine) wantServer(ctx context.Context, t *testing.T, when string, want state) {
	t.Helper()
	got := state{s.word(ctx, "systemctl is-enabled "+serverName), s.word(ctx, "systemctl is-active "+serverName), s.word(ctx, serverName+" version")}
	if got != want {
		t.Errorf("%s: the service is %+v, want %+v", when, got, want)
	}
	if want.active != "active" {
		return
	}
	program := s.word(ctx, "readlink -f $(command -v "+serverName+")")
	if exe := s.word(ctx, "readlink /proc/$(systemctl show -p MainPID --value "+serverName+")/exe"); exe != program {
		t.Errorf("%s: %s runs, want %s", when, exe, program)
	}
	if status := s.word(ctx, serverName+" service status"); !strings.Contains(status, "serving http://"+s.address) {
		t.Errorf("%s: the service reports\n%s", when, status)
	}
}

// adminToken reads the token of the administrator, with which the test calls the server.
func (s *serverMachine) adminToken(ctx context.Context, t *testing.T) {
	t.Helper()
	s.Server.Token = strings.TrimSpace(s.run(ctx, t, "cat "+serverData+"/admin-token"))
}

var signInLink = regexp.MustCompile(`http://\S+/-/login/link\?key=\S+`)

// signIn opens the last link of a text in a new browser, and returns the page that a sign-in with it leads to.
func (s *serverMachine) signIn(ctx context.Context, t *testing.T, text string) string {
	t.Helper()
	links := signInLink.FindAllString(text, -1)
	if len(links) == 0 {
		t.Fatalf("there is no link in\n%s", text)
	}
	link := must.Get(url.Parse(links[len(links)-1]))(t)
	if link.Host != s.address {
		t.Errorf("the link leads to %s, want %s", link.Host, s.address)
	}
	browser := &http.Client{Jar: must.Get(cookiejar.New(nil))(t)}
	call := func(method, body string) string {
		t.Helper()
		req := must.Get(http.NewRequestWithContext(ctx, method, link.String(), strings.NewReader(body)))(t)
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		res := must.Get(browser.Do(req))(t)
		defer res.Body.Close()
		page := must.Get(io.ReadAll(res.Body))(t)
		if res.StatusCode != http.StatusOK {
			t.Fatalf("%s %s: %s\n%s", method, link.Path, res.Status, page)
		}
		return string(page)
	}
	form := call(http.MethodGet, "")
	if !strings.Contains(form, "This link signs you in once") {
		t.Errorf("the link opens\n%s", form)
	}
	return call(http.MethodPost, "key="+url.QueryEscape(link.Query().Get("key")))
}

// makePool creates a pool on the command line.
func (s *serverMachine) makePool(ctx context.Context, t *testing.T) {
	t.Helper()
	out := s.run(ctx, t, serverName+" pool create production --json")
	must.OK(t, json.Unmarshal([]byte(out), &s.Pool))
}

// agent installs the agent's package in the same machine. Its jobs run the real CLI.
func (s *serverMachine) agent(ctx context.Context, t *testing.T, mark string) {
	t.Helper()
	s.instructed(ctx, t, mark)
	s.run(ctx, t, packageName+" service install --process --env PATH="+cliInside+":/usr/bin:/bin --start")
	s.configureByCommand(ctx, t, "deploy_target=process")
	s.awaitOnline(ctx, t)
}

// wantUpdates checks how many updates a stack has had, because each deployment must run once.
func (s *serverMachine) wantUpdates(ctx context.Context, t *testing.T, st *harness.Stack, want int) {
	t.Helper()
	var got struct{ Updates []json.RawMessage }
	must.OK(t, s.Server.Call(ctx, http.MethodGet, "/api/stacks/"+st.Name+"/updates", nil, &got))
	if len(got.Updates) != want {
		t.Fatalf("the stack had %d updates, want %d", len(got.Updates), want)
	}
}

// plant puts what a compromised service could put into its data, to be deleted by root: links to files of others,
// and names for careless scripts.
func (s *serverMachine) plant(ctx context.Context, t *testing.T) {
	t.Helper()
	s.run(ctx, t, `mkdir -p /srv/victim && echo keep >/srv/victim/file && setpriv --reuid workflow-server --regid workflow-server --clear-groups sh -ec '
cd `+serverData+` && ln -s /srv/victim directory && ln -s /srv/victim/file file && mkdir -p -- "a b" "\$(touch /srv/pwned)" "-rf srv" && ln -s / "a b/root"'`)
}

// wantPlanted checks that the data is deleted, and nothing else.
func (s *serverMachine) wantPlanted(ctx context.Context, t *testing.T) {
	t.Helper()
	s.run(ctx, t, "test ! -e "+serverData+" && grep -q keep /srv/victim/file && test ! -e /srv/pwned && rm -r /srv/victim")
}

// wantNoServer checks that nothing of the server remains.
func (s *serverMachine) wantNoServer(ctx context.Context, t *testing.T, before string) {
	t.Helper()
	s.wantFiles(ctx, t, before)
	if out, err := s.Run(ctx, "getent passwd "+serverName+" || getent group "+serverName+" || systemctl list-unit-files --no-legend '"+serverName+"*' | grep ."); err == nil {
		t.Errorf("a purge leaves\n%s", out)
	}
}
