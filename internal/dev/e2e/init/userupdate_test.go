package service

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/host/update"
)

// TestInitUpdateOfAUser updates a user's service, whose helper belongs to the same user.
func TestInitUpdateOfAUser(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	u := newUpdatedMachine(t)
	const home, root = "/home/ann", "/home/ann/.pulumi/bin/customer-managed-workflow-agent"
	u.run(ctx, t, "useradd --create-home ann && loginctl enable-linger ann && mkdir -p "+root)
	u.publisher.install(ctx, t, u.service, root, oldVersion)
	harness.Write(t, filepath.Join(u.Root, root, "pulumi-workflow-agent.yaml"), []byte(u.config), 0o600)
	ann := func(script string) string {
		return "runuser -u ann -- env HOME=" + home + " XDG_RUNTIME_DIR=/run/user/$(id -u ann) sh -c " + shellQuote(script)
	}
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := u.Run(context.Background(), "journalctl --no-pager -n 60 _UID=$(id -u ann)")
			t.Log(out)
		}
	})
	u.await(ctx, t, "waiting for the user's systemd", func() bool {
		_, err := u.Run(ctx, ann("systemctl --user show --property=Version"))
		return err == nil
	})
	agent := root + "/customer-managed-workflow-agent"
	u.run(ctx, t, "chown -hR ann:ann "+home+" && "+ann(agent+" service install --user && "+
		hurry(home+"/.config/systemd/user")+"systemctl --user daemon-reload && "+agent+" service start --user"))
	u.publish(t, newVersion, u.program(t, newVersion))
	u.await(ctx, t, "waiting for the user's update", func() bool {
		out, _ := u.Run(ctx, ann(agent+" status")) // fails until it is ready
		_, pending := os.Lstat(filepath.Join(u.Root, root, update.JournalFile))
		return strings.Contains(out, "READY") && strings.Contains(out, newVersion) && os.IsNotExist(pending)
	})
	u.run(ctx, t, ann(agent+" service uninstall --user"))
	if out := u.run(ctx, t, "find "+home+"/.config/systemd/user -name '*.service' -o -name '*.path'"); out != "" {
		t.Errorf("units are left: %s", out)
	}
}
