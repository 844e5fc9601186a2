package service

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/must"
)

// wantUnsignedRefused checks that an unsigned package is not installed, even if the repository's
// metadata is not verified.
func (p *packaged) wantUnsignedRefused(ctx context.Context, t *testing.T, repository string) {
	t.Helper()
	releases := must.Get(lab.MakeReleases(ctx, os.Stderr))(t)
	files, err := filepath.Glob(filepath.Join(releases.Dir(lab.FirstRelease), packageName+"-*.rpm"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the RPMs are %v, %v", files, err)
	}
	text := harness.Read(t, files[0])
	dir := filepath.Join(p.Root, "srv", "unsigned")
	for _, signed := range []bool{true, false} {
		must.OK(t, errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "agent.rpm"), text, 0o644)))
		if !signed {
			p.run(ctx, t, "rpmsign --delsign /srv/unsigned/agent.rpm")
		}
		harness.Say(t, dir, "createrepo_c", "--quiet", dir)
		p.run(ctx, t, "sed 's,^baseurl=.*,baseurl=file:///srv/unsigned,; s/^repo_gpgcheck=.*/repo_gpgcheck=0/' /root/"+filepath.Base(repository)+" >"+repository+"; dnf clean all")
		out, err := p.Run(ctx, "dnf install --downloadonly "+packageName)
		if refused := err != nil && strings.Contains(out, "not signed"); refused == signed || signed && err != nil {
			t.Errorf("a package that is signed (%v): dnf says %v\n%s", signed, err, out)
		}
	}
	p.run(ctx, t, "rm -rf /srv/unsigned; cp /root/"+filepath.Base(repository)+" "+repository+"; dnf clean all")
}

// TestInitRPMPackage checks the RPM package with Debian's rpm and dnf. The scripts, signatures and
// systemd are real, but the distribution does not use RPM.
func TestInitRPMPackage(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	p := newPackaged(t)
	p.run(ctx, t, "mkdir -p /etc/yum.repos.d /usr/share/licenses && printf '[main]\\nassumeyes=True\\nexcludepkgs="+packageName+"-1.1.0*\\n' >/etc/dnf/dnf.conf")

	// dnf installs nothing from a repository with another key.
	const repository = "/etc/yum.repos.d/" + packageName + ".repo"
	p.instructed(ctx, t, "dnf repository")
	p.run(ctx, t, "cp "+repository+" /root/ && sed -i \"s,^gpgkey=.*,gpgkey=file://$(ls /etc/apt/trusted.gpg.d/*.asc | head -n 1),\" "+repository)
	if out, err := p.Run(ctx, "dnf install "+packageName); err == nil || !strings.Contains(strings.ToLower(out), "gpg") {
		t.Errorf("with a wrong key dnf says %v\n%s", err, out)
	}
	p.run(ctx, t, "cp /root/"+packageName+".repo "+repository+"; dnf clean all")
	p.wantUnsignedRefused(ctx, t, repository)
	before := p.files(ctx, t)

	// A configuration file with the former name is still used.
	p.configure(ctx, t, "deploy_target: process")
	p.run(ctx, t, "echo PROFILE=process >/etc/"+packageName+".choices") // as an earlier installation chose
	p.run(ctx, t, "mv /etc/pulumi-workflow-agent.yaml /etc/pulumi-deployment-agent.yaml")
	p.instructed(ctx, t, "dnf install")
	p.want(ctx, t, "installed", state{"enabled", "active", lab.FirstRelease})
	if unit := p.run(ctx, t, "test ! -e /etc/pulumi-workflow-agent.yaml && cat "+packageUnit); !strings.Contains(unit, "--config /etc/pulumi-deployment-agent.yaml\n") {
		t.Errorf("the unit does not name the old configuration:\n%s", unit)
	}

	p.stubPulumi(t)
	p.run(ctx, t, packageName+" service install --process --env PATH="+sharedInside+":/usr/bin:/bin --start")
	p.awaitOnline(ctx, t)
	repo := p.Repo(ctx, t)
	st := p.NewStack(ctx, t, "box", "dev", "", nil)
	job := p.running(ctx, t, st, repo, "upgraded")
	p.run(ctx, t, "sed -i /^excludepkgs/d /etc/dnf/dnf.conf")
	p.instructed(ctx, t, "dnf upgrade")
	p.want(ctx, t, "upgraded", state{"enabled", "active", lab.NextRelease})
	job.finish(ctx, t)
	p.ranTimes(t, 1)
	if out, err := p.Run(ctx, "rpm -V "+packageName); err != nil {
		t.Errorf("rpm finds files changed: %s", out)
	}
	if unit := p.run(ctx, t, "cat "+packageUnit); !strings.Contains(unit, "ReadWritePaths=/tmp /var/tmp\n") {
		t.Errorf("an upgrade loses the sandbox that was chosen:\n%s", unit)
	}

	p.run(ctx, t, "systemctl disable --now "+packageName+" && dnf downgrade "+packageName)
	p.want(ctx, t, "disabled and downgraded", state{"disabled", "inactive", lab.FirstRelease})
	p.run(ctx, t, "systemctl mask "+packageName+" && dnf upgrade "+packageName)
	p.want(ctx, t, "masked and upgraded", state{"masked", "inactive", lab.NextRelease})
	p.run(ctx, t, "systemctl unmask "+packageName+" && systemctl enable --now "+packageName)
	p.want(ctx, t, "enabled again", state{"enabled", "active", lab.NextRelease})

	p.instructed(ctx, t, "dnf remove")
	p.run(ctx, t, "test -s /etc/pulumi-deployment-agent.yaml && rm /etc/pulumi-deployment-agent.yaml")
	p.wantNothing(ctx, t, before)
}
