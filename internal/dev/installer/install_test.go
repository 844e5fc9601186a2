package installer

import (
	"crypto/ecdsa"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/host/release"
)

func TestInstall(t *testing.T) {
	t.Parallel()
	m := newMirror(t, "v1.2.3")
	m.release(t, "v1.0.0")
	m.release(t, "v1.3.0-rc.1")
	m.channel(t, release.Beta, "v1.3.0-rc.1")
	for name, c := range map[string]struct {
		args []string
		env  []string
		want string
	}{
		"newest":      {nil, nil, "v1.2.3"},
		"beta":        {[]string{"--channel", "beta"}, nil, "v1.3.0-rc.1"},
		"pinned":      {[]string{"--version=1.0.0"}, nil, "v1.0.0"},
		"environment": {nil, []string{"WORKFLOW_AGENT_VERSION=v1.0.0"}, "v1.0.0"},
	} {
		t.Run(name, func(t *testing.T) {
			m.inShells(t, func(t *testing.T, b *box) {
				b.env = c.env
				b.piped = name == "newest"
				b.want(t, 0, []string{"Installed " + c.want + " in " + b.root(), "export PATH="}, c.args...)
				b.whole(t, c.want, "")
			})
		})
	}
}

func TestQuiet(t *testing.T) {
	t.Parallel()
	m := newMirror(t, "v1.2.3")
	m.inShells(t, func(t *testing.T, b *box) {
		b.env = []string{"PATH=" + b.root() + ":/usr/bin:/bin"}
		if out := b.want(t, 0, nil, "--silent"); out != "" {
			t.Errorf("--silent prints:\n%s", out)
		}
		b.whole(t, "v1.2.3", "")
		if out := b.want(t, 0, nil, "--no-service"); strings.Contains(out, "\x1b") || strings.Contains(out, "ownload") {
			t.Errorf("without a terminal it prints:\n%s", out)
		}
	})
}

func TestMirror(t *testing.T) {
	t.Parallel()
	m := newMirror(t, "v1.2.3")
	credentials := strings.Replace(m.url, "://", "://user:s3cret-word@", 1)
	// Without --globoff, curl would expand this name as a pattern.
	must.OK(t, os.Symlink(".", filepath.Join(m.dir, "[1-2]{a,b}")))
	busybox := tools(t, without(used, "curl")...)
	link(t, "busybox", filepath.Join(busybox, "wget"))
	for name, c := range map[string]struct {
		mirror, only string
		code         int
	}{
		"http":             {m.url + "/", "", 0},
		"braces":           {m.url + "/[1-2]{a,b}", "", 0},
		"file":             {"file://" + m.dir, tools(t, without(used, "curl")...), 0},
		"credentials":      {credentials, "", 0},
		"wget":             {credentials, tools(t, append(without(used, "curl"), "wget")...), 0},
		"busybox wget":     {m.url, busybox, 0},
		"no server":        {"http://user:s3cret-word@127.0.0.1:1", "", 1},
		"no such place":    {credentials + "/elsewhere", "", 1},
		"no such place, w": {credentials + "/elsewhere", tools(t, append(without(used, "curl"), "wget")...), 1},
		"no such file":     {"file:///nowhere", "", 1},
		"no URL":           {"/srv/mirror", "", 2},
		"unsafe words":     {"http://a b", "", 2},
		"other scheme":     {"ftp://mirror", "", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t, m, dash(t))
			b.script, b.only = source(t), c.only
			// Without a fake sleep, the installer would pause before each retry.
			b.path = []string{noSleep(t)}
			out := b.want(t, c.code, nil, "--mirror", c.mirror, "--key", m.keyFile)
			if strings.Contains(out, "s3cret") {
				t.Errorf("it shows the password:\n%s", out)
			}
			if c.code == 0 {
				b.whole(t, "v1.2.3", "")
			} else {
				b.nothing(t)
			}
		})
	}
}

// TestPlaces checks installations without HOME, and into a directory whose name contains a dollar
// sign and quotes.
func TestPlaces(t *testing.T) {
	t.Parallel()
	m := newMirror(t, "v1.2.3")
	inShells(t, func(t *testing.T, sh shell) {
		b := newBox(t, m, sh)
		home := b.home
		b.home = ""
		if filepath.Base(sh[0]) != "zsh" { // zsh sets a missing HOME
			b.want(t, 1, []string{"HOME is not set", "--dir"})
		}
		dir := filepath.Join(t.TempDir(), `it's $HOME "here"`)
		b.want(t, 0, []string{"Installed v1.2.3 in " + dir}, "--dir", dir+"/")
		b.home = home
		out := b.want(t, 0, []string{"v1.2.3 was already installed in " + dir}, "--dir="+dir)
		line := out[strings.Index(out, "export PATH"):]
		line, _, _ = strings.Cut(line, "\n")
		check := b.command(t.Context(), t)
		check.Args = []string{"sh", "-c", line + `; command -v customer-managed-workflow-agent`}
		check.Path = "/bin/sh"
		if out, _ := output(t, check); out != dir+"/"+release.Program+"\n" {
			t.Errorf("the line %s makes the shell find %q", line, out)
		}
		writeFile(t, filepath.Join(home, "mine", "letter"), nil, 0o600)
		b.before = "id() { echo 1000; }; "
		b.want(t, 1, []string{"--system needs root", "sudo sh -s -- --system"}, "--system")
		b.before = ""
		if os.Geteuid() == 0 {
			// A HOME that does not exist has no other owner. A user's shell can have strict options
			// set.
			b.before = `HOME=$HOME/new; set -fC; `
			b.want(t, 0, []string{"Installed v1.2.3 in " + filepath.Join(home, "new")})
			b.want(t, 0, []string{"v1.2.3 was already installed in " + filepath.Join(home, "new")})
			b.before = ""
			must.OK(t, os.Chown(home, 1234, 1234))
			b.want(t, 1, []string{home + " belongs to another user", "without sudo"})
			must.OK(t, os.Chown(home, 0, 0))
		}
		b.want(t, 1, []string{"not an agent"}, "--dir", filepath.Join(home, "mine"))
		b.want(t, 1, []string{"--dir"}, "--dir", "/")
		b.want(t, 1, []string{"colon"}, "--dir", filepath.Join(home, "a:b"))
		b.want(t, 0, []string{"Installed"}, "--dir", "beside")
		if _, err := os.Stat(filepath.Join(home, "beside", "current", release.Program)); err != nil {
			t.Error(err)
		}
	})
}

func TestCommandLine(t *testing.T) {
	t.Parallel()
	m := newMirror(t, "v1.2.3")
	inShells(t, func(t *testing.T, sh shell) {
		b := newBox(t, m, sh)
		for _, args := range [][]string{
			{"--nonsense"},
			{"word"},
			{"--version"},
			{"--version", "../../etc"},
			{"--version", "v1.2"},
			{"--version=1.2.3\nv1.2.3"},
			{"--channel", "nightly"},
			{"--system", "--user"},
			{"--purge"},
			{"--version", "1.2.3", "--channel", "beta"},
		} {
			b.want(t, 2, []string{"install.sh: ", "see --help"}, args...)
		}
		b.want(t, 0, []string{"--mirror URL", "WORKFLOW_AGENT_MIRROR"}, "--help")
		b.script = source(t)
		b.want(t, 2, []string{"--mirror URL --key FILE"})
		b.want(t, 2, []string{"--mirror URL --key FILE"}, "--mirror", m.url)
		b.nothing(t)
	})
}

// TestKeyRotation checks that the installer accepts a release signed by any of the trusted keys.
func TestKeyRotation(t *testing.T) {
	t.Parallel()
	m := newMirror(t, "v1.2.3")
	for name, keys := range map[string][]*ecdsa.PrivateKey{
		"old first": {m.key, newKey(t)},
		"new first": {newKey(t), m.key},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t, m, dash(t))
			b.script = m.script(t, keys...)
			b.want(t, 0, nil)
			b.whole(t, "v1.2.3", "")
		})
	}
}
