package render_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"

	"workflowagent/internal/redact"
	"workflowagent/internal/server/gitops/render"
	"workflowagent/internal/server/stacks/changes"
	"workflowagent/internal/workflow"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const (
	secret  = "correct-horse-battery"
	console = "https://console.example.com"
)

var style = render.Style{Limit: 60_000, Folds: true}

func tree() changes.Tree {
	return changes.Tree{
		Rows: []changes.Row{
			{URN: "r", Type: "pulumi:pulumi:Stack", Name: "web-prod", Op: "same", State: changes.Done},
			{URN: "a", Type: "aws:s3/bucket:Bucket", Name: "logs", Op: "create", State: changes.Done},
			{URN: "b", Type: "aws:ec2/instance:Instance", Name: "web", Op: "replace", State: changes.Planned, Diff: []changes.Property{{Path: "ami", Kind: "update-replace"}}, ReplaceKeys: []string{"ami"}},
			{URN: "c", Type: "random:index:Password", Name: "p", Op: "update", State: changes.Failed, Diff: []changes.Property{{Path: "length", Kind: "update"}}, More: 3},
			{URN: "d", Type: "x:y:Z", Name: "old", Op: "delete", State: changes.Done},
		},
		Totals:   map[string]int{"same": 1, "create": 1, "replace": 1, "update": 1, "delete": 1},
		Messages: []changes.Message{{URN: "urn:pulumi:prod::web::x:y:Z::old", Severity: "error", Text: "cannot ```delete```\n</details> @team, the key is " + secret}},
	}
}

func quiet() changes.Tree { return changes.Tree{Totals: map[string]int{"same": 12}} }

func cases() map[string]render.Comment {
	commit := strings.Repeat("0123456789", 4)
	stack := func(name string, status workflow.Status, t changes.Tree) render.Stack {
		return render.Stack{
			Project: "web", Name: name, Operation: workflow.OperationPreview, Status: status, Commit: commit, Changes: t,
			Took: 83*time.Second + 400*time.Millisecond, URL: console + "/acme/web/" + name + "/deployments/7",
		}
	}
	failed := stack("prod", workflow.StatusFailed, tree())
	failed.Reason = "the step pulumi preview ended with exit code 255"
	outdated := stack("old", workflow.StatusSucceeded, quiet())
	outdated.Outdated = true
	review := stack("pr-acme-web-7", workflow.StatusSucceeded, quiet())
	review.Operation = workflow.OperationUpdate
	review.Outputs = []render.Output{{Name: "url", Value: "https://pr-7.example.com"}, {Name: "password", Value: "never shown", Secret: true}}
	obeys := stack("policy", workflow.StatusFailed, quiet())
	obeys.Policy = render.Policy{
		Mandatory: 60, Advisory: 1, Excepted: 1, Missing: []string{"<b>gcp</b>"}, Unknown: []string{"aws stack-size"},
		Violations: []render.Violation{
			{Pack: "aws", Policy: "no-tags", Level: "mandatory", URN: "urn:pulumi:prod::web::aws:s3/bucket:Bucket::logs", Message: "has ```no``` tags\n</details>\n<script>alert(1)</script> @team " + secret},
			{Pack: "aws", Policy: "size", Level: "advisory", URN: "urn:pulumi:prod::web::aws:s3/bucket:Bucket::logs", Message: "too big"},
			{Pack: "aws", Policy: "no-tags", Level: "mandatory", URN: "no URN", Message: "has no tags", Exceptions: []string{"EXC-1"}},
		},
	}
	for range 60 {
		obeys.Policy.Violations = append(obeys.Policy.Violations, render.Violation{Pack: "aws", Policy: "more", Level: "mandatory", URN: "u", Message: "m"})
	}
	advised := stack("advised", workflow.StatusSucceeded, quiet())
	advised.Policy = render.Policy{Advisory: 1, Violations: obeys.Policy.Violations[1:2]}
	removed := render.Stack{
		Project: "web", Name: "pr-acme-web-7", Operation: workflow.OperationDestroy, Status: workflow.StatusSucceeded, Commit: commit, Took: time.Second, Removed: true,
	}
	return map[string]render.Comment{
		"previews": {Marker: "int-1", Secrets: redact.New(redact.Secret{Name: "KEY", Value: secret}), Stacks: []render.Stack{
			failed, stack("dev", workflow.StatusSucceeded, quiet()), stack("test", workflow.StatusSucceeded, quiet()), outdated,
			stack("next", workflow.StatusNotStarted, changes.Tree{}), stack("now", workflow.StatusRunning, changes.Tree{}),
		}},
		"policy":    {Marker: "int-1", URL: console, Secrets: redact.New(redact.Secret{Name: "KEY", Value: secret}), Stacks: []render.Stack{obeys, advised}},
		"review":    {Marker: "int-1", Stacks: []render.Stack{review}},
		"removed":   {Marker: "int-1", Stacks: []render.Stack{removed}},
		"no-change": {Marker: "int-1", Stacks: []render.Stack{stack("dev", workflow.StatusSucceeded, quiet())}},
		"note":      {Marker: "int-1", Notes: []string{"The stack web/x was not created: <b>it exists</b>."}},
	}
}

func TestGolden(t *testing.T) {
	for name, c := range cases() {
		t.Run(name, func(t *testing.T) {
			golden(t, name, render.Markdown(c, style))
			check(t, c, style)
		})
	}
	t.Run("no-folds", func(t *testing.T) {
		flat := render.Style{Limit: 30_000}
		golden(t, "no-folds", render.Markdown(cases()["previews"], flat))
		check(t, cases()["previews"], flat)
	})
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".md")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s:\n%s\nwant\n%s", path, got, want)
	}
}

// A comment that is too long is cut and says so.
func TestLimit(t *testing.T) {
	c := render.Comment{Marker: "int-1", URL: console + "/acme"}
	for i := range 200 {
		s := render.Stack{Project: "web", Name: fmt.Sprintf("stack-%d", i), Operation: workflow.OperationPreview, Status: workflow.StatusSucceeded, URL: console, Changes: changes.Tree{
			Rows: []changes.Row{{Type: "a:b:C", Name: "x", Op: "create", State: changes.Planned}}, Totals: map[string]int{"create": 1},
		}}
		c.Stacks = append(c.Stacks, s)
	}
	for range 5000 {
		c.Stacks[0].Changes.Rows = append(c.Stacks[0].Changes.Rows, c.Stacks[0].Changes.Rows[0])
	}
	for _, limit := range []int{0, 2000, 5000, 30_000, 60_000} {
		out := check(t, c, render.Style{Limit: limit, Folds: true})
		if !strings.Contains(out, "incomplete") || !strings.Contains(out, console+"/acme") {
			t.Errorf("limit %d: the comment does not say that it is incomplete:\n%s", limit, out)
		}
	}
	if out := check(t, c, render.Style{Limit: 10_000_000, Folds: true}); strings.Contains(out, "incomplete") || strings.Count(out, "<details>") != 200 {
		t.Error("a comment that fits is incomplete")
	}
}

// A secret that a limit would cut is still masked.
func TestMaskBeforeCut(t *testing.T) {
	c := render.Comment{Marker: "m", Secrets: redact.New(redact.Secret{Name: "KEY", Value: secret}), Notes: []string{strings.Repeat("x", 395) + secret}}
	if out := render.Markdown(c, style); strings.Contains(out, "correct") {
		t.Errorf("got %s", out)
	}
}

var markdown = goldmark.New(goldmark.WithExtensions(extension.GFM))

// check parses a comment, and fails the test if it contains anything that foreign text could have
// caused.
func check(t *testing.T, c render.Comment, style render.Style) string {
	t.Helper()
	out := render.Markdown(c, style)
	if limit := max(style.Limit, 2000); len(out) > limit {
		t.Fatalf("%d bytes, limit %d", len(out), limit)
	}
	if !utf8.ValidString(out) || !strings.Contains(out, render.Mark(c.Marker)) {
		t.Fatalf("not UTF-8, or no marker:\n%s", out)
	}
	if c.Secrets != nil && strings.Contains(out, secret) {
		t.Fatalf("contains a secret:\n%s", out)
	}
	source := []byte(out)
	html := 0
	err := ast.Walk(markdown.Parser().Parse(text.NewReader(source)), func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.CodeSpan:
			return ast.WalkSkipChildren, nil
		case *ast.HTMLBlock:
			block := string(bytes.TrimSpace(n.Lines().Value(source)))
			name, begins := strings.CutPrefix(block, "<details><summary>")
			if name, ends := strings.CutSuffix(name, "</summary>"); begins && ends && !strings.ContainsAny(name, "<>&@\"'") {
				html++
			} else if block == "</details>" {
				html--
			} else {
				t.Errorf("HTML %q", block)
			}
		case *ast.RawHTML, *ast.AutoLink, *ast.Image, *ast.Heading, *ast.Blockquote, *ast.List, *ast.ThematicBreak:
			t.Errorf("%s in the comment", n.Kind())
		case *ast.Link:
			if !strings.HasPrefix(string(n.Destination), console) {
				t.Errorf("a link leads to %q", n.Destination)
			}
		case *ast.Text:
			for _, mark := range []string{"@", "#", "!", "~", "&"} {
				for _, after := range strings.Split(string(n.Value(source)), mark)[1:] {
					if after != "" && !strings.HasPrefix(after, "\u200b") {
						t.Errorf("a reference with %s in %q", mark, n.Value(source))
					}
				}
			}
		}
		return ast.WalkContinue, nil
	})
	if err != nil || html != 0 {
		t.Errorf("walking: %v; %d elements are not closed", err, html)
	}
	if t.Failed() {
		t.Log(out)
	}
	return out
}

func FuzzMarkdown(f *testing.F) {
	for _, s := range []string{
		"", "plain", "@team", "#1", "a|b", "``` ````", "</details><script>", "[x](javascript:alert(1))", "https://evil.example www.evil.example a@b.example",
		"![i](https://evil.example)", "\n# heading\n> quote\n- item\n---", "\\", "\\\\|`", "&lt;b&gt;", "\x1b[31mred", "\u202e", "\xff", secret, "<!-- x", "[//]: # (y)",
		strings.Repeat("`", 500), strings.Repeat("|", 500), "~~~\n~~~", "1. a", "$$x$$", "a__b__c *d*", "!1 ~x %1 &1", "]( )", "<https://evil.example>",
	} {
		f.Add(s, s, 60_000, true)
		f.Add(s, "other", 2500, false)
	}
	f.Fuzz(func(t *testing.T, a, b string, limit int, folds bool) {
		rows := []changes.Row{{URN: a, Type: a, Name: b, Op: "update", State: changes.Failed, Diff: []changes.Property{{Path: a, Kind: b}}, ReplaceKeys: []string{b}}, {Type: b, Name: a, Op: "create"}}
		c := render.Comment{
			Marker: "int-1", URL: console, Notes: []string{a, b}, Secrets: redact.New(redact.Secret{Name: "KEY", Value: secret}),
			Stacks: []render.Stack{
				{
					Project: a, Name: b, Operation: workflow.Operation(b), Status: workflow.StatusFailed, Reason: a, Commit: b, URL: console + "/" + strings.ReplaceAll(a, secret, ""),
					Changes: changes.Tree{Rows: rows, Totals: map[string]int{"create": 1}, Messages: []changes.Message{{URN: a, Severity: b, Text: a + b}}},
					Outputs: []render.Output{{Name: a, Value: b}, {Name: b, Value: a, Secret: true}},
				},
				{Project: b, Name: a, Operation: workflow.OperationPreview, Status: workflow.StatusSucceeded, URL: console},
			},
		}
		check(t, c, render.Style{Limit: limit % 100_000, Folds: folds})
	})
}
