package service

import (
	"testing"

	"workflowagent/internal/dev/lab"
)

// TestInitServerRPM checks the server's RPM with Debian's rpm and dnf, also while deployments run.
func TestInitServerRPM(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newServerMachine(t)
	s.run(ctx, t, "mkdir -p /etc/yum.repos.d /usr/share/licenses && printf '[main]\\nassumeyes=True\\nexcludepkgs="+serverName+"-1.1.0*\\n' >/etc/dnf/dnf.conf")
	s.instructed(ctx, t, "dnf repository")
	before := s.files(ctx, t)
	s.follow(ctx, t, "server-install.md", "server dnf", nil)
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
	s.makePool(ctx, t)
	s.adminToken(ctx, t)
	s.agent(ctx, t, "dnf install")
	repo := s.Repo(ctx, t)
	st := s.NewStack(ctx, t, "box", "dev", "", nil)

	job := s.running(ctx, t, st, repo, "upgraded")
	s.run(ctx, t, "sed -i /^excludepkgs/d /etc/dnf/dnf.conf && echo '# mine' >>"+serverConfig)
	s.follow(ctx, t, "server-upgrade.md", "server dnf upgrade", nil)
	s.wantServer(ctx, t, "upgraded", next)
	s.run(ctx, t, "grep -q '# mine' "+serverConfig+" && test ! -e "+serverConfig+".rpmnew")
	job.finish(ctx, t)

	s.run(ctx, t, "systemctl disable --now "+serverName+" && dnf downgrade "+serverName)
	s.wantServer(ctx, t, "disabled and downgraded", state{"disabled", "inactive", lab.FirstRelease})
	s.run(ctx, t, "systemctl enable --now "+serverName)
	s.wantServer(ctx, t, "enabled again", first)

	// An erasure keeps configuration, data and account.
	job = s.running(ctx, t, st, repo, "erased")
	s.run(ctx, t, "dnf remove "+serverName+" && test -s "+serverConfig+".rpmsave && test -s "+serverData+"/master-key && id "+serverName)
	job.resume(ctx, t)
	s.run(ctx, t, "dnf install "+serverName+" && systemctl enable --now "+serverName)
	s.wantServer(ctx, t, "installed again", next)
	verify("installed again")
	job.finish(ctx, t)
	s.wantUpdates(ctx, t, st, 2)

	s.instructed(ctx, t, "dnf remove")
	s.run(ctx, t, "rm -f /etc/pulumi-workflow-agent.yaml")
	s.follow(ctx, t, "server-upgrade.md", "server dnf remove", nil)
	s.wantNoServer(ctx, t, before)
}
