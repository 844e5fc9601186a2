package service

import (
	"os"
	"path/filepath"
	"testing"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/host/update"
)

// TestInitUpdateAcrossReboots switches the machine off between the swap and the confirmation, once
// by cutting its power and once cleanly. After the boot the helper completes the update: it keeps a
// working version and rolls back a broken one.
func TestInitUpdateAcrossReboots(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	u := newUpdatedService(t)

	u.held.Store(newVersion)
	u.publish(t, newVersion, u.program(t, newVersion))
	u.await(ctx, t, "waiting for the new version to run", func() bool { return u.status(ctx, t).Agent.Version == newVersion })
	must.OK(t, u.CutPower(ctx))
	u.cutOff(t, oldVersion, newVersion)
	u.held.Store("none")
	must.OK(t, u.Boot(ctx))
	u.settled(ctx, t, newVersion)
	u.said(ctx, t, helperName, "an update was interrupted", "the update is complete")
	if proven := u.link("proven"); proven != newVersion {
		t.Errorf("the updater is that of %s", proven)
	}

	// During the shutdown, the updater's pending restart of the service fails before the service
	// manager stops the updater. This failure does not count against the version, whose own defect
	// appears after the boot.
	const hang, started = "hang", "started"
	harness.Write(t, filepath.Join(u.shared, hang), nil, 0o600)
	u.publish(t, crashVersion, []byte("#!/bin/sh\n[ \"$1\" != version ] || { echo "+crashVersion+"; exit 0; }\n"+
		": >"+sharedInside+"/"+started+"\nwhile [ -e "+sharedInside+"/"+hang+" ]; do sleep 0.1; done\nexit 1\n"))
	u.await(ctx, t, "waiting for the new version to start", func() bool {
		_, err := os.Stat(filepath.Join(u.shared, started))
		return err == nil
	})
	must.OK(t, u.PowerOff())
	u.cutOff(t, newVersion, crashVersion)
	must.OK(t, os.Remove(filepath.Join(u.shared, hang)))
	must.OK(t, u.Boot(ctx))
	u.failed(ctx, t, crashVersion)
	u.settled(ctx, t, newVersion)
	u.said(ctx, t, helperName, "an update was interrupted", "the old version is current and works again")
	u.said(ctx, t, serviceName, "the update was rolled back", "is not installed")
	if _, err := os.Stat(filepath.Join(u.Root, installRoot, "versions", crashVersion)); !os.IsNotExist(err) {
		t.Errorf("the files of %s are left (%v)", crashVersion, err)
	}
}

// cutOff checks that the machine was switched off during the update between two versions, after the
// swap and before the confirmation.
func (u *updatedService) cutOff(t *testing.T, from, to string) {
	t.Helper()
	install := update.Installation{Root: filepath.Join(u.Root, installRoot)}
	begunFrom, begunTo, ok := install.Underway()
	if current, proven := u.current(), u.link("proven"); !ok || begunFrom != from || begunTo != to || current != to || proven != from {
		t.Fatalf("switched off during the update from %q to %q (%v), at %s, with the updater of %s; want the one from %s to %s, swapped and not confirmed",
			begunFrom, begunTo, ok, current, proven, from, to)
	}
}
