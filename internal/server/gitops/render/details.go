package render

import (
	"fmt"
	"strings"

	"workflowagent/internal/redact"
	"workflowagent/internal/server/stacks/changes"
	"workflowagent/internal/workflow"
)

// maxDiagnostics is the number of messages that a comment shows per stack.
const maxDiagnostics = 20

// maxMessage bounds a message, in bytes.
const maxMessage = 1000

// details writes the changes, messages and outputs of each stack, and reports whether everything
// fitted. If it does not, the stacks share the space evenly.
func (w *writer) details(stacks []Stack) bool {
	all := make([][]section, len(stacks))
	var full strings.Builder
	complete := true
	for i, s := range stacks {
		all[i] = w.sections(s)
		part, whole := w.detail(s, all[i], w.limit)
		complete = complete && whole
		full.WriteString(part)
	}
	if w.add(full.String()) {
		return complete
	}
	for i, s := range stacks {
		part, _ := w.detail(s, all[i], (w.limit-w.Len())/(len(stacks)-i))
		w.add(part)
	}
	return false
}

// detail returns the sections of a stack in at most limit bytes, and whether they are complete.
func (w *writer) detail(s Stack, sections []section, limit int) (part string, whole bool) {
	if len(sections) == 0 {
		return "", true
	}
	head, tail := "\n**"+escape(w.title(s))+"**\n\n", ""
	if w.folds {
		// Inside an element of HTML, the escapes of Markdown do not apply.
		head, tail = "\n<details><summary>"+plain(w.title(s))+"</summary>\n\n", "\n</details>\n"
	}
	var b strings.Builder
	whole = true
	for _, each := range sections {
		text, all := each.within(limit - len(head) - len(tail) - b.Len())
		b.WriteString(text)
		whole = whole && all
	}
	if b.Len() == 0 {
		return "", false
	}
	return head + strings.TrimRight(b.String(), "\n") + "\n" + tail, whole
}

// plain returns a name for HTML: only the characters that names of projects and stacks can have, and
// those of the mask of secrets.
func plain(name string) string {
	return strings.Map(func(c rune) rune {
		if c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '-' || c == '_' || c == '.' || c == '/' || c == '[' || c == ']' {
			return c
		}
		return '?'
	}, name)
}

// section is a block of code with a title.
type section struct {
	title, language string
	lines           []string
	omitted         int // lines that are left out in any case
}

// within returns as many lines of a section as fit, and whether these are all.
func (s section) within(limit int) (string, bool) {
	const frame = 100 // the title, the fences and the line that counts the others
	n, size, fence := 0, len(s.title)+len(s.language)+frame, 3
	for ; n < len(s.lines); n++ {
		fence = max(fence, longest(s.lines[n], '`')+1)
		if size += len(s.lines[n]) + 1; size+2*fence > limit {
			break
		}
	}
	if n == 0 {
		return "", len(s.lines) == 0
	}
	lines, rest := s.lines[:n:n], len(s.lines)-n+s.omitted
	if rest > 0 {
		lines = append(lines, fmt.Sprintf("… %d more", rest))
	}
	return s.title + "\n\n" + fenced(s.language, lines) + "\n", rest == 0
}

func (w *writer) sections(s Stack) []section {
	var out []section
	if text := w.line(s.Reason); text != "" && s.Status != workflow.StatusSucceeded {
		out = append(out, section{title: "Reason", lines: []string{text}})
	}
	out = append(out, w.policy(s.Policy)...)
	if lines := w.diff(s.Changes); len(lines) > 0 {
		out = append(out, section{title: "Changes", language: "diff", lines: lines, omitted: s.Changes.Omitted})
	}
	if lines, omitted := w.messages(s.Changes); len(lines) > 0 {
		out = append(out, section{title: "Messages", lines: lines, omitted: omitted})
	}
	if lines := w.outputs(s.Outputs); len(lines) > 0 {
		out = append(out, section{title: "Outputs", lines: lines})
	}
	return out
}

// diff returns a line per changed resource, and one per group of changed properties.
func (w *writer) diff(t changes.Tree) []string {
	var lines []string
	for _, r := range t.Rows {
		if !r.Changed() || r.Op == "" || r.Op == "same" {
			continue
		}
		state := ""
		if r.State == changes.Failed {
			state = " (failed)"
		}
		lines = append(lines, sign(r.Op)+" "+w.line(r.Op+" "+r.Type+" "+r.Name)+state)
		if text := properties(r); text != "" {
			lines = append(lines, "    "+w.line(text))
		}
	}
	return lines
}

// sign returns the mark by which forges color a line.
func sign(op string) string {
	switch op {
	case "create", "import":
		return "+"
	case "delete":
		return "-"
	default:
		return "!"
	}
}

func properties(r changes.Row) string {
	var parts []string
	for _, p := range r.Diff {
		parts = append(parts, p.Path+" ("+p.Kind+")")
	}
	if r.More > 0 {
		parts = append(parts, fmt.Sprintf("%d more", r.More))
	}
	if len(r.ReplaceKeys) > 0 {
		parts = append(parts, "replaced because of "+strings.Join(r.ReplaceKeys, ", "))
	}
	return strings.Join(parts, ", ")
}

func (w *writer) messages(t changes.Tree) (lines []string, omitted int) {
	shown := t.Messages[:min(len(t.Messages), maxDiagnostics)]
	for _, m := range shown {
		prefix := m.Severity
		if _, name := changes.Parts(m.URN); name != "" {
			prefix += " " + name
		}
		lines = append(lines, w.cut(prefix+": "+m.Text, maxMessage))
	}
	return lines, len(t.Messages) - len(shown) + t.OmittedMessages
}

func (w *writer) outputs(list []Output) []string {
	var lines []string
	for _, o := range list {
		value := o.Value
		if o.Secret {
			value = redact.Marker
		}
		lines = append(lines, w.line(o.Name+" = "+value))
	}
	return lines
}
