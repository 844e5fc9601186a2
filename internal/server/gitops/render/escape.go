package render

import (
	"net/url"
	"strings"

	"workflowagent/internal/termtext"
)

// hidden is a character without width. After the first character of a mention or an address, it
// makes forges show text instead of a link.
const hidden = "\u200b"

// maxLine bounds one line of foreign text, in bytes.
const maxLine = 400

// line returns foreign text as one line, without secrets and control characters.
func (w *writer) line(text string) string { return w.cut(text, maxLine) }

func (w *writer) cut(text string, limit int) string {
	if w.secrets != nil {
		// A secret can be complete only before or only after control characters are removed.
		text = w.secrets.String(termtext.OneLine(w.secrets.String(text), 0))
	}
	return termtext.OneLine(text, limit)
}

// text returns foreign text as one line of Markdown that shows the text and nothing else.
func (w *writer) text(s string) string { return escape(w.line(s)) }

func escape(s string) string {
	var b strings.Builder
	for i, c := range s {
		switch {
		case c == '@' || c == '#' || c == ':':
			b.WriteString("\\" + string(c) + hidden)
		case c == '!' || c == '$' || c == '%' || c == '&' || c == '~': // references in GitLab
			b.WriteString("\\" + string(c) + hidden)
		case c == '.' && strings.HasSuffix(strings.ToLower(s[:i]), "www"):
			b.WriteString("\\." + hidden)
		case c == '/' || c == ',' || c == ';' || c == '-' && i > 0:
			b.WriteRune(c)
		case c > ' ' && c < '0', c > '9' && c < 'A', c > 'Z' && c < 'a', c > 'z' && c < 0x7f:
			b.WriteString("\\" + string(c))
		default:
			b.WriteRune(c)
		}
	}
	return b.String()
}

// code returns foreign text as a code span, in which nothing is interpreted. A vertical bar would
// end the cell of a table.
func (w *writer) code(s string) string {
	s = strings.TrimSpace(strings.ReplaceAll(w.line(s), "|", "¦"))
	if s == "" {
		return ""
	}
	fence := strings.Repeat("`", longest(s, '`')+1)
	if len(fence) > 1 {
		s = " " + s + " "
	}
	return fence + s + fence
}

// fenced returns lines as a block of code, in which nothing is interpreted.
func fenced(language string, lines []string) string {
	n := 3
	for _, l := range lines {
		n = max(n, longest(l, '`')+1)
	}
	fence := strings.Repeat("`", n)
	return fence + language + "\n" + strings.Join(lines, "\n") + "\n" + fence + "\n"
}

// longest returns the length of the longest run of a character.
func longest(s string, of rune) (most int) {
	n := 0
	for _, c := range s {
		if n++; c != of {
			n = 0
		}
		most = max(most, n)
	}
	return most
}

// link returns a link to an address of this server's console, or only its text, which is Markdown, if
// the address cannot be one.
func link(text, address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" {
		return text
	}
	address = strings.NewReplacer("<", "%3C", ">", "%3E", "|", "%7C", "\\", "%5C", "`", "%60").Replace(strings.ToValidUTF8(u.String(), ""))
	return "[" + text + "](<" + address + ">)"
}

// marker returns a line that no forge shows: the definition of a link that is not used.
func marker(id string) string {
	return "[//]: # (" + Mark(id) + ")"
}

// Mark returns the text by which a client finds the comment of an integration.
func Mark(id string) string {
	return "workflow-server " + strings.Map(func(c rune) rune {
		if c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '-' || c == '_' {
			return c
		}
		return -1
	}, id)
}

// short returns a commit as people write it.
func short(commit string) string { return commit[:min(len(commit), 8)] }
