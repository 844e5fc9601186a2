package service

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/must"
)

const (
	packageName    = "customer-managed-workflow-agent"
	packageUnit    = "/usr/lib/systemd/system/" + packageName + ".service"
	packageProgram = "/usr/lib/" + packageName + "/" + packageName
)

type packaged struct {
	*service
	mirror string // URL
}

func newPackaged(t *testing.T, binds ...lab.Bind) *packaged {
	t.Helper()
	if reason, ok := lab.ReleasesAvailable(); !ok {
		t.Skip(reason)
	}
	releases := must.Get(lab.MakeReleases(t.Context(), os.Stderr))(t)
	files := http.FileServer(http.Dir(releases.Mirror))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// These files name ReleaseHome, which this server replaces.
		if !strings.HasSuffix(r.URL.Path, ".sources") && !strings.HasSuffix(r.URL.Path, ".repo") {
			files.ServeHTTP(w, r)
			return
		}
		text, err := os.ReadFile(filepath.Join(releases.Mirror, filepath.Clean(r.URL.Path)))
		if err != nil {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(bytes.ReplaceAll(text, []byte(lab.ReleaseHome), []byte("http://"+r.Host))) // a disconnected client reports its own error
	}))
	t.Cleanup(server.Close)
	return &packaged{newService(t, binds...), server.URL}
}

// instructed runs the commands after a mark in docs/installation.md, as root and with this mirror.
func (p *packaged) instructed(ctx context.Context, t *testing.T, mark string) {
	t.Helper()
	p.run(ctx, t, harness.FromPage(t, mark, map[string]string{"MIRROR": p.mirror}))
}

type state struct {
	enabled, active string
	version         string // version of the installed program
}

// want checks the state of the service, that the installed program runs, and that the service's
// journal has no error.
func (p *packaged) want(ctx context.Context, t *testing.T, when string, want state) {
	t.Helper()
	var got state
	got.enabled, got.active = p.word(ctx, "systemctl is-enabled "+packageName), p.word(ctx, "systemctl is-active "+packageName)
	if fields := strings.Fields(p.word(ctx, packageName+" version")); len(fields) > 0 {
		got.version = fields[len(fields)-1]
	}
	if old := p.word(ctx, "customer-managed-deployment-agent version"); !strings.Contains(old, got.version) {
		t.Errorf("%s: the old name says %q", when, old)
	}
	if got != want {
		t.Errorf("%s: the service is %+v, want %+v", when, got, want)
	}
	if want.active == "active" {
		// A process of the previous release would have a deleted file.
		if exe := p.word(ctx, "readlink /proc/$(systemctl show -p MainPID --value "+packageName+")/exe"); exe != packageProgram {
			t.Errorf("%s: %s runs, want %s", when, exe, packageProgram)
		}
	}
	if out, _ := p.Run(ctx, "systemctl --failed --quiet; journalctl --quiet --no-pager -u "+packageName+" | grep -iE 'level=(error|fatal)|panic'"); out != "" {
		t.Errorf("%s: the journal says\n%s", when, out)
	}
}

func (p *packaged) word(ctx context.Context, script string) string {
	out, _ := p.Run(ctx, script) // the caller compares its output
	return strings.TrimSpace(out)
}

func (p *packaged) configureByCommand(ctx context.Context, t *testing.T, settings ...string) {
	t.Helper()
	harness.Write(t, filepath.Join(p.shared, "token"), []byte(p.Pool.Token), 0o600)
	for i := range settings {
		settings[i] = "--set " + settings[i]
	}
	out := p.run(ctx, t, "DOCKER_HOST=unix:///srv/docker.sock "+packageName+" configure --token-file - --service-url "+p.Server.URL+
		" --set polling_interval=2s --set http_server_port=0 "+strings.Join(settings, " ")+" <"+sharedInside+"/token; rm "+sharedInside+"/token")
	if strings.Contains(out, p.Pool.Token) {
		t.Error("configure shows the token")
	}
}

// halfwayOf is like [halfway], for a job that cannot see the machine's files. The command continues
// when the repository has the branch, and ends when it has the one that ends in [ended].
func halfwayOf(repo *lab.Repo, branch string) string {
	return fmt.Sprintf(`await() { until git ls-remote --exit-code --quiet %s refs/heads/$1 >/dev/null; do sleep 0.2; done; }
i=0; while [ $i -lt %d ]; do i=$((i+1)); echo line-$i; if [ $i = %d ]; then await %s; fi; done; await %s`,
		repo.URL, serviceLines, serviceLines/2, branch, branch+ended)
}

// ended is the end of the name of the branch for which a job waits before its pulumi starts, which does not wait long for
// a server.
const ended = "-ended"

// run is a deployment whose job pauses half-way, and before its pulumi starts.
type run struct {
	st     *harness.Stack
	repo   *lab.Repo
	branch string
	d      harness.Deployment

	resumed bool
}

// running starts a deployment and returns when its job is half-way.
func (p *packaged) running(ctx context.Context, t *testing.T, st *harness.Stack, repo *lab.Repo, branch string) *run {
	t.Helper()
	d := st.Deploy(ctx, t, "update", repo.URL, halfwayOf(repo, branch))
	waiting, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	err := harness.Until(waiting, func() (bool, error) {
		now, err := st.Get(waiting, d)
		if err == nil && now.Status == "failed" {
			err = fmt.Errorf("it failed: %+v", now)
		}
		return strings.Contains(st.Log(waiting, t, d), fmt.Sprintf("line-%d\n", serviceLines/2)), err
	})
	if err != nil {
		t.Fatalf("the deployment does not begin: %v\n%s", err, st.Log(ctx, t, d))
	}
	return &run{st: st, repo: repo, branch: branch, d: d}
}

// resume lets the job continue.
func (r *run) resume(ctx context.Context, t *testing.T) {
	t.Helper()
	r.resumed = true
	must.Get(r.repo.Commit(ctx, r.branch, "continue", nil))(t)
}

// finish resumes the job unless it was resumed, and checks that the deployment succeeds and its log is
// complete.
func (r *run) finish(ctx context.Context, t *testing.T) {
	t.Helper()
	if !r.resumed {
		if now, err := r.st.Get(ctx, r.d); err != nil || now.Status != "running" {
			t.Fatalf("before it resumed, the deployment was %+v, %v", now, err)
		}
		r.resume(ctx, t)
	}
	must.Get(r.repo.Commit(ctx, r.branch+ended, "end", nil))(t)
	end := r.st.Finish(ctx, t, r.d)
	log := r.st.Log(ctx, t, r.d)
	if end.Status != "succeeded" {
		t.Fatalf("it ended as %+v\n%s", end, log)
	}
	wantLines(t, log)
}

// files returns a list of the machine's files, except for those of the package managers, the
// journal and the account tools.
func (p *packaged) files(ctx context.Context, t *testing.T) string {
	t.Helper()
	return p.run(ctx, t, `find / -xdev -print | grep -vE '^/(var/(lib/(apt|dpkg|rpm|dnf)|cache|log)|opt|root/.rpmdb|var/tmp)(/|$)|^/etc/(passwd|group|shadow|gshadow|subuid|subgid)-$' | sort`)
}

// wantFiles checks that the machine has no other files than before.
func (p *packaged) wantFiles(ctx context.Context, t *testing.T, before string) {
	t.Helper()
	was := map[string]bool{}
	for line := range strings.Lines(before) {
		was[line] = true
	}
	for line := range strings.Lines(p.files(ctx, t)) {
		if !was[line] {
			t.Errorf("a purge leaves %s", strings.TrimSpace(line))
		}
	}
}

func (p *packaged) wantNothing(ctx context.Context, t *testing.T, before string) {
	t.Helper()
	p.wantFiles(ctx, t, before)
	if out, err := p.Run(ctx, "getent passwd workflow-agent || getent group workflow-agent || systemctl cat "+packageName); err == nil {
		t.Errorf("a purge leaves\n%s", out)
	}
}

// wantDocker checks that the service still uses Docker, as the administrator chose.
func (p *packaged) wantDocker(ctx context.Context, t *testing.T, when string) {
	t.Helper()
	if group := p.word(ctx, "systemctl show -p SupplementaryGroups --value "+packageName); group != "docker" {
		t.Errorf("%s: the service has the groups %q, want docker", when, group)
	}
}
