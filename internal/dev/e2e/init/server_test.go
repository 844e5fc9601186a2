package service

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite" // for TestInitDebPackage, which changes a database

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
)

// serverMachine is a machine with the server's package. Its site is that server.
type serverMachine struct {
	*packaged
	address string // host:port
}

// serverOn prepares the machine for the server's package. Machines share the network of this host, so the
// server needs its own port before its first start.
func serverOn(ctx context.Context, t *testing.T, p *packaged) *serverMachine {
	t.Helper()
	port := must.Get(child.FreePort("127.0.0.1"))(t)
	s := &serverMachine{address: net.JoinHostPort("127.0.0.1", fmt.Sprint(port))}
	site := *p.Site
	site.Server = &lab.Server{URL: "http://" + s.address, Organization: "organization"}
	site.Pool.ID, site.Pool.Token = "", ""
	s.packaged = &packaged{&service{&site, p.Machine, p.shared}, p.mirror}
	s.run(ctx, t, "mkdir -p /etc/systemd/system/"+serverName+".service.d && printf '[Service]\\nEnvironment=WORKFLOW_SERVER_LISTEN="+s.address+
		"\\n' >/etc/systemd/system/"+serverName+".service.d/port.conf && systemctl daemon-reload")
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := s.Run(context.Background(), "journalctl --no-pager -n 40 -u "+serverName)
			t.Log(out)
		}
	})
	return s
}

func (s *serverMachine) script(ctx context.Context, t *testing.T, page, mark string, values map[string]string) string {
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
	if exe := s.word(ctx, "readlink /proc/$(systemctl show -p MainPID --value "+serverName+")/exe"); exe != "/usr/bin/"+serverName {
		t.Errorf("%s: %s runs", when, exe)
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

// agent installs the agent's package in the same machine, whose jobs only record their runs.
func (s *serverMachine) agent(ctx context.Context, t *testing.T) {
	t.Helper()
	must.OK(t, s.MakePool(ctx))
	s.stubPulumi(t)
	s.instructed(ctx, t, "apt install")
	s.run(ctx, t, packageName+" service install --process --env PATH="+sharedInside+":/usr/bin:/bin --start")
	s.configureByCommand(ctx, t, "deploy_target=process")
	s.awaitOnline(ctx, t)
}

// testServerDeb installs the server and the agent, and changes the server's package while deployments run.
func (p *packaged) testServerDeb(ctx context.Context, t *testing.T) {
	t.Helper()
	s := serverOn(ctx, t, p)
	s.run(ctx, t, "printf 'Package: "+serverName+"\\nPin: version 1.0.0-1\\nPin-Priority: 1001\\n' >/etc/apt/preferences.d/first")
	before := s.files(ctx, t)
	s.testHostileDeb(ctx, t)
	s.wantNoServer(ctx, t, before)

	// An image build has no systemd.
	s.run(ctx, t, "unshare --mount sh -ec 'mount -t tmpfs tmpfs /run; apt-get install "+serverName+"; apt-get remove "+serverName+"; apt-get purge "+serverName+"'")
	s.wantNoServer(ctx, t, before)

	began := time.Now()
	s.script(ctx, t, "server-install.md", "server apt", nil)
	first := state{"enabled", "active", lab.FirstRelease}
	s.wantServer(ctx, t, "installed", first)
	for _, file := range []string{serverUnit, serverConfig, "/usr/lib/sysusers.d/workflow-server.conf", "/usr/lib/tmpfiles.d/workflow-server.conf"} {
		s.run(ctx, t, "dpkg -S "+file)
	}
	if modes := s.run(ctx, t, "stat -c '%U:%G %a' "+serverConfig+" "+serverData+" /run/"+serverName+" "+serverData+"/master-key"); modes !=
		"root:workflow-server 640\nworkflow-server:workflow-server 700\nworkflow-server:workflow-server 755\nworkflow-server:workflow-server 600\n" {
		t.Errorf("configuration, data, sockets and key are\n%s", modes)
	}
	if link := s.signInLink(ctx, t); !reachable(ctx, t, link) {
		t.Errorf("the link %s does not work", link)
	}
	s.adminToken(ctx, t)
	s.agent(ctx, t)
	repo := s.Repo(ctx, t)
	st := s.NewStack(ctx, t, "box", "dev", "", nil)
	s.running(ctx, t, st, repo, "first")()
	t.Logf("from nothing to the first deployment took %s", time.Since(began).Round(time.Second))

	s.testSandbox(ctx, t)
	s.testReload(ctx, t)

	// The package changes in every way while deployments run.
	next := state{"enabled", "active", lab.NextRelease}
	for i, step := range []struct {
		name string
		do   func()
		want state
	}{
		{"upgraded", func() {
			s.run(ctx, t, "rm /etc/apt/preferences.d/first")
			s.script(ctx, t, "server-upgrade.md", "server upgrade", nil)
		}, next},
		{"downgraded", func() {
			s.script(ctx, t, "server-upgrade.md", "server downgrade", map[string]string{"VERSION": "1.0.0-1"})
		}, first},
		{"removed and installed", func() {
			if out := s.script(ctx, t, "server-upgrade.md", "server remove", nil); !strings.Contains(out, "running deployments continue") {
				t.Errorf("the removal says\n%s", out)
			}
			s.run(ctx, t, "test ! -e "+serverUnit+" && test -s "+serverConfig+" && ! systemctl is-active "+serverName+" && apt-get install "+serverName)
		}, next},
		{"purged and installed", func() {
			if out := s.run(ctx, t, "apt-get purge "+serverName); !strings.Contains(out, serverData+" is kept, with the data and the key of all secrets") {
				t.Errorf("a purge says\n%s", out)
			}
			s.run(ctx, t, "test ! -e "+serverConfig+" && test -s "+serverData+"/master-key && id "+serverName+" && apt-get install "+serverName)
		}, next},
		{"reinstalled", func() { s.run(ctx, t, "apt-get install --reinstall "+serverName) }, next},
	} {
		proceed := s.running(ctx, t, st, repo, fmt.Sprint("step", i))
		step.do()
		s.wantServer(ctx, t, step.name, step.want)
		proceed()
		s.ranTimes(t, i+2)
	}
	if out := s.word(ctx, "ls /etc/workflow-server"); out != "workflow-server.yaml" {
		t.Errorf("dpkg has left\n%s", out)
	}
	s.testCommandsOfRoot(ctx, t)
	s.testDisabled(ctx, t, first, next)
	s.testTooOld(ctx, t)

	s.run(ctx, t, "apt-get purge "+packageName)
	s.testPurge(ctx, t)
	s.wantNoServer(ctx, t, before)
}

var link = regexp.MustCompile(`http://\S+/-/login/link\?key=\S+`)

// signInLink returns a link that signs the administrator in once.
func (s *serverMachine) signInLink(ctx context.Context, t *testing.T) string {
	t.Helper()
	out := s.run(ctx, t, serverName+" admin sign-in admin --external-url http://"+s.address)
	found := link.FindString(out)
	if found == "" {
		t.Fatalf("admin sign-in prints\n%s", out)
	}
	return found
}

func reachable(ctx context.Context, t *testing.T, url string) bool {
	t.Helper()
	req := must.Get(http.NewRequestWithContext(ctx, http.MethodGet, url, nil))(t)
	res := must.Get(http.DefaultClient.Do(req))(t)
	res.Body.Close()
	return res.StatusCode == http.StatusOK
}

// testSandbox checks the exposure of the service, which docs/server-install.md states.
func (s *serverMachine) testSandbox(ctx context.Context, t *testing.T) {
	t.Helper()
	score := exposureOf(ctx, t, s.service, serverName+".service")
	t.Logf("systemd-analyze security: %.1f", score)
	if score > mostExposed {
		t.Errorf("the sandbox of the server has the score %.1f, want at most %.1f", score, mostExposed)
	}
	root := must.Get(lab.Root())(t)
	page := harness.Read(t, filepath.Join(root, "docs", "server-install.md"))
	if row := fmt.Sprintf("| %.1f | from 0", score); !strings.Contains(string(page), row) {
		t.Errorf("docs/server-install.md lacks the row %q", row)
	}
}

// testReload reloads a correct and a wrong configuration.
func (s *serverMachine) testReload(ctx context.Context, t *testing.T) {
	t.Helper()
	s.run(ctx, t, "cp -p "+serverConfig+" /root/config && echo 'log_level: debug' >>"+serverConfig+" && systemctl reload "+serverName)
	s.run(ctx, t, "echo 'lisen: x' >>"+serverConfig)
	if out, err := s.Run(ctx, "systemctl reload "+serverName); err == nil {
		t.Errorf("a reload of a wrong configuration succeeds:\n%s", out)
	}
	s.run(ctx, t, "systemctl is-active "+serverName+" && cat /root/config >"+serverConfig+" && rm /root/config && systemctl reload "+serverName)
	if out := s.run(ctx, t, serverName+" service logs"); !strings.Contains(out, "did you mean listen?") || strings.Count(out, "reloaded the configuration") < 2 {
		t.Errorf("the log of the reloads is\n%s", out)
	}
}

// testCommandsOfRoot runs a command as root while the service is stopped, and checks that the service can
// still use its database.
func (s *serverMachine) testCommandsOfRoot(ctx context.Context, t *testing.T) {
	t.Helper()
	s.run(ctx, t, "systemctl stop "+serverName+" && "+serverName+" token create >/dev/null && systemctl start "+serverName)
	if foreign := s.run(ctx, t, "find "+serverData+" ! -user "+serverName); foreign != "" {
		t.Errorf("of the data, the service cannot use\n%s", foreign)
	}
}

// testDisabled checks that no package starts a service that the administrator has disabled or masked.
func (s *serverMachine) testDisabled(ctx context.Context, t *testing.T, first, next state) {
	t.Helper()
	s.run(ctx, t, "systemctl disable --now "+serverName+" && apt-get install --allow-downgrades "+serverName+"=1.0.0-1")
	s.wantServer(ctx, t, "disabled and downgraded", state{"disabled", "inactive", first.version})
	s.run(ctx, t, "systemctl mask "+serverName+" && apt-get install "+serverName)
	s.wantServer(ctx, t, "masked and upgraded", state{"masked", "inactive", next.version})
	s.run(ctx, t, "systemctl unmask "+serverName+" && systemctl enable --now "+serverName)
	s.wantServer(ctx, t, "enabled again", next)
}

// testTooOld lets a newer server exclude the installed one from its database, while it runs and when it
// starts. systemd does not restart it, and the journal says what to do.
func (s *serverMachine) testTooOld(ctx context.Context, t *testing.T) {
	t.Helper()
	change := func(statement string) {
		t.Helper()
		db := must.Get(sql.Open("sqlite", filepath.Join(s.Root, serverData, "server.db")))(t)
		_, err := db.ExecContext(ctx, "PRAGMA busy_timeout = 20000; "+statement)
		must.OK(t, errors.Join(err, db.Close()))
	}
	failed := func(when string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
		defer cancel()
		err := harness.Until(ctx, func() (bool, error) { return s.word(ctx, "systemctl is-active "+serverName) == "failed", nil })
		out := s.word(ctx, "systemctl show -p NRestarts,ExecMainStatus "+serverName+"; journalctl --no-pager -n 5 -o cat -u "+serverName)
		if err != nil || !strings.Contains(out, "NRestarts=0") || !strings.Contains(out, "ExecMainStatus=4") || !strings.Contains(out, "install v9.1.0 or later") {
			t.Errorf("%s: %v\n%s", when, err, out)
		}
	}
	change("INSERT INTO oldest_programs (migration, release) VALUES (9999, 'v9.1.0')")
	failed("while it runs")
	if out, err := s.Run(ctx, "systemctl start "+serverName); err == nil {
		t.Errorf("a server that is too old starts\n%s", out)
	}
	failed("when it starts")
	_, err := s.Run(ctx, serverName+" token create")
	if refused, ok := errors.AsType[*lab.ScriptError](err); !ok || refused.Code != 4 {
		t.Errorf("a command of a program that is too old: %v", err)
	}
	change("DELETE FROM oldest_programs WHERE migration = 9999")
	s.run(ctx, t, "systemctl reset-failed "+serverName+" && systemctl start "+serverName)
}

// testPurge purges with the switch. What a compromised service has put into its data leads nowhere.
func (s *serverMachine) testPurge(ctx context.Context, t *testing.T) {
	t.Helper()
	s.run(ctx, t, `mkdir -p /srv/victim && echo keep >/srv/victim/file && setpriv --reuid workflow-server --regid workflow-server --clear-groups sh -ec '
cd `+serverData+` && ln -s /srv/victim directory && ln -s /srv/victim/file file && mkdir -p "a b" && ln -s / "a b/root"'
echo mine >/etc/workflow-server/key.pem`)
	out := s.script(ctx, t, "server-upgrade.md", "server purge", nil)
	if !strings.Contains(out, "deleting "+serverData+", with the data and the key of all secrets") {
		t.Errorf("the purge says\n%s", out)
	}
	s.run(ctx, t, "grep -q keep /srv/victim/file && grep -q mine /etc/workflow-server/key.pem && rm -r /srv/victim /etc/workflow-server")
}

// wantNoServer checks that nothing of the package remains.
func (s *serverMachine) wantNoServer(ctx context.Context, t *testing.T, before string) {
	t.Helper()
	was := map[string]bool{}
	for line := range strings.Lines(before) {
		was[line] = true
	}
	for line := range strings.Lines(s.files(ctx, t)) {
		if !was[line] {
			t.Errorf("a purge leaves %s", strings.TrimSpace(line))
		}
	}
	if out, err := s.Run(ctx, "getent passwd "+serverName+" || getent group "+serverName); err == nil {
		t.Errorf("a purge leaves\n%s", out)
	}
}

// testHostileDeb installs and purges the package where links and files of others are in its places. Its
// scripts run as root, so they must not change what the links lead to.
func (s *serverMachine) testHostileDeb(ctx context.Context, t *testing.T) {
	t.Helper()
	const watched = "stat -c '%n %U:%G %a %s' /etc/shadow /etc/passwd- /srv /srv/data; cat /srv/data/file"
	s.run(ctx, t, `useradd --home-dir /home/foreign workflow-server
mkdir -p /srv/data /etc/workflow-server && echo keep >/srv/data/file && touch /etc/passwd-
ln -s /etc/shadow /etc/workflow-server/workflow-server.yaml
ln -s /srv/data /var/lib/workflow-server`)
	want := s.run(ctx, t, watched)
	s.run(ctx, t, "systemctl mask "+serverName+" && apt-get install "+serverName+" </dev/null")
	if got := s.run(ctx, t, watched); got != want {
		t.Errorf("an installation through links has changed\n%s\nto\n%s", want, got)
	}
	s.run(ctx, t, "WORKFLOW_SERVER_PURGE_DATA=yes apt-get purge "+serverName)
	if got := s.run(ctx, t, watched); got != want {
		t.Errorf("a purge through links has changed\n%s\nto\n%s", want, got)
	}
	s.run(ctx, t, "id workflow-server && userdel workflow-server && rm -rf /var/lib/workflow-server /srv/data /etc/workflow-server && systemctl unmask "+serverName)

	// No script reads the configuration.
	s.run(ctx, t, `mkdir -p /etc/workflow-server && printf 'data_dir: "/srv; touch /srv/pwned; $(touch /srv/pwned)"\nrunners_dir: /\n' >`+serverConfig+`
apt-get -o Dpkg::Options::=--force-confold install `+serverName+` && apt-get purge `+serverName+` && rm -rf /etc/workflow-server `+serverData)
	if out := s.word(ctx, "ls /srv; test -s /etc/passwd && echo fine; ! id "+serverName+" || userdel "+serverName); out != "fine" && !strings.HasPrefix(out, "fine\n") {
		t.Errorf("with a hostile configuration, the scripts have left\n%s", out)
	}
}

// testServerRPM checks the server's RPM with Debian's rpm and dnf.
func (p *packaged) testServerRPM(ctx context.Context, t *testing.T) {
	t.Helper()
	s := serverOn(ctx, t, p)
	s.run(ctx, t, "echo 'excludepkgs="+serverName+"-1.1.0*' >>/etc/dnf/dnf.conf")
	before := s.files(ctx, t)
	s.script(ctx, t, "server-install.md", "server dnf", nil)
	first, next := state{"enabled", "active", lab.FirstRelease}, state{"enabled", "active", lab.NextRelease}
	s.wantServer(ctx, t, "installed", first)
	verify := func(when string) {
		t.Helper()
		if out, err := s.Run(ctx, "rpm -V "+serverName); err != nil {
			t.Errorf("%s: rpm finds files changed: %s", when, out)
		}
	}
	verify("installed")
	if modes := s.run(ctx, t, "stat -c '%U:%G %a' "+serverConfig+" "+serverData); modes != "root:workflow-server 640\nworkflow-server:workflow-server 700\n" {
		t.Errorf("configuration and data are\n%s", modes)
	}
	s.adminToken(ctx, t)
	must.OK(t, s.MakePool(ctx))

	s.run(ctx, t, "sed -i /^excludepkgs/d /etc/dnf/dnf.conf && echo '# mine' >>"+serverConfig)
	s.script(ctx, t, "server-upgrade.md", "server dnf upgrade", nil)
	s.wantServer(ctx, t, "upgraded", next)
	s.run(ctx, t, "grep -q '# mine' "+serverConfig+" && test ! -e "+serverConfig+".rpmnew")
	s.run(ctx, t, "systemctl disable --now "+serverName+" && dnf downgrade "+serverName)
	s.wantServer(ctx, t, "disabled and downgraded", state{"disabled", "inactive", lab.FirstRelease})
	s.run(ctx, t, "systemctl enable --now "+serverName)
	s.wantServer(ctx, t, "enabled again", first)
	// An erasure keeps configuration, data and account.
	s.run(ctx, t, "dnf remove "+serverName+" && test -s "+serverConfig+".rpmsave && test -s "+serverData+"/master-key && id "+serverName)
	s.run(ctx, t, "dnf install "+serverName+" && systemctl enable --now "+serverName)
	s.wantServer(ctx, t, "installed again", next)
	if _, err := s.Online(ctx); err != nil {
		t.Errorf("after an erasure, the data is lost: %v", err)
	}
	s.script(ctx, t, "server-upgrade.md", "server dnf remove", nil)
	s.wantNoServer(ctx, t, before)
}
