package service

import (
	"strings"
	"testing"
)

// TestInitSecondService checks two services that share an installation. Both must run the newest
// version, although only one checks for updates. Each can be removed alone.
func TestInitSecondService(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	u := newUpdatedService(t)
	if out, err := u.Run(ctx, "useradd deploy && "+updatedProgram+" service install --name second --account deploy"); err == nil || !strings.Contains(out, "--account workflow-agent") {
		t.Errorf("a service that would take the other's state says %q, %v", out, err)
	}
	u.run(ctx, t, "cp -p /etc/pulumi-workflow-agent.yaml /etc/second.yaml && "+
		updatedProgram+" service install --name second --process --config /etc/second.yaml --env PATH="+sharedInside+":/usr/bin:/bin --start")
	running := func(name string) string {
		out, _ := u.Run(ctx, "readlink /proc/$(systemctl show -p MainPID --value "+name+")/exe") // fails while the service has no process
		return out
	}
	for _, name := range []string{serviceName, "second"} {
		if exe := running(name); !strings.Contains(exe, oldVersion) {
			t.Fatalf("%s runs %s", name, exe)
		}
	}
	u.await(ctx, t, "waiting for both agents to be ready", func() bool {
		out, err := u.Run(ctx, updatedProgram+" status --config /etc/second.yaml")
		return err == nil && strings.Count(out, "State ") == 2
	})

	u.publish(t, newVersion, u.program(t, newVersion))
	for _, name := range []string{serviceName, "second"} {
		u.await(ctx, t, "waiting for "+name+" to run "+newVersion, func() bool { return strings.Contains(running(name), newVersion) })
	}
	u.said(ctx, t, "second-update", "restarting the service with the installed version")

	u.run(ctx, t, updatedProgram+" service uninstall --name second")
	if out := u.run(ctx, t, "ls -A /etc/systemd/system | grep second; systemctl is-active second second-update.path; ls /etc/second*; true"); strings.Contains(out, "second.service") ||
		strings.Contains(out, "second-update") || strings.Contains(out, "\nactive") || strings.Contains(out, "second.choices") || !strings.Contains(out, "/etc/second.yaml") {
		t.Errorf("after the removal of the second service, leftovers exist\n%s", out)
	}
	u.run(ctx, t, updatedProgram+" service status && systemctl is-active "+helperName+".path")
}
