package installer

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// steps are the programs by which install.sh changes something.
var steps = []string{"chmod", "cp", "find", "ln", "mkdir", "mktemp", "mv", "rm", "rmdir", "sync", "tar"}

// guillotine makes a directory with programs that end their whole process group by
// SIGKILL before they do their n-th step, or after it.
func guillotine(t *testing.T) (dir, count string) {
	t.Helper()
	dir, count = t.TempDir(), filepath.Join(t.TempDir(), "count")
	for _, name := range steps {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(dir, name), fmt.Appendf(nil, `#!/bin/sh
echo %[1]s >>"$COUNT"
n=0
while read -r _; do n=$((n+1)); done <"$COUNT"
if [ "$n" = "$CUT" ]; then kill -9 0; fi
exec %[2]s "$@"
`, name, path), 0o755)
	}
	return dir, count
}

// Wherever it is killed, the old version or the new one works, and the next run ends
// on the new one with nothing left over.
func TestKilled(t *testing.T) {
	t.Parallel()
	m := newMirror(t)
	m.release(t, "v1.0.0")
	m.newest(t, "v1.1.0")
	use := []string{"--mirror", "file://" + m.dir, "--no-modify-path", "--no-service"}
	for name, c := range map[string]struct {
		prepare func(t *testing.T, b *box)
		good    []string // versions that may be there after the kill
		before  string   // version that is kept at the end
	}{
		"fresh":   {func(*testing.T, *box) {}, []string{"none", "v1.1.0"}, ""},
		"upgrade": {func(t *testing.T, b *box) { t.Helper(); b.want(t, 0, nil, append(use, "--version=1.0.0")...) }, []string{"v1.0.0", "v1.1.0"}, "v1.0.0"},
		"again":   {func(t *testing.T, b *box) { t.Helper(); b.want(t, 0, nil, use...) }, []string{"v1.1.0"}, ""},
		"flat":    {func(t *testing.T, b *box) { t.Helper(); flat(t, b) }, []string{"v0.9.0", "v1.1.0"}, "v0.0.0-flat"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			template := newBox(t, m, dash(t))
			if err := os.MkdirAll(template.home, 0o755); err != nil {
				t.Fatal(err)
			}
			c.prepare(t, template)
			pace := 3
			if full {
				pace = 1
			}
			seen := map[string]int{}
			for cut := 1 + len(name)%pace; ; cut += pace {
				b := newBox(t, m, dash(t))
				if err := os.CopyFS(b.home, os.DirFS(template.home)); err != nil {
					t.Fatal(err)
				}
				dir, count := guillotine(t)
				b.path = []string{dir}
				b.env = []string{"COUNT=" + count, "CUT=" + strconv.Itoa(cut)}
				cmd := b.command(t.Context(), t, use...)
				out, code := output(t, cmd)
				if code == 0 { // there were fewer steps
					break
				}
				if code != -1 {
					t.Fatalf("cut %d: exit code %d\n%s", cut, code, out)
				}
				got := b.installed(t)
				kind, _, _ := strings.Cut(got, ":")
				seen[kind]++
				if !slices.Contains(c.good, kind) {
					t.Fatalf("cut %d, before %s: there is %s", cut, lastLine(t, count), got)
				}
				b.path, b.env = nil, nil
				if err := os.RemoveAll(b.tmp); err != nil { // what was downloaded stays there
					t.Fatal(err)
				}
				if err := os.Mkdir(b.tmp, 0o700); err != nil {
					t.Fatal(err)
				}
				b.want(t, 0, nil, use...)
				before := c.before
				if kind == "v1.1.0" { // the way back may be gone with the swap behind it
					before = ""
					if entries := names(t, filepath.Join(b.root(), "versions")); len(entries) > 1 {
						before = c.before
					}
				}
				b.whole(t, "v1.1.0", before)
			}
			for _, kind := range c.good {
				if seen[kind] == 0 {
					t.Errorf("no cut left %s: %v", kind, seen)
				}
			}
		})
	}
}

func lastLine(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(string(text))
	return lines[len(lines)-1]
}
