package service

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite" // for tooOld, which changes a database

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/must"
)

// firstDeploymentTime is the goal for the time from a machine without the server to the end of the first
// deployment.
const firstDeploymentTime = 5 * time.Minute

// TestInitServerDeb installs the server and the agent, and changes the server's package while deployments run.
func TestInitServerDeb(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newServerMachine(t)
	s.run(ctx, t, `rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/* && echo 'APT::Get::Assume-Yes "true";' >/etc/apt/apt.conf.d/90yes
printf 'Package: `+serverName+`\nPin: version 1.0.0-1\nPin-Priority: 1001\n' >/etc/apt/preferences.d/first`)
	s.instructed(ctx, t, "apt repository")
	before := s.files(ctx, t)
	s.hostileDeb(ctx, t)
	s.wantNoServer(ctx, t, before)

	s.ownUnit(ctx, t)
	s.wantNoServer(ctx, t, before)

	// An image build has no systemd.
	s.run(ctx, t, "unshare --mount sh -ec 'mount -t tmpfs tmpfs /run; apt-get install "+serverName+"; apt-get remove "+serverName+"; apt-get purge "+serverName+"'")
	s.wantNoServer(ctx, t, before)

	st, repo := s.firstDeployment(ctx, t)
	first, next := state{"enabled", "active", lab.FirstRelease}, state{"enabled", "active", lab.NextRelease}
	s.wantServer(ctx, t, "installed", first)
	s.wantPackaged(ctx, t)
	s.wantSandbox(ctx, t)
	s.reload(ctx, t)
	s.otherDirectory(ctx, t)

	// The package changes in every way while deployments run.
	for i, step := range []struct {
		name string
		do   func(job *run)
		want state
	}{
		{"upgraded", func(*run) {
			s.run(ctx, t, "rm /etc/apt/preferences.d/first")
			s.follow(ctx, t, "server-upgrade.md", "server upgrade", nil)
		}, next},
		{"downgraded", func(*run) {
			s.follow(ctx, t, "server-upgrade.md", "server downgrade", map[string]string{"VERSION": "1.0.0-1"})
		}, first},
		{"removed and installed", func(job *run) {
			if out := s.follow(ctx, t, "server-upgrade.md", "server remove", nil); !strings.Contains(out, "running deployments continue") {
				t.Errorf("the removal says\n%s", out)
			}
			// The job writes the rest of its log without a server.
			job.resume(ctx, t)
			s.run(ctx, t, "test ! -e "+serverUnit+" && test -s "+serverConfig+" && ! systemctl is-active "+serverName+" && apt-get install "+serverName)
		}, next},
		{"purged and installed", func(job *run) {
			if out := s.run(ctx, t, "apt-get purge "+serverName); !strings.Contains(out, serverData+" is kept, with the data and the key of all secrets") {
				t.Errorf("a purge says\n%s", out)
			}
			job.resume(ctx, t)
			s.run(ctx, t, "test ! -e "+serverConfig+" && test -s "+serverData+"/master-key && id "+serverName+" && apt-get install "+serverName)
		}, next},
		{"reinstalled", func(*run) { s.run(ctx, t, "apt-get install --reinstall "+serverName) }, next},
	} {
		job := s.running(ctx, t, st, repo, fmt.Sprint("step", i))
		step.do(job)
		s.wantServer(ctx, t, step.name, step.want)
		job.finish(ctx, t)
		s.wantUpdates(ctx, t, st, i+2)
	}
	if out := s.word(ctx, "ls -A /etc/workflow-server"); out != "workflow-server.yaml" {
		t.Errorf("dpkg has left\n%s", out)
	}
	s.commandsOfRoot(ctx, t)
	s.disabled(ctx, t, first, next)
	s.foreignData(ctx, t)
	s.tooOld(ctx, t)

	s.run(ctx, t, "apt-get purge "+packageName)
	s.purge(ctx, t)
	s.wantNoServer(ctx, t, before)
}

// firstDeployment goes the way of a new user, from a machine with neither server nor agent to the end of a
// deployment.
func (s *serverMachine) firstDeployment(ctx context.Context, t *testing.T) (*harness.Stack, *lab.Repo) {
	t.Helper()
	began := time.Now()
	s.follow(ctx, t, "server-install.md", "server apt", nil)
	log := s.follow(ctx, t, "server-install.md", "server link", nil)
	if page := s.signIn(ctx, t, log); !strings.Contains(page, "From an empty server to a deployment in three steps") {
		t.Errorf("the link of the journal leads to\n%s", page)
	}
	s.makePool(ctx, t)
	s.adminToken(ctx, t)
	s.agent(ctx, t, "apt install")
	repo := s.Repo(ctx, t)
	st := s.NewStack(ctx, t, "box", "dev", "", nil)
	d := st.Finish(ctx, t, st.Deploy(ctx, t, "update", repo.URL))
	if log := st.Log(ctx, t, d); d.Status != "succeeded" || !strings.Contains(log, "created") {
		t.Fatalf("the first deployment ended as %+v\n%s", d, log)
	}
	took := time.Since(began)
	t.Logf("from an empty machine to the first deployment: %s", took.Round(time.Second))
	if harness.FullScale && took > firstDeploymentTime {
		t.Errorf("that is more than %s", firstDeploymentTime)
	}
	return st, repo
}

// wantPackaged checks who owns the files of the package and of its service.
func (s *serverMachine) wantPackaged(ctx context.Context, t *testing.T) {
	t.Helper()
	s.run(ctx, t, "dpkg -S "+serverUnit+" /usr/lib/sysusers.d/"+serverName+".conf /usr/lib/tmpfiles.d/"+serverName+".conf")
	if modes := s.run(ctx, t, "stat -c '%U:%G %a' "+serverConfig+" "+serverData+" /run/"+serverName+" "+serverData+"/master-key"); modes !=
		"root:workflow-server 640\nworkflow-server:workflow-server 700\nworkflow-server:workflow-server 755\nworkflow-server:workflow-server 600\n" {
		t.Errorf("configuration, data, sockets and key are\n%s", modes)
	}
	// The evaluator of environments enters its own sandbox inside that of the service.
	hello := s.run(ctx, t, `systemd-run --quiet --pipe --wait -p User=workflow-server -p NoNewPrivileges=yes -p MemoryDenyWriteExecute=yes -p ProtectProc=invisible \
-p "SystemCallFilter=$(systemctl show --value -p SystemCallFilter workflow-server)" -p SystemCallErrorNumber=EPERM /usr/bin/workflow-esc </dev/null`)
	if !strings.Contains(hello, `"sandbox":true`) {
		t.Errorf("the evaluator says %s", hello)
	}
	out := s.follow(ctx, t, "server-install.md", "server sign in", nil)
	if page := s.signIn(ctx, t, out); !strings.Contains(page, "<title>organization · ") {
		t.Errorf("the link of admin sign-in leads to\n%s", page)
	}
}

// wantSandbox checks the exposure of the service, which docs/server-install.md states.
func (s *serverMachine) wantSandbox(ctx context.Context, t *testing.T) {
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

// reload reloads a correct and a wrong configuration.
func (s *serverMachine) reload(ctx context.Context, t *testing.T) {
	t.Helper()
	s.run(ctx, t, "cp -p "+serverConfig+" /root/config && echo 'log_level: debug' >>"+serverConfig+" && systemctl reload "+serverName)
	s.run(ctx, t, "echo 'lisen: x' >>"+serverConfig)
	if out, err := s.Run(ctx, "systemctl reload "+serverName); err == nil {
		t.Errorf("a reload of a wrong configuration succeeds:\n%s", out)
	}
	s.run(ctx, t, "systemctl is-active "+serverName+" && cat /root/config >"+serverConfig+" && rm /root/config && systemctl reload "+serverName)
	// systemd does not wait until the server has reloaded.
	waiting, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var out string
	if err := harness.Until(waiting, func() (bool, error) {
		out = s.run(ctx, t, serverName+" service logs")
		return strings.Contains(out, "did you mean listen?") && strings.Count(out, "reloaded the configuration") >= 2, nil
	}); err != nil {
		t.Errorf("the log of the reloads is\n%s", out)
	}
}

// ownUnit replaces a unit with DynamicUser, which docs/server.md described before there were packages, by the
// package's unit. The data remains.
func (s *serverMachine) ownUnit(ctx context.Context, t *testing.T) {
	t.Helper()
	s.run(ctx, t, `cd /root && apt-get download `+serverName+` && dpkg -x `+serverName+`_*.deb own && cp own/usr/bin/`+serverName+` /usr/local/bin/ && rm -r own *.deb
printf '[Service]\nType=notify\nExecStart=/usr/local/bin/`+serverName+` serve --data-dir `+serverData+`\nDynamicUser=yes\nStateDirectory=`+serverName+`\nRuntimeDirectory=`+serverName+`\n[Install]\nWantedBy=multi-user.target\n' \
	>/etc/systemd/system/`+serverName+`.service
systemctl daemon-reload && systemctl start `+serverName+` && test -L `+serverData)
	s.adminToken(ctx, t)
	must.OK(t, s.MakePool(ctx))
	if out := s.run(ctx, t, "apt-get install "+serverName); !strings.Contains(out, serverName+".service overrides this package's unit") {
		t.Errorf("next to a unit of the administrator's, the package says\n%s", out)
	}
	s.follow(ctx, t, "server-install.md", "server unit", nil)
	s.wantServer(ctx, t, "with the package's unit", state{"enabled", "active", lab.FirstRelease})
	s.wantOwner(ctx, t)
	if _, err := s.Online(ctx); err != nil {
		t.Errorf("with the package's unit, the data is lost: %v", err)
	}
	s.Pool.ID = ""
	s.run(ctx, t, "WORKFLOW_SERVER_PURGE_DATA=yes apt-get purge "+serverName)
}

// otherDirectory moves the data out of /var/lib, and back.
func (s *serverMachine) otherDirectory(ctx context.Context, t *testing.T) {
	t.Helper()
	s.run(ctx, t, "cp -p "+serverConfig+" /root/config")
	s.follow(ctx, t, "server-install.md", "server directory", nil)
	s.wantServer(ctx, t, "with another directory", state{"enabled", "active", lab.FirstRelease})
	if _, err := s.Online(ctx); err != nil {
		t.Errorf("with another directory, the data is lost: %v", err)
	}
	s.run(ctx, t, "systemctl stop "+serverName+" && find "+serverData+" /srv/workflow-server -name master-key | wc -l | grep -qx 2 && cat /root/config >"+serverConfig+
		" && rm -r /root/config /srv/workflow-server /etc/systemd/system/"+serverName+".service.d/data.conf && systemctl daemon-reload && systemctl start "+serverName)
}

// commandsOfRoot runs a command as root while the service is stopped, and checks that the service can still
// use its database.
func (s *serverMachine) commandsOfRoot(ctx context.Context, t *testing.T) {
	t.Helper()
	s.run(ctx, t, "systemctl stop "+serverName+" && "+serverName+" token create >/dev/null && systemctl start "+serverName)
	s.wantOwner(ctx, t)
}

// wantOwner checks that the service's account owns all data.
func (s *serverMachine) wantOwner(ctx context.Context, t *testing.T) {
	t.Helper()
	if foreign := s.run(ctx, t, "find "+serverData+" ! -user "+serverName); foreign != "" {
		t.Errorf("of the data, the service cannot use\n%s", foreign)
	}
}

// disabled checks that no package starts a service that the administrator has disabled or masked.
func (s *serverMachine) disabled(ctx context.Context, t *testing.T, first, next state) {
	t.Helper()
	s.run(ctx, t, "systemctl disable --now "+serverName+" && apt-get install --allow-downgrades "+serverName+"=1.0.0-1")
	s.wantServer(ctx, t, "disabled and downgraded", state{"disabled", "inactive", first.version})
	s.run(ctx, t, "systemctl mask "+serverName+" && apt-get install "+serverName)
	s.wantServer(ctx, t, "masked and upgraded", state{"masked", "inactive", next.version})
	s.run(ctx, t, "systemctl unmask "+serverName+" && systemctl enable --now "+serverName)
	s.wantServer(ctx, t, "enabled again", next)
}

// foreignData installs the package over the data of a server that ran as another user.
func (s *serverMachine) foreignData(ctx context.Context, t *testing.T) {
	t.Helper()
	s.run(ctx, t, "useradd foreign && apt-get purge "+serverName+" && chown -R foreign: "+serverData+" && apt-get install "+serverName)
	s.wantServer(ctx, t, "over the data of another user", state{"enabled", "active", lab.NextRelease})
	s.wantOwner(ctx, t)
	s.run(ctx, t, "userdel foreign")
}

// tooOld lets a newer server exclude the installed one from its database, while it runs and when it starts.
// systemd does not restart it, and the journal says what to do.
func (s *serverMachine) tooOld(ctx context.Context, t *testing.T) {
	t.Helper()
	change := func(statement string) {
		t.Helper()
		db := must.Get(sql.Open("sqlite", filepath.Join(s.Root, serverData, "server.db")))(t)
		_, err := db.ExecContext(ctx, "PRAGMA busy_timeout = 20000; "+statement)
		must.OK(t, errors.Join(err, db.Close()))
	}
	failed := func(when string) {
		t.Helper()
		waiting, cancel := context.WithTimeout(ctx, harness.Patience)
		defer cancel()
		err := harness.Until(waiting, func() (bool, error) { return s.word(waiting, "systemctl is-active "+serverName) == "failed", nil })
		out := s.word(ctx, "systemctl show -p NRestarts,ExecMainStatus "+serverName+"; journalctl --no-pager -n 5 -o cat -u "+serverName)
		if err != nil || !strings.Contains(out, "NRestarts=0") || !strings.Contains(out, "ExecMainStatus=4") || !strings.Contains(out, "install v9.1.0 or later") {
			t.Fatalf("%s: %v\n%s", when, err, out)
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

// purge purges with the switch.
func (s *serverMachine) purge(ctx context.Context, t *testing.T) {
	t.Helper()
	s.plant(ctx, t)
	s.run(ctx, t, "echo mine >/etc/workflow-server/key.pem")
	out := s.follow(ctx, t, "server-upgrade.md", "server purge", nil)
	if !strings.Contains(out, "deleting "+serverData+", with the data and the key of all secrets") {
		t.Errorf("the purge says\n%s", out)
	}
	s.wantPlanted(ctx, t)
	s.run(ctx, t, "grep -q mine /etc/workflow-server/key.pem && rm -r /etc/workflow-server")
}

// hostileDeb installs and purges the package where links and files of others are in its places. Its
// scripts run as root, so they must not change what the links lead to.
func (s *serverMachine) hostileDeb(ctx context.Context, t *testing.T) {
	t.Helper()
	const watched = "stat -c '%n %U:%G %a %s' /etc/shadow /srv /srv/data /srv/data/file; cat /srv/data/file"
	s.run(ctx, t, `useradd --home-dir /home/foreign workflow-server
mkdir -p /srv/data /etc/workflow-server && echo keep >/srv/data/file
ln -s /etc/shadow /etc/workflow-server/workflow-server.yaml
ln -s /srv/data /var/lib/workflow-server`)
	want := s.run(ctx, t, watched)
	s.run(ctx, t, "systemctl mask "+serverName+" && apt-get install "+serverName)
	if got := s.run(ctx, t, watched); got != want {
		t.Errorf("an installation through links has changed\n%s\nto\n%s", want, got)
	}
	s.run(ctx, t, "rm /etc/workflow-server/workflow-server.yaml && WORKFLOW_SERVER_PURGE_DATA=yes apt-get purge "+serverName)
	if got := s.run(ctx, t, watched); got != want {
		t.Errorf("a purge through links has changed\n%s\nto\n%s", want, got)
	}
	s.run(ctx, t, "id workflow-server && userdel workflow-server && rm -rf /var/lib/workflow-server /srv/data /etc/workflow-server && systemctl unmask "+serverName)

	// No script reads the configuration or the environment, and systemd expands nothing in them.
	s.run(ctx, t, `mkdir -p /etc/workflow-server && printf 'data_dir: "/srv/$(touch /srv/pwned); touch /srv/pwned"\n' >`+serverConfig+`
printf 'A=$(touch /srv/pwned)\nB=`+"`touch /srv/pwned`"+`\nWORKFLOW_SERVER_PURGE_DATA=yes\n' >/etc/workflow-server/workflow-server.env
apt-get install `+serverName+`
mkdir -p `+serverData+` && touch `+serverData+`/mine
apt-get purge `+serverName+` && test -e `+serverData+`/mine`)
	if out := s.word(ctx, "ls /srv"); out != "" {
		t.Errorf("with a hostile configuration, the scripts have left\n%s", out)
	}
	s.run(ctx, t, "rm -r "+serverData+" /etc/workflow-server && userdel workflow-server")
}
