package browser

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/go-chi/chi/v5"

	"workflowagent/internal/server/console/assets"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/console/view/gallery"
)

// part is a component, by its selectors on a page of the drawings and on a page of the product. drawn "" means the same.
type part struct{ page, selector, drawing, drawn string }

// parts are the components whose style in the product is that of the drawings.
var parts = []part{
	{"list", ".bar", "components", ""},
	{"list", ".bar h1", "components", ""},
	{"list", ".bar .count", "components", ""},
	{"list", ".rail", "components", ""},
	{"list", ".rail .org", "components", ""},
	{"list", ".rail .find", "components", ""},
	{"list", ".rail .nav a:not([aria-current])", "components", ""},
	{"object", ".rail .nav a[aria-current]", "settings", ""},
	{"list", ".me kbd", "components", ""},
	{"list", ".av", "components", ""},
	{"list", ".tabbar a:not([aria-current])", "components", ""},
	{"list", ".phonebar", "components", ""},
	{"list", ".btn.primary:not(.small)", "components", ""},
	{"list", "main .btn:not(.primary, .danger, .small, .icon, :disabled)", "components", ""},
	{"list", ".btn.danger:not(.solid)", "components", ""},
	{"list", ".btn.danger.solid:not(:disabled)", "components", ""},
	{"list", ".btn:disabled", "components", ""},
	{"list", "main .page .btn.small", "components", ""},
	{"list", "main .btn.icon:not([aria-pressed])", "components", ""},
	{"list", ".btn.icon[aria-pressed]", "components", ""},
	{"list", ".sec h2", "components", ""},
	{"list", "main .st-failed", "components", ""},
	{"list", "main .st-ok", "components", ""},
	{"list", ".badge:not(.b-bad, .b-warn, .b-run)", "components", ".badge:not(.b-bad, .b-warn, .b-run, :has(svg))"},
	{"list", ".badge.b-bad", "components", ""},
	{"list", ".badge.b-warn", "components", ""},
	{"list", ".badge.b-run", "components", ""},
	{"list", ".tag", "components", ""},
	{"list", ".ops", "components", ""},
	{"list", ".chip[aria-current]", "activity", ""},
	{"list", ".chip:not([aria-current])", "activity", ""},
	{"list", ".filters", "activity", ""},
	{"list", ".filters .inp", "activity", ""},
	{"list", ".dlg", "components", ""},
	{"list", ".dlg h2", "components", ""},
	{"list", ".dlg .inp", "components", ""},
	{"list", ".menu[role] a:not(.on, .bad)", "components", ""},
	{"list", ".toast", "components", ""},
	{"list", ".note.n-warn", "components", ""},
	{"list", ".empty", "components", ""},
	{"list", ".empty :is(h2, h3)", "components", ""},
	{"object", ".obj", "stack", ""},
	{"object", ".obj h1", "stack", ""},
	{"object", ".obj .prj", "stack", ""},
	{"object", ".obj .starb", "stack", ""},
	{"object", ".meta > span", "stack", ""},
	{"object", ".obj .tabs a[aria-current]", "stack", ""},
	{"object", ".obj .tabs a:not([aria-current])", "stack", ""},
	{"object", ".l-runs .row", "stack", ""},
	{"object", ".l-runs .go", "stack", ""},
	{"object", ".l-runs time", "stack", ""},
	{"object", ".card", "stack", ""},
	{"form", ".field .lab", "settings", ""},
	{"form", ".field .inp:not([aria-invalid], textarea, select)", "settings", ".field .inp:not([aria-invalid], .mono, textarea, select)"},
	{"form", ".field .inp[aria-invalid]", "settings", ""},
	{"form", ".field > .help", "settings", ""},
	{"form", ".field .err", "settings", ""},
	{"form", ".tick:checked:not(.radio)", "settings", ""},
	{"form", ".sub a[aria-current]", "settings", ""},
	{"form", ".block", "settings", ""},
	{"form", ".changed > .lab", "settings", ""},
	{"form", ".field .badge", "settings", ""},
	{"form", ".secrets .row", "settings", ""},
	{"form", ".addv .inp", "settings", ""},
	{"form", ".save", "settings", ""},
	{"form", ".save .btn.primary", "settings", ""},
	{"form", ".sub .cnt", "members", ""},
	{"form", ".sec.tools h2", "members", ""},
	{"form", ".l-mem .row.hd", "members", ""},
	{"form", ".l-mem .row:not(.hd)", "members", ""},
	{"form", ".l-mem .go", "members", ""},
	{"form", ".l-mem .c-role", "members", ""},
	{"form", ".l-mem .tag", "members", ""},
	{"form", ".l-perm .row:not(.hd)", "team", ".l-perm:not(:has(.hd)) .row"},
	{"form", ".l-perm .go", "team", ""},
	{"gate", ".gate", "sign-in", ""},
	{"gate", ".gate .logo", "sign-in", ""},
	{"gate", ".gate .card", "sign-in", ""},
	{"gate", ".gate h1", "sign-in", ""},
	{"gate", ".gate .btn.primary", "sign-in", ""},
	{"gate", ".gate .or", "sign-in", ""},
	{"gate", ".gate .inp", "sign-in", ""},
	{"gate", ".gate .acts .btn", "sign-in", ""},
	{"gate", ".help2", "sign-in", ""},
}

// styles returns the style of the first element that a selector finds.
const styles = `(selector) => {
	const e = document.querySelector(selector);
	if (!e) return "missing";
	if (e.getClientRects().length === 0) return "not shown";
	const s = getComputedStyle(e);
	const names = ["fontSize", "lineHeight", "fontWeight", "paddingTop", "paddingRight", "paddingBottom", "paddingLeft", "color", "backgroundColor",
		"borderTopWidth", "borderTopColor", "borderTopLeftRadius"];
	const height = e.matches(".btn, .badge, .tag, .chip, .av, .inp:not(textarea), .tick, .bar, .org, .find, .nav a, .tabs a, .starb, .row, .phonebar, .tabbar a, .toast, .menu a, svg") ? "height: " + e.getBoundingClientRect().height + "; " : "";
	return height + names.map((n) => n + ": " + s[n]).join("; ");
}`

// site serves the pages of the gallery under the console's policy, and the drawings.
func site(t *testing.T) string {
	t.Helper()
	mux := chi.NewRouter()
	mux.Get(assets.Pattern, assets.Serve)
	mux.Handle("/drawings/*", http.StripPrefix("/drawings/", http.FileServer(http.Dir("testdata/drawings"))))
	shell := gallery.Shell
	shell.Assets = assets.Path()
	for name, p := range gallery.Pages() {
		mux.Get("/"+name, func(w http.ResponseWriter, r *http.Request) {
			var buf bytes.Buffer
			if err := view.Frame(shell, p).Render(r.Context(), &buf); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; require-trusted-types-for 'script'; trusted-types console")
			w.Write(buf.Bytes())
		})
	}
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

// TestConsoleNumbers compares the components of the product with the drawings that they were made from.
func TestConsoleNumbers(t *testing.T) {
	tb := newTab(t, site(t))
	tb.ignore("favicon")
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{1440, phone} {
			where := fmt.Sprintf("%s, %d px", scheme, width)
			tb.scheme(scheme, width)
			drawn := map[string]map[string]string{}
			for _, name := range []string{"components", "stack", "settings", "activity", "sign-in", "members", "team"} {
				drawn[name] = tb.styles("/drawings/"+name+".html", func(p part) string {
					if p.drawing != name {
						return ""
					}
					return cmp.Or(p.drawn, p.selector)
				})
			}
			for _, name := range slices.Sorted(maps.Keys(gallery.Pages())) {
				built := tb.styles("/"+name, func(p part) string {
					if p.page != name {
						return ""
					}
					return p.selector
				})
				tb.wait("the icons are drawn", "[...document.querySelectorAll('main svg.i')].every((e) => e.getClientRects().length === 0 || e.querySelector('use').getBBox().width > 0)")
				if scheme == "light" {
					tb.axe(name + " " + where)
				} else {
					tb.rules(name+" "+where, colorRules)
				}
				tb.shot(name + "-" + where)
				for _, p := range parts {
					if p.page != name {
						continue
					}
					want, got := drawn[p.drawing][cmp.Or(p.drawn, p.selector)], built[p.selector]
					if want != got || got == "missing" {
						t.Errorf("%s: %s on the page %s is\n\t%s\nand in the drawing %s\n\t%s", where, p.selector, name, got, p.drawing, want)
					}
				}
			}
		}
	}
	tb.scheme("light", narrow)
	for name := range gallery.Pages() {
		tb.open("/" + name)
		tb.fits("/" + name)
	}
}

// styles opens a page and returns the styles of the parts that select chooses on it.
func (tb *tab) styles(path string, choose func(p part) string) map[string]string {
	tb.t.Helper()
	tb.open(path)
	tb.wait(path+" is loaded", "document.readyState === 'complete' && document.querySelector('main')")
	var selectors []string
	for _, p := range parts {
		if s := choose(p); s != "" {
			selectors = append(selectors, s)
		}
	}
	list, err := json.Marshal(append([]string{}, selectors...))
	if err != nil {
		tb.t.Fatal(err)
	}
	found, err := chromedp.Run(tb.ctx, chromedp.Evaluate[map[string]string]("Object.fromEntries("+string(list)+".map((s) => [s, ("+styles+")(s)]))"))
	if err != nil {
		tb.t.Fatalf("reading the styles of %s: %v", path, err)
	}
	return found
}

// fits fails the test if the open page scrolls sideways in the narrowest window, or cuts a control off.
func (tb *tab) fits(path string) {
	tb.t.Helper()
	if over := evaluate[int](tb, "document.documentElement.scrollWidth - document.documentElement.clientWidth"); over > 0 {
		tb.t.Errorf("%s scrolls sideways by %d px at %d px: %s", path, over, narrow, strings.TrimSpace(widest(tb)))
	}
	tb.wait("the current tab is in the window", "[...document.querySelectorAll('.tabs [aria-current]')].map((e) => e.getBoundingClientRect()).every((r) => r.left >= 0 && r.right <= innerWidth)")
	cut := evaluate[[]string](tb, `[...document.querySelectorAll("body .btn, body .inp, .tabbar a, .tabbar summary")].filter((e) => {
		const r = e.getBoundingClientRect();
		if (r.width === 0 || e.closest(".hide, details:not([open]) > .dlg") || e.closest(".scroll, .filters, .seg")) return false;
		return r.right > innerWidth + 1 || r.left < -1;
	}).map((e) => e.outerHTML.slice(0, 160))`)
	for _, e := range cut {
		tb.t.Errorf("%s cuts off at %d px: %s", path, narrow, e)
	}
}
