package browser

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/must"
)

// failingProgram fails during an update, and not during a preview's set-up of the CLI.
const failingProgram = `name: box
runtime: yaml
resources:
  value:
    type: lab:Random
  broken:
    type: lab:Random
    properties:
      unknown: ${value.absent}
`

// terminal runs the stock CLI on a program.
type terminal struct {
	t   *testing.T
	w   *harness.Site
	dir string
}

// try runs the CLI and returns its output.
func (c *terminal) try(args ...string) (string, error) {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), filepath.Join(c.w.Tools.Dir, "pulumi"), append(args, "--non-interactive")...)
	cmd.Dir, cmd.Env = c.dir, append(c.w.Tools.Env(c.w.Home, c.w.Server.URL, c.w.Server.Token), "PULUMI_CONSOLE_DOMAIN="+strings.TrimPrefix(c.w.Server.URL, "http://"))
	out, err := cmd.Output()
	return string(out), err
}

func (c *terminal) run(args ...string) string {
	c.t.Helper()
	out, err := c.try(args...)
	if err != nil {
		c.t.Fatalf("pulumi %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (c *terminal) program(text string) {
	c.t.Helper()
	harness.Write(c.t, filepath.Join(c.dir, "Pulumi.yaml"), []byte(text), 0o644)
}

// printed is what the CLI prints about a stack.
type printed struct {
	Outputs map[string]any
	History []struct {
		Kind, Result    string
		Version         int
		ResourceChanges map[string]int
	}
	Resources  int
	InProgress bool
}

func (c *terminal) printed() printed {
	c.t.Helper()
	var p printed
	decode := func(text string, into any) {
		c.t.Helper()
		if err := json.Unmarshal([]byte(text), into); err != nil {
			c.t.Fatalf("decoding %s: %v", text, err)
		}
	}
	decode(c.run("stack", "output", "--json"), &p.Outputs)
	decode(c.run("stack", "history", "--json"), &p.History)
	var state struct {
		Deployment struct{ Resources []any }
	}
	decode(c.run("stack", "export"), &state)
	p.Resources = len(state.Deployment.Resources)
	var list []struct {
		Name             string
		UpdateInProgress bool
		ResourceCount    *int
	}
	decode(c.run("stack", "ls", "--json"), &list)
	if len(list) != 1 {
		c.t.Fatalf("pulumi stack ls prints %+v", list)
	}
	p.InProgress = list[0].UpdateInProgress
	if n := list[0].ResourceCount; n != nil && *n != p.Resources {
		c.t.Errorf("pulumi prints %d resources in the list, and %d in the export", *n, p.Resources)
	}
	return p
}

// viewLive finds the link to an update that pulumi prints.
var viewLive = regexp.MustCompile(`(?m)^View Live: (\S+)`)

// marks are the operations' marks of the console; operations without a mark are not shown.
var marks = []struct{ op, mark string }{{"create", "+"}, {"update", "~"}, {"delete", "-"}}

// TestSameAsPulumi compares the pages of a stack with what pulumi prints about it: before the first
// update, after a preview, an update and a failed update, during an update, after its cancellation, and
// after the destruction of all resources.
func TestSameAsPulumi(t *testing.T) {
	w := harness.StartSite(t, "")
	c := &terminal{t, w, t.TempDir()}
	c.program(harness.YamlProgram)
	c.run("stack", "init", w.Server.Organization+"/box/dev")
	c.run("stack", "select", w.Server.Organization+"/box/dev")
	stack := "/" + w.Server.Organization + "/box/dev"
	tb := newTab(t, w.Server.URL)
	signIn(tb, w.Server.Token)

	check := func(when string) printed {
		t.Helper()
		p := c.printed()
		compare(tb, stack, when, p)
		return p
	}
	check("before the first update")
	c.run("preview")
	if p := check("after a preview"); len(p.History) != 0 {
		t.Errorf("a preview is in the history: %+v", p.History)
	}
	tb.open(stack + "/runs?kind=preview")
	tb.wait("the preview is listed", "document.querySelectorAll('main .row[id]').length === 1 && document.querySelector('main .row[id]').innerText.includes('succeeded')")
	up := c.run("up", "--yes", "--skip-preview")
	link := viewLive.FindStringSubmatch(up)
	if link == nil || !strings.HasPrefix(link[1], tb.base+"/") {
		t.Fatalf("pulumi up prints no link to the console: %s", up)
	}
	tb.open(strings.TrimPrefix(link[1], tb.base))
	tb.wait("the link shows the update", "document.querySelector('main h1')?.innerText.includes('v1')")
	if p := check("after an update"); len(p.Outputs) != 1 || p.Resources < 2 {
		t.Errorf("the update made %+v", p)
	}
	c.program(failingProgram)
	if out, err := c.try("up", "--yes", "--skip-preview"); err == nil {
		t.Fatalf("the failing program succeeded:\n%s", out)
	}
	if p := check("after a failed update"); p.History[0].Result != "failed" {
		t.Errorf("pulumi prints the history %+v after a failed update", p.History)
	}

	// An update that runs: pulumi reads the same state as the pages.
	var made struct{ UpdateID string }
	path := "/api/stacks" + stack + "/update"
	for _, call := range []struct {
		path string
		out  any
	}{{path, &made}, {"", nil}} {
		if call.path == "" {
			call.path = path + "/" + made.UpdateID
		}
		must.OK(t, w.Server.Call(t.Context(), http.MethodPost, call.path, map[string]any{"name": "box", "runtime": "yaml"}, call.out))
	}
	if p := check("during an update"); !p.InProgress {
		t.Error("pulumi prints no update in progress")
	}
	c.run("cancel", "--yes")
	if p := check("after a cancelled update"); p.InProgress {
		t.Error("pulumi prints an update in progress after its cancellation")
	}

	c.program(harness.YamlProgram)
	c.run("destroy", "--yes", "--skip-preview")
	if p := check("after the destruction"); p.Resources != 0 || len(p.Outputs) != 0 {
		t.Errorf("after the destruction, pulumi prints %+v", p)
	}
}

// compare compares the pages of a stack with what pulumi prints.
func compare(tb *tab, stack, when string, p printed) {
	tb.t.Helper()
	tb.open(stack)
	tb.wait("the overview is loaded", "document.querySelector('#h-out')")
	shown := evaluate[map[string]string](tb, `Object.fromEntries([...document.querySelectorAll("section[aria-labelledby=h-out] dt")].map((dt) => [dt.innerText, dt.nextElementSibling.querySelector("span").textContent]))`)
	for name, value := range p.Outputs {
		if shown[name] != fmt.Sprint(value) {
			tb.t.Errorf("%s: pulumi prints the output %s = %v, and the page shows %q", when, name, value, shown[name])
		}
	}
	if len(shown) != len(p.Outputs) {
		tb.t.Errorf("%s: pulumi prints the outputs %v, and the page shows %v", when, p.Outputs, shown)
	}
	overview := evaluate[string](tb, `["#page-object", "#stack-state", ".l-runs .row"].map((s) => document.querySelector(s)?.innerText ?? "").join(" ") + " " + (document.querySelector(".l-runs .go")?.title ?? "")`)
	overview = strings.Join(strings.Fields(overview), " ")
	if locked := strings.Contains(overview, "The stack is locked"); locked != p.InProgress {
		tb.t.Errorf("%s: pulumi prints an update in progress: %v; the page shows a lock: %v", when, p.InProgress, locked)
	}
	if len(p.History) > 0 {
		newest := p.History[0]
		for _, want := range []string{
			fmt.Sprintf("%s v%d", newest.Kind, newest.Version), plural(p.Resources, "resource"),
		} {
			if !strings.Contains(overview, want) {
				tb.t.Errorf("%s: the overview lacks %q: %s", when, want, overview)
			}
		}
		if !states(overview, newest.Result) {
			tb.t.Errorf("%s: pulumi prints the result %s, and the overview shows %s", when, newest.Result, overview)
		}
	}

	tb.open(stack + "/runs")
	tb.wait("the activity is loaded", "document.querySelector('#runs')")
	rows := evaluate[[]string](tb, "[...document.querySelectorAll('#runs .row[id]')].filter((r) => !r.querySelector('.c-op').innerText.includes('preview')).map((r) => r.innerText.replaceAll('−', '-'))")
	if len(rows) != len(p.History) {
		tb.t.Fatalf("%s: pulumi prints %d updates, and the page shows %q", when, len(p.History), rows)
	}
	for i, u := range p.History {
		wants := []string{fmt.Sprintf("v%d", u.Version), u.Kind}
		if !states(rows[i], u.Result) {
			tb.t.Errorf("%s: pulumi prints the result %s, and the page shows %q", when, u.Result, rows[i])
		}
		for _, m := range marks {
			if n := u.ResourceChanges[m.op]; n > 0 {
				wants = append(wants, fmt.Sprintf("%s%d", m.mark, n))
			}
		}
		for _, want := range wants {
			if !strings.Contains(rows[i], want) {
				tb.t.Errorf("%s: pulumi prints %+v, and the page shows %q", when, u, rows[i])
			}
		}
	}

	tb.open(stack + "/resources?view=tree")
	tb.wait("the resources are loaded", "document.querySelector('main h1')")
	if n := evaluate[int](tb, "document.querySelectorAll('.steps li[data-depth]').length"); n != p.Resources {
		tb.t.Errorf("%s: pulumi exports %d resources, and the page shows %d", when, p.Resources, n)
	}
	tb.open("/" + strings.Split(stack, "/")[1] + "/-/stacks")
	tb.wait("the stacks are loaded", "document.querySelector('.l-stk .row:not(.hd, .grp)')")
	cells := evaluate[[]string](tb, "[...document.querySelectorAll('.l-stk .row:not(.hd, .grp) [role=cell]')].map((c) => c.innerText.trim())")
	if !slices.Contains(cells, fmt.Sprint(p.Resources)) || strings.Contains(strings.Join(cells, " "), "running") != p.InProgress {
		tb.t.Errorf("%s: pulumi prints %d resources, in progress: %v; the list of stacks shows %q", when, p.Resources, p.InProgress, cells)
	}
}

// states reports whether a page shows a result that pulumi prints. The console distinguishes cancelled
// from failed updates, and pulumi does not.
func states(text, result string) bool {
	switch result {
	case "in-progress":
		return strings.Contains(text, "running")
	case "failed":
		return strings.Contains(text, "failed") || strings.Contains(text, "cancelled")
	default:
		return strings.Contains(text, result)
	}
}

func plural(n int, noun string) string {
	if n == 1 {
		return fmt.Sprintf("%d %s", n, noun)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
