package service

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/must"
)

const installedRoot = "/opt/customer-managed-workflow-agent"

func (p *packaged) says(ctx context.Context, t *testing.T, script string, words ...string) {
	t.Helper()
	out := p.run(ctx, t, script)
	for _, word := range words {
		if !strings.Contains(out, word) {
			t.Errorf("%s does not print %q:\n%s", script, word, out)
		}
	}
}

func TestInitInstaller(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	p := newPackaged(t)
	clean := p.files(ctx, t)
	p.stubPulumi(t)
	script := "curl -fsSL " + p.mirror + "/install.sh | sh -s -- --system --mirror " + p.mirror
	// This PATH is that of sudo on RHEL.
	p.says(ctx, t, strings.Replace(script, "| sh", "| SUDO_USER=maria PATH=/usr/sbin:/usr/bin:/sbin:/bin sh", 1)+" --process --version "+lab.FirstRelease,
		"Installed "+lab.FirstRelease+" in "+installedRoot, "sudo /usr/local/bin/"+packageName+" configure", "sudo /usr/local/bin/"+packageName+" service start")
	p.says(ctx, t, packageName+" version; customer-managed-deployment-agent version; "+packageName+" service status || :",
		lab.FirstRelease+"\n"+lab.FirstRelease+"\n", "inactive", "enabled")
	p.run(ctx, t, packageName+" service install --env PATH="+sharedInside+":/usr/bin:/bin")

	harness.Write(t, filepath.Join(p.shared, "token"), []byte(p.Pool.Token), 0o600)
	p.says(ctx, t, packageName+" configure --token-file "+sharedInside+"/token --service-url "+p.Server.URL+
		" --deploy-target process --set polling_interval=2s --set http_server_port=0; rm "+sharedInside+"/token", "/etc/pulumi-workflow-agent.yaml")
	p.run(ctx, t, packageName+" service start")
	p.awaitOnline(ctx, t)

	repo := p.Repo(ctx, t)
	st := p.NewStack(ctx, t, "box", "dev", "", nil)
	d := st.Deploy(ctx, t, "update", repo.URL, halfway(sharedInside+"/job"))
	p.awaitFile(ctx, t, "job.half", func() string { return st.Log(ctx, t, d) })
	p.instructed(ctx, t, "installer")
	if exe := p.run(ctx, t, "readlink /proc/$(systemctl show -p MainPID --value "+packageName+")/exe"); exe != installedRoot+"/versions/"+lab.NextRelease+"/"+packageName+"\n" {
		t.Errorf("after the upgrade %q runs", exe)
	}
	// The deployment's runner is one of the programs to remove.
	if out, err := p.Run(ctx, script+" --uninstall"); err == nil || !strings.Contains(out, "programs in "+installedRoot+" are still running") {
		t.Errorf("under a deployment --uninstall says %q (%v)", out, err)
	}
	p.run(ctx, t, packageName+" service status")
	p.run(ctx, t, "touch "+sharedInside+"/job.on")
	d = st.Finish(ctx, t, d)
	log := st.Log(ctx, t, d)
	if d.Status != "succeeded" {
		t.Fatalf("it ended as %+v\n%s", d, log)
	}
	wantLines(t, log)
	p.ranTimes(t, 1)
	if unit := p.run(ctx, t, "systemctl cat "+packageName); !strings.Contains(unit, "profile process") {
		t.Errorf("the upgrade forgot --process:\n%s", unit)
	}
	if owners := p.run(ctx, t, "find "+installedRoot+` \( ! -user root -o -perm /022 ! -type l \) -print`); owners != "" {
		t.Errorf("users other than root may change\n%s", owners)
	}

	p.instructed(ctx, t, "installer remove")
	p.run(ctx, t, "test ! -e "+installedRoot+" && test ! -e /usr/local/bin/"+packageName+" && test -s /etc/pulumi-workflow-agent.yaml && test -d /var/lib/workflow-agent/instances")
	if _, err := p.Run(ctx, "systemctl cat "+packageName); err == nil {
		t.Error("the unit was not removed")
	}
	// The reinstalled service has its former settings. The purge then removes all traces of the
	// agent.
	releases := must.Get(lab.MakeReleases(ctx, os.Stderr))(t)
	must.OK(t, os.CopyFS(filepath.Join(p.Root, "srv", "releases"), os.DirFS(releases.Mirror)))
	p.instructed(ctx, t, "installer offline")
	// The default sandbox hides the runners from the agent, which would report running jobs as lost.
	if out, err := p.Run(ctx, "rm -rf /srv/releases; "+packageName+" service start"); err == nil {
		t.Errorf("the agent runs processes in a sandbox that hides them:\n%s", out)
	}
	p.says(ctx, t, packageName+" service logs", "service install --process")
	p.run(ctx, t, packageName+" service install --process --start")
	p.awaitOnline(ctx, t)
	p.instructed(ctx, t, "installer purge")
	p.wantNothing(ctx, t, clean)
	p.run(ctx, t, "test ! -e "+installedRoot)
}

// TestInitInstallerUser installs, runs, upgrades and removes a service as an unprivileged user.
func TestInitInstallerUser(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	p := newPackaged(t)
	p.run(ctx, t, "useradd --create-home --shell /bin/bash maria")
	// su would open a session.
	maria := func(script string) string {
		return "cd /home/maria && setpriv --reuid maria --regid maria --init-groups env -i HOME=/home/maria SHELL=/bin/bash" +
			" PATH=/usr/bin:/bin:/home/maria/.pulumi/bin/" + packageName + " sh -c " + shellQuote(script)
	}
	script := "curl -fsSL " + p.mirror + "/install.sh | sh -s -- --mirror " + p.mirror
	// Without a session no service can be registered, which is not an error.
	p.says(ctx, t, maria(script+" --version "+lab.FirstRelease), "Installed "+lab.FirstRelease, "no session of systemd", "loginctl enable-linger maria")
	p.run(ctx, t, "loginctl enable-linger maria")
	waiting, cancel := context.WithTimeout(ctx, harness.Patience)
	defer cancel()
	if err := harness.Until(waiting, func() (bool, error) {
		_, err := p.Run(ctx, "systemctl is-active user@$(id -u maria) && test -S /run/user/$(id -u maria)/systemd/private")
		return err == nil, nil
	}); err != nil {
		t.Fatalf("maria has no systemd: %v", err)
	}
	p.says(ctx, t, maria(script+" --version "+lab.FirstRelease), lab.FirstRelease+" was already installed in", "service start --user")
	harness.Write(t, filepath.Join(p.shared, "token"), []byte(p.Pool.Token), 0o644)
	p.says(ctx, t, maria(packageName+" configure --token-file "+sharedInside+"/token --service-url "+p.Server.URL+
		" --deploy-target process --set polling_interval=2s --set http_server_port=0"), "/home/maria/.pulumi/bin/"+packageName+"/pulumi-workflow-agent.yaml")
	session := "export XDG_RUNTIME_DIR=/run/user/$(id -u); "
	p.run(ctx, t, maria(session+packageName+" service start --user"))
	p.awaitOnline(ctx, t)
	p.says(ctx, t, maria(script), "Upgraded from "+lab.FirstRelease+" to "+lab.NextRelease, "restarted with "+lab.NextRelease)
	p.says(ctx, t, maria(session+packageName+" service status --user"), "active")
	p.says(ctx, t, maria(script+" --uninstall --purge"), "Removed the service", "Removed configuration and state")
	if left := p.run(ctx, t, `find /home/maria /etc/systemd/user -name '*workflow*' -print; pgrep -lu maria workflow || :`); left != "" {
		t.Errorf("--purge left\n%s", left)
	}
}
