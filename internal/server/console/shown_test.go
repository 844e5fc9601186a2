package console_test

import (
	"encoding/json"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/server/console"
)

var (
	links = regexp.MustCompile(`<a\s[^>]*href="(/[^"]*)"`)
	forms = regexp.MustCompile(`<form\s[^>]*method="post"[^>]*action="(/[^"#]*)`)
)

// TestNothingForbiddenIsShown follows the links of every kind of visitor through the console. No page
// and no answer of the palette may contain a link or a form that the visitor may not use, according to
// the tables in docs/permissions.md.
func TestNothingForbiddenIsShown(t *testing.T) {
	m := newMatrix(t)
	m.API(http.MethodPost, "/api/orgs/acme/agent-pools", map[string]string{"name": "eu"}, nil)
	m.API(http.MethodPost, "/api/stacks/acme/proj/target/deployments/settings", map[string]any{}, nil)
	m.API(http.MethodPost, "/api/stacks/acme/proj/target/deployments", map[string]string{"operation": "preview"}, nil)
	m.API(http.MethodPost, "/api/stacks/acme/proj/target/deployments/schedules", map[string]any{"scheduleCron": "0 3 * * *", "request": map[string]string{"operation": "preview"}}, nil)
	visitors, tables := m.visitors(), matrixTables(t)
	find := router()
	tried := 0
	for who, cells := range tables[1].Rows {
		onStack, ok := tables[0].Rows[who]
		if v := visitors[who]; ok && v.token != "" {
			m.API(http.MethodPatch, "/api/orgs/acme", map[string]any{"setDefaultStackPermission": permissionOf(v.prepare)}, nil)
			c := crawler{t: t, who: who, browser: m.SignInWith(v.token), find: find, may: func(column string) bool {
				return cells[column] == "✓" || onStack[column] == "✓" || tables[2].Rows[who][column] == "✓"
			}}
			c.crawl()
			tried += len(c.seen)
		}
	}
	if tried < 100 {
		t.Errorf("only %d links and forms were shown", tried)
	}
}

// router returns a function that finds the route of a path, as in [matrixRoutes].
func router() func(method, path string) string {
	type route struct {
		name    string
		pattern *regexp.Regexp
		params  int
	}
	var routes []route
	parameter := regexp.MustCompile(`\\\{[a-z]+\\\}`)
	for _, r := range console.New(console.Deps{}).Routes() {
		text := parameter.ReplaceAllString(regexp.QuoteMeta(r.Pattern), `[^/]+`)
		routes = append(routes, route{
			r.Method + " " + strings.Replace(r.Pattern, stackPattern, "STACK", 1), regexp.MustCompile("^" + r.Method + " " + text + "$"), strings.Count(r.Pattern, "{"),
		})
	}
	slices.SortStableFunc(routes, func(a, b route) int { return a.params - b.params }) // fixed segments first
	return func(method, path string) string {
		for _, r := range routes {
			if r.pattern.MatchString(method + " " + path) {
				return r.name
			}
		}
		return ""
	}
}

// crawler follows the links of one visitor.
type crawler struct {
	t       *testing.T
	who     string
	browser *consoletest.Browser
	find    func(method, path string) string
	may     func(column string) bool
	seen    map[string]bool // by method and route
	queue   []string
}

func (c *crawler) crawl() {
	c.t.Helper()
	c.seen = map[string]bool{}
	for _, words := range []string{"", "target", "se", "pool"} {
		var items []struct{ Href, Way string }
		p := c.browser.Get("/-/palette?org=acme&q=" + words)
		if err := json.Unmarshal([]byte(p.Body), &items); err != nil {
			c.t.Fatalf("%s: the palette answers %s", c.who, p.Body)
		}
		for _, i := range items {
			method := http.MethodGet
			if i.Way == "post" {
				method = http.MethodPost
			}
			c.shown("the palette", method, i.Href)
		}
	}
	c.shown("the browser", http.MethodGet, "/")
	for len(c.queue) > 0 {
		path := c.queue[0]
		c.queue = c.queue[1:]
		p := c.browser.Get(path)
		if to := p.Location(); to != "" {
			c.shown(path, http.MethodGet, to)
		}
		for _, l := range links.FindAllStringSubmatch(p.Body, -1) {
			c.shown(path, http.MethodGet, html.UnescapeString(l[1]))
		}
		for _, f := range forms.FindAllStringSubmatch(p.Body, -1) {
			c.shown(path, http.MethodPost, html.UnescapeString(f[1]))
		}
	}
}

// shown checks a link or form of a page, and visits the first page of each route.
func (c *crawler) shown(on, method, target string) {
	c.t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		c.t.Errorf("%s: %s contains the address %q", c.who, on, target)
		return
	}
	route := c.find(method, u.Path)
	if strings.HasPrefix(u.Path, "/acme") || strings.HasPrefix(u.Path, "/-/server") {
		column := ""
		for name, routes := range matrixRoutes {
			if slices.Contains(routes, route) {
				column = name
			}
		}
		if !c.may(column) {
			c.t.Errorf("%s: %s shows %s %s (column %q), which is not permitted", c.who, on, method, target, column)
		}
	}
	if route == "" {
		c.t.Errorf("%s: %s shows %s %s, which does not exist", c.who, on, method, target)
	}
	if !c.seen[method+route] && method == http.MethodGet && !strings.HasPrefix(u.Path, "/user") && !strings.HasPrefix(u.Path, "/-/login") {
		c.queue = append(c.queue, target)
	}
	c.seen[method+route] = true
}
