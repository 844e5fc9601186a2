package service

import (
	"strconv"
	"strings"
	"testing"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
)

func TestInitDebPackage(t *testing.T) {
	ctx := t.Context()
	engine, socket, image := serviceEngine(ctx, t)
	p := newPackaged(t, socket)
	p.run(ctx, t, "rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/* && groupadd --gid "+strconv.Itoa(dockerGroup)+" docker")

	// apt installs nothing from a repository with another key.
	p.run(ctx, t, "echo 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] "+p.mirror+"/apt stable main' >/etc/apt/sources.list.d/agent.list")
	if out, err := p.Run(ctx, "apt-get update"); !strings.Contains(out, "NO_PUBKEY") {
		t.Errorf("with a wrong key apt says %v\n%s", err, out)
	}
	if out, err := p.Run(ctx, "apt-get install "+packageName); err == nil {
		t.Errorf("with a wrong key apt installed\n%s", out)
	}
	p.run(ctx, t, "rm /etc/apt/sources.list.d/agent.list")
	p.run(ctx, t, `echo 'APT::Get::Assume-Yes "true";' >/etc/apt/apt.conf.d/90yes
printf 'Package: customer-managed-workflow-agent\nPin: version 1.0.0-1\nPin-Priority: 1001\n' >/etc/apt/preferences.d/first`)
	p.instructed(ctx, t, "apt repository")
	before := p.files(ctx, t)

	// systemd is not running, as when an image is built.
	p.run(ctx, t, "unshare --mount sh -ec 'mount -t tmpfs tmpfs /run; apt-get install "+packageName+"; apt-get remove "+packageName+"; apt-get install "+packageName+"'")
	if link := p.word(ctx, "readlink -f /etc/systemd/system/multi-user.target.wants/"+packageName+".service"); link != packageUnit {
		t.Errorf("in an image the service is enabled by %q", link)
	}
	// A purge stops no deployment and removes nothing that another service uses.
	p.run(ctx, t, "echo User=workflow-agent >/etc/systemd/system/second.service")
	if out := p.run(ctx, t, "apt-get purge "+packageName); !strings.Contains(out, "another service runs as workflow-agent") {
		t.Errorf("beside another service a purge says\n%s", out)
	}
	p.run(ctx, t, "test -e /etc/pulumi-workflow-agent.yaml && id workflow-agent && rm /etc/systemd/system/second.service && "+
		"apt-get install "+packageName+" && systemd-run --quiet --unit=job --uid=workflow-agent sleep 1000")
	out := strings.ReplaceAll(p.run(ctx, t, "apt-get purge "+packageName), "\r", "")
	_, advice, said := strings.Cut(out, "When they have ended, run:\n")
	if !said {
		t.Errorf("with a process of its account a purge says\n%s", out)
	}
	advice, _, _ = strings.Cut(advice, "\n")
	p.run(ctx, t, "systemctl is-active job && systemctl stop job && "+advice)
	p.wantNothing(ctx, t, before)

	p.instructed(ctx, t, "apt install")
	first := state{"enabled", "active", lab.FirstRelease}
	p.want(ctx, t, "installed", first)
	if out := p.run(ctx, t, packageName+" service status"); !strings.Contains(out, "waiting for a configuration") || !strings.Contains(out, packageUnit) {
		t.Errorf("a service without configuration says\n%s", out)
	}
	unit := p.run(ctx, t, "cat "+packageUnit)
	for _, line := range []string{"ExecStart=" + packageProgram + " run --config /etc/pulumi-workflow-agent.yaml", "User=workflow-agent", "NoNewPrivileges=yes", "KillMode=process"} {
		if !strings.Contains(unit, line+"\n") {
			t.Errorf("the unit lacks %q:\n%s", line, unit)
		}
	}
	p.instructed(ctx, t, "package docker")
	p.run(ctx, t, packageName+" service install --env DOCKER_HOST=unix:///srv/docker.sock --start")
	p.configureByCommand(ctx, t, "pull_image=false")
	p.awaitOnline(ctx, t)
	if mode := p.run(ctx, t, "stat -c '%U:%G %a' /etc/pulumi-workflow-agent.yaml"); mode != "root:workflow-agent 640\n" {
		t.Errorf("the configuration file is %s", mode)
	}
	repo := p.Repo(ctx, t)
	st := p.NewStack(ctx, t, "box", "dev", image, nil)

	job := p.running(ctx, t, st, repo, "upgraded")
	p.run(ctx, t, "rm /etc/apt/preferences.d/first")
	p.instructed(ctx, t, "apt upgrade")
	next := state{"enabled", "active", lab.NextRelease}
	p.want(ctx, t, "upgraded", next)
	job.finish(ctx, t)
	harness.Leftovers(ctx, t, engine)
	p.wantDocker(ctx, t, "upgraded")

	// The package does not enable a service that the administrator has disabled.
	p.run(ctx, t, "systemctl disable --now "+packageName+" && apt-get install --allow-downgrades "+packageName+"=1.0.0-1")
	p.want(ctx, t, "disabled and downgraded", state{"disabled", "inactive", lab.FirstRelease})
	p.run(ctx, t, "systemctl mask "+packageName+" && apt-get install "+packageName)
	p.want(ctx, t, "masked and upgraded", state{"masked", "inactive", lab.NextRelease})
	if out, err := p.Run(ctx, packageName+" service install --start"); err == nil || !strings.Contains(out, "systemctl unmask") {
		t.Errorf("installing a masked service says %v\n%s", err, out)
	}
	p.run(ctx, t, "systemctl unmask "+packageName+" && apt-get remove "+packageName+" && apt-get install "+packageName)
	p.want(ctx, t, "disabled and installed again", state{"disabled", "inactive", lab.NextRelease})
	p.run(ctx, t, "systemctl enable --now "+packageName)
	p.want(ctx, t, "enabled again", next)

	job = p.running(ctx, t, st, repo, "reinstalled")
	if out := p.run(ctx, t, "apt-get remove "+packageName); !strings.Contains(out, "deployments in containers continue") {
		t.Errorf("the removal does not report that deployments continue:\n%s", out)
	}
	if out := p.word(ctx, "systemctl is-active "+packageName+"; test ! -e "+packageUnit+" && test -s /etc/pulumi-workflow-agent.yaml && ls /var/lib/workflow-agent"); !strings.Contains(out, "inactive\ninstances") {
		t.Errorf("after a removal the machine has\n%s", out)
	}
	p.run(ctx, t, "apt-get install "+packageName)
	p.want(ctx, t, "installed again", next)
	p.wantDocker(ctx, t, "installed again")
	job.finish(ctx, t)
	harness.Leftovers(ctx, t, engine)

	// Another choice replaces the first. The package keeps it in the package's own unit.
	p.run(ctx, t, packageName+" service install --docker=false --process && apt-get install --reinstall "+packageName)
	unit = p.run(ctx, t, "test ! -e /etc/systemd/system/"+packageName+".service && cat "+packageUnit)
	if strings.Contains(unit, "SupplementaryGroups") || !strings.Contains(unit, "ReadWritePaths=/tmp /var/tmp\n") {
		t.Errorf("the unit does not follow the choice:\n%s", unit)
	}
	p.run(ctx, t, "test -s /etc/"+packageName+".choices")
	// A service that cannot start is reported, but the upgrade succeeds.
	p.run(ctx, t, "echo 'deploy_target: nowhere' >/etc/pulumi-workflow-agent.yaml")
	if out := p.run(ctx, t, "apt-get install --reinstall "+packageName); !strings.Contains(out, "starting the service failed") {
		t.Errorf("an upgrade with a wrong configuration says\n%s", out)
	}
	p.instructed(ctx, t, "apt purge")
	if out := p.word(ctx, "systemctl --failed --quiet"); out != "" {
		t.Errorf("after a purge systemd has failed units:\n%s", out)
	}
	p.wantNothing(ctx, t, before)
}
