package status

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"html"
	"io"
)

const pageStyle = `body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:76em;padding:0 1em;color:#222;background:#fff}
h1{font-size:1.4em}h2{font-size:1.1em;margin-top:1.6em}
table{border-collapse:collapse;width:100%}th,td{text-align:left;vertical-align:top;padding:.25em .8em .25em 0;border-bottom:1px solid #ddd;overflow-wrap:anywhere}
th{font-weight:600}.s{padding:.1em .5em;border-radius:.3em;background:#b00020;color:#fff}.ready{background:#1b6e3c}.draining,.starting,.stopping{background:#7a5900}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}th,td{border-color:#444}}`

// PagePolicy returns the page's Content-Security-Policy. It permits only the page's own style
// sheet, even if a name in the report contains markup.
func PagePolicy() string {
	sum := sha256.Sum256([]byte(pageStyle))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}

// WritePage writes a report as an HTML page. The page contains no scripts or external resources,
// and reloads every 5 seconds.
func WritePage(out io.Writer, r Report) error {
	p := &page{}
	p.raw(`<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><meta http-equiv="refresh" content="5">`)
	p.element("title", string(r.State)+": workflow agent on "+r.Agent.Hostname)
	p.raw("<style>" + pageStyle + `</style></head><body><h1>Workflow agent <span class="s `)
	p.text(string(r.State))
	p.raw(`">`)
	p.text(string(r.State))
	p.raw("</span></h1><table>")
	for _, l := range r.facts() {
		p.raw("<tr>")
		p.element("th", l.name)
		p.element("td", l.value)
		p.raw("</tr>")
	}
	p.raw("</table>")
	p.table("Jobs", "No jobs.", r.jobTable())
	p.table("Ended", "None since the agent started.", r.endedTable())
	p.raw("<p>As of ")
	p.text(stamp(r.Time))
	p.raw(". The same as JSON: <a href=\"/status.json\">/status.json</a></p></body></html>\n")
	_, err := out.Write(p.b.Bytes())
	return err
}

type page struct{ b bytes.Buffer }

// raw writes markup without escaping it. Only constants in this file may be passed to raw.
func (p *page) raw(markup string) { p.b.WriteString(markup) }

// text writes escaped text.
func (p *page) text(s string) { p.b.WriteString(html.EscapeString(clean(s))) }

func (p *page) element(tag, text string) {
	p.raw("<" + tag + ">")
	p.text(text)
	p.raw("</" + tag + ">")
}

func (p *page) row(tag string, cells []string) {
	p.raw("<tr>")
	for _, cell := range cells {
		p.element(tag, cell)
	}
	p.raw("</tr>")
}

func (p *page) table(title, none string, t table) {
	p.element("h2", title)
	if len(t.rows) == 0 {
		p.element("p", none)
		return
	}
	p.raw("<table>")
	p.row("th", t.heads)
	for _, row := range t.rows {
		p.row("td", row)
	}
	p.raw("</table>")
}
