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

	"workflowagent/internal/dev/must"
)

var steps = []string{"awk", "chmod", "cp", "mktemp", "openssl", "rm", "tar"}

// guillotine is like [stepping], but the programs kill their process group with SIGKILL before step
// CUT.
func guillotine(t *testing.T) (dir, count string) {
	t.Helper()
	return stepping(t, `if [ "$n" = "$CUT" ]; then kill -9 0; fi`)
}

// stepping returns a new directory with wrappers for the installer's external programs. Each
// wrapper runs the shell code before, with the step's number in n, and then the program. The file
// count has one line per step.
func stepping(t *testing.T, before string) (dir, count string) {
	t.Helper()
	dir, count = t.TempDir(), filepath.Join(t.TempDir(), "count")
	for _, name := range steps {
		path := must.Get(exec.LookPath(name))(t)
		writeFile(t, filepath.Join(dir, name), fmt.Appendf(nil, `#!/bin/sh
echo %[1]s >>"$COUNT"
n=0
while read -r _; do n=$((n+1)); done <"$COUNT"
real=%[2]s
%[3]s
exec "$real" "$@"
`, name, path, before), 0o755)
	}
	return dir, count
}

type beginning struct {
	prepare func(t *testing.T, b *box)
	good    []string // versions accepted after the interruption
	before  string   // version kept at the end
}

func beginnings(use []string) map[string]beginning {
	return map[string]beginning{
		"fresh":   {func(*testing.T, *box) {}, []string{"none", "v1.1.0"}, ""},
		"upgrade": {func(t *testing.T, b *box) { t.Helper(); b.want(t, 0, nil, append(use, "--version=1.0.0")...) }, []string{"v1.0.0", "v1.1.0"}, "v1.0.0"},
	}
}

// TestKilled checks that after a kill at any step the old or the new version works, and that the
// next run installs the new one and leaves no leftovers.
func TestKilled(t *testing.T) {
	t.Parallel()
	m := newMirror(t, "v1.1.0")
	m.release(t, "v1.0.0")
	use := []string{"--mirror", "file://" + m.dir, "--no-modify-path", "--no-service"}
	for name, c := range beginnings(use) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			template := newBox(t, m, dash(t))
			must.OK(t, os.MkdirAll(template.home, 0o755))
			c.prepare(t, template)
			seen := map[string]int{}
			for cut := 1; ; cut++ {
				b := newBox(t, m, dash(t))
				must.OK(t, os.CopyFS(b.home, os.DirFS(template.home)))
				dir, count := guillotine(t)
				b.path = []string{dir}
				b.env = []string{"COUNT=" + count, "CUT=" + strconv.Itoa(cut)}
				cmd := b.command(t.Context(), t, use...)
				out, code := output(t, cmd)
				if code == 0 { // no more steps
					break
				}
				if code != -1 {
					t.Fatalf("cut %d: exit code %d\n%s", cut, code, out)
				}
				got := b.installed(t)
				kind, _, _ := strings.Cut(got, ":")
				seen[kind]++
				if !slices.Contains(c.good, kind) {
					t.Fatalf("cut %d, before %s: the installation is %s", cut, lastLine(t, count), got)
				}
				b.path, b.env = nil, nil
				if err := os.RemoveAll(b.tmp); err != nil { // a killed installer leaves its download there
					t.Fatal(err)
				}
				must.OK(t, os.Mkdir(b.tmp, 0o700))
				b.want(t, 0, nil, use...)
				before := c.before
				if kind == "v1.1.0" { // the swap might have removed the previous version
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

// TestInterrupted checks that after a Ctrl-C before or after any step the old or the new version
// works, and that the installer has cleaned up.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	m := newMirror(t, "v1.1.0")
	m.release(t, "v1.0.0")
	use := []string{"--mirror", "file://" + m.dir, "--no-modify-path", "--no-service"}
	for name, c := range beginnings(use) {
		for when, before := range map[string]string{
			"before": `if [ "$n" = "$CUT" ]; then kill -INT 0; fi`,
			"after":  `if [ "$n" = "$CUT" ]; then trap "" INT; "$real" "$@"; code=$?; kill -INT 0; exit $code; fi`,
		} {
			t.Run(name+" "+when, func(t *testing.T) {
				t.Parallel()
				inShells(t, func(t *testing.T, sh shell) {
					template := newBox(t, m, sh)
					must.OK(t, os.MkdirAll(template.home, 0o755))
					c.prepare(t, template)
					pace := 23 // shells differ in signal handling, and zsh starts slowly
					if full {
						pace = 1
					} else if filepath.Base(sh[0]) == "dash" {
						pace = 5
					}
					dir, count := stepping(t, before)
					for cut := 1 + (len(name)+len(t.Name()))%pace; ; cut += pace {
						b := newBox(t, m, sh)
						must.OK(t, os.CopyFS(b.home, os.DirFS(template.home)))
						must.OK(t, os.RemoveAll(count))
						b.path = []string{dir}
						b.env = []string{"COUNT=" + count, "CUT=" + strconv.Itoa(cut)}
						out, code := b.run(t, use...)
						text, err := os.ReadFile(count)
						if os.IsNotExist(err) {
							t.Skip("this shell has the programs in itself")
						} else if err != nil {
							t.Fatal(err)
						}
						done := strings.Fields(string(text))
						if len(done) < cut {
							return
						}
						at := fmt.Sprintf("cut %d, %s %s", cut, when, done[cut-1])
						// The exit code is 0 if the signal arrived during the final cleanup. zsh
						// occasionally returns other codes.
						if code != 130 && code != 0 && filepath.Base(sh[0]) != "zsh" {
							t.Errorf("%s: exit code %d\n%s", at, code, out)
						}
						kind, _, _ := strings.Cut(b.installed(t), ":")
						if !slices.Contains(c.good, kind) || code == 0 && kind != "v1.1.0" {
							t.Errorf("%s: exit code %d, the installation is %s\n%s", at, code, kind, out)
						}
						if kind == "none" {
							b.nothing(t)
						} else {
							for _, dir := range []string{b.root(), filepath.Join(b.root(), "versions")} {
								for _, left := range hidden(t, dir) {
									t.Errorf("%s: %s is left in %s", at, left, dir)
								}
							}
						}
						b.path, b.env = nil, nil
						b.want(t, 0, nil, use...)
						if got := b.installed(t); got != "v1.1.0" {
							t.Errorf("%s: the next run installs %s", at, got)
						}
					}
				})
			})
		}
	}
}

// hidden returns the names in a directory that begin with a dot, except for the lock file that
// updates share.
func hidden(t *testing.T, dir string) []string {
	t.Helper()
	if _, err := os.Stat(dir); os.IsNotExist(err) {
		return nil
	}
	return slices.DeleteFunc(names(t, dir), func(name string) bool { return !strings.HasPrefix(name, ".") || name == ".update.lock" })
}

func lastLine(t *testing.T, path string) string {
	t.Helper()
	text := must.Get(os.ReadFile(path))(t)
	lines := strings.Fields(string(text))
	return lines[len(lines)-1]
}
