package service

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/dev/must"
)

// forgeries puts files into the stage that an attacker with the service's account could put there.
// None of these files may change the installation.
func (u *updatedService) forgeries(ctx context.Context, t *testing.T) {
	t.Helper()
	const request, tree = stageInside + "/request.json", "find " + installRoot + " -type d -printf '%p %U %m\\n' -o -printf '%p %T@ %l %s %U %m\\n' | grep -v '/.update.lock ' | sort | sha256sum"
	u.await(ctx, t, "waiting for the helper to have cleaned up", func() bool {
		out, _ := u.Run(ctx, "systemctl is-active "+helperName+".service") // fails unless it is active
		return strings.TrimSpace(out) == "inactive"
	})
	before := u.run(ctx, t, tree)
	good, forged := archiveName(t, newVersion), archiveName(t, forgedVersion)
	shared := sharedInside + "/release"
	must.OK(t, os.CopyFS(filepath.Join(u.shared, "release"), os.DirFS(filepath.Join(u.mirror, newVersion))))
	ask := `echo '{"version":"` + forgedVersion + `","explicit":true}' >` + request
	for _, forgery := range []struct{ name, script, says string }{
		{"garbage", "echo garbage >" + request, "reading the request"},
		{"no files", ask, "no such file"},
		{"another release's", "cp " + shared + "/* " + stageInside + "; mv " + stageInside + "/" + good + " " + stageInside + "/" + forged + "; " + ask, "another release"},
		{"own checksums", "cp " + shared + "/checksums.txt.sig " + stageInside + "; cd " + stageInside + "; echo x >" + forged + "; sha256sum " + forged + " >checksums.txt; " + ask, "signature"},
		{"a link for an archive", "ln -s /etc/shadow " + stageInside + "/checksums.txt; ln -s /etc/shadow " + stageInside + "/" + forged + "; " + ask, "not a regular file"},
		{"a pipe", "mkfifo " + stageInside + "/checksums.txt; " + ask, "not a regular file"},
		{"a link for a request", "ln -s /etc/shadow " + request, "not a regular file"},
		{"a directory for a request", "mkdir " + request, "not a regular file"},
		{"an older release", "cp " + shared + "/* " + stageInside + `; echo '{"version":"` + oldVersion + `","explicit":true}' >` + request, "never installs an older version"},
	} {
		mark := strings.TrimSpace(u.run(ctx, t, "journalctl -n 0 --show-cursor | sed -n 's/^-- cursor: //p'"))
		u.run(ctx, t, "runuser -u workflow-agent -- sh -c 'rm -rf "+stageInside+"; mkdir "+stageInside+"' && runuser -u workflow-agent -- sh -c "+shellQuote(forgery.script))
		var said string
		u.await(ctx, t, "waiting for the refusal of "+forgery.name, func() bool {
			said, _ = u.Run(ctx, "journalctl --no-pager -o cat --after-cursor='"+mark+"' -u "+helperName+".service")
			return strings.Contains(said, forgery.says)
		})
		u.await(ctx, t, "waiting for the request of "+forgery.name+" to be removed", func() bool {
			_, err := u.Run(ctx, "! test -e "+request+" && ! test -h "+request)
			return err == nil
		})
		if after := u.run(ctx, t, tree); after != before {
			t.Errorf("%s changed the installation:\n%s", forgery.name, u.run(ctx, t, "ls -la "+installRoot+" "+installRoot+"/versions"))
		}
		if strings.Contains(said, "root:") {
			t.Errorf("the log shows a file of root's: %s", said)
		}
	}
	u.settled(ctx, t, newVersion)
}

func shellQuote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
