package service

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/release/signing"
	"workflowagent/internal/host/release"
)

// brokenServer is a release whose installer works and whose server does not start.
const brokenServer = "v1.2.0"

// publishBroken serves a mirror that contains only brokenServer, and returns its URL.
func publishBroken(t *testing.T) string {
	t.Helper()
	releases := must.Get(lab.MakeReleases(t.Context(), os.Stderr))(t)
	key := must.Get(signing.ParsePrivateKey(harness.Read(t, releases.PrivateKey)))(t)
	p := &publisher{mirror: t.TempDir(), key: key}
	program := "#!/bin/sh\ncase $1 in\nversion) echo " + brokenServer + " ;;\nserve) echo 'cannot start' >&2; exit 1 ;;\n*) exec /root/" + serverName + " \"$@\" ;;\nesac\n"
	name := must.Get(release.ServerArchive(brokenServer, runtime.GOOS, runtime.GOARCH))(t)
	p.publishArchive(t, brokenServer, name, map[string][]byte{serverName: []byte(program)}, nil)
	server := httptest.NewServer(http.FileServer(http.Dir(p.mirror)))
	t.Cleanup(server.Close)
	return server.URL
}

// TestInitServerInstaller installs, upgrades and removes the server with install.sh.
func TestInitServerInstaller(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newServerMachine(t)
	s.run(ctx, t, "mkdir -p /etc/sysusers.d") // exists on a machine with other packages
	clean := s.files(ctx, t)
	script := "curl -fsSL " + s.mirror + "/install.sh | sh -s -- --server"
	s.strangeDirectory(ctx, t, script)
	s.wantNoServer(ctx, t, clean)

	s.says(ctx, t, script+" --mirror "+s.mirror+" --version "+lab.FirstRelease, "Installed "+lab.FirstRelease+" in /opt/"+serverName, "The service runs")
	s.wantServer(ctx, t, "installed", state{"enabled", "active", lab.FirstRelease})
	if writable := s.run(ctx, t, "find /opt/"+serverName+` \( ! -user root -o -perm /022 ! -type l \) -print`); writable != "" {
		t.Errorf("users other than root may change\n%s", writable)
	}
	s.makePool(ctx, t)
	s.adminToken(ctx, t)

	s.follow(ctx, t, "server-install.md", "server installer", nil)
	next := state{"enabled", "active", lab.NextRelease}
	s.wantServer(ctx, t, "upgraded", next)

	s.run(ctx, t, "cp /opt/"+serverName+"/"+serverName+" /root/")
	broken := publishBroken(t)
	out, err := s.Run(ctx, script+" --mirror "+broken+" --version "+brokenServer)
	if err == nil || !strings.Contains(out, "the service does not start with "+brokenServer) || !strings.Contains(out, "the service runs with "+lab.NextRelease+" again") {
		t.Errorf("a broken release: %v\n%s", err, out)
	}
	s.run(ctx, t, "rm /root/"+serverName)
	s.wantServer(ctx, t, "after a broken release", next)
	if _, err := s.Online(ctx); err != nil {
		t.Errorf("after the upgrades, the data is lost: %v", err)
	}

	s.follow(ctx, t, "server-upgrade.md", "server installer remove", nil)
	s.run(ctx, t, "test ! -e /opt/"+serverName+" && test ! -e /usr/local/bin/"+serverName+" && test -s "+serverConfig+" && test -s "+serverData+"/master-key && ! systemctl cat "+serverName)
	s.follow(ctx, t, "server-install.md", "server installer", nil)
	s.wantServer(ctx, t, "installed again", next)
	if _, err := s.Online(ctx); err != nil {
		t.Errorf("after a removal, the data is lost: %v", err)
	}
	if out, err := s.Run(ctx, script+" --uninstall --purge"); err == nil || !strings.Contains(out, "add --yes") {
		t.Errorf("a purge without --yes: %v\n%s", err, out)
	}
	s.wantServer(ctx, t, "after a purge without --yes", next)
	s.plant(ctx, t)
	s.follow(ctx, t, "server-upgrade.md", "server installer purge", nil)
	s.wantPlanted(ctx, t)
	s.wantNoServer(ctx, t, clean)
	s.run(ctx, t, "test ! -e /opt/"+serverName)
}

// strangeDirectory installs the server in a directory whose name must not be expanded, where files of others are
// in the places of the installation. Root must not change what these lead to.
func (s *serverMachine) strangeDirectory(ctx context.Context, t *testing.T, script string) {
	t.Helper()
	const watched = "stat -c '%n %U:%G %a %s' /etc/shadow /srv /usr/local/bin/" + serverName
	dir := shellQuote(`/opt/a b $(touch pwned) %h; touch pwned`)
	s.run(ctx, t, "mkdir -p /etc/"+serverName+" && ln -s /etc/shadow "+serverConfig+" && echo mine >/usr/local/bin/"+serverName+"; printf 'A=$(touch pwned)\n' >/etc/"+serverName+"/"+serverName+".env")
	want := s.run(ctx, t, watched)
	// The service cannot read this configuration.
	out, err := s.Run(ctx, script+" --mirror "+s.mirror+" --dir "+dir)
	if err == nil || !strings.Contains(out, "is not a link of this installation and was left unchanged") || !strings.Contains(out, "the service does not start") {
		t.Errorf("through links: %v\n%s", err, out)
	}
	s.run(ctx, t, "rm "+serverConfig)
	s.says(ctx, t, script+" --mirror "+s.mirror+" --dir "+dir, "The service runs")
	s.run(ctx, t, "systemctl reload "+serverName)
	s.says(ctx, t, script+" --uninstall --purge --yes --dir "+dir, "Removed the server from /opt/a b $(touch")
	if got := s.run(ctx, t, watched); got != want {
		t.Errorf("through links, it has changed\n%s\nto\n%s", want, got)
	}
	s.run(ctx, t, "test -z \"$(find / -xdev -name '*pwned*')\" && rm -r /usr/local/bin/"+serverName+" /etc/"+serverName)
}
