package resources_test

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

const (
	hostile = `<script>alert(1)</script>"'&<img src=x onerror=alert(2)>`
	base    = "/acme/web/prod"
	root    = "urn:pulumi:prod::web::pulumi:pulumi:Stack::web-prod"
)

type m = map[string]any

var secret = m{"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "ciphertext": "c2VjcmV0"}

func urnOf(kind, name string) string { return "urn:pulumi:prod::web::" + kind + "::" + name }

// update runs an update of the stack that stores resources, which it makes while it runs, and sends events.
func update(t *testing.T, s *consoletest.Server, status string, resources func(now string) []any, events ...m) {
	t.Helper()
	path, token := s.BeginUpdate(consoletest.Update{Stack: "web/prod", Kind: "update"})
	call := func(method, path string, body m) {
		t.Helper()
		if status, answer := s.APIAs(token, method, path, body, nil); status != http.StatusOK && status != http.StatusNoContent {
			t.Fatalf("%s: status %d: %s", path, status, answer)
		}
	}
	state := m{"manifest": m{"time": "2026-01-01T00:00:00Z", "magic": "", "version": "v3.0.0"}, "resources": resources(time.Now().Format(time.RFC3339Nano))}
	call(http.MethodPatch, path+"/checkpoint", m{"version": 3, "deployment": state})
	if len(events) > 0 {
		call(http.MethodPost, path+"/events/batch", m{"events": events})
	}
	call(http.MethodPost, path+"/complete", m{"status": status})
}

var tags = regexp.MustCompile(`<[^>]*>`)

// text returns the text of a page on one line.
func text(page string) string {
	return strings.Join(strings.Fields(html.UnescapeString(tags.ReplaceAllString(page, " "))), " ")
}

// joined returns a text without spaces.
func joined(text string) string { return strings.ReplaceAll(text, " ", "") }

// open returns the text of a page, which must contain no markup of users.
func open(t *testing.T, b *consoletest.Browser, query string) (page, words string) {
	t.Helper()
	p := b.Get(base + "/resources" + query)
	if p.Status != http.StatusOK {
		t.Fatalf("%s: status %d: %s", query, p.Status, text(p.Body))
	}
	for _, bad := range []string{"<script>alert", "<img", "c2VjcmV0", `href="javascript:`} {
		if strings.Contains(p.Body, bad) {
			t.Errorf("%s contains %q", query, bad)
		}
	}
	for _, found := range regexp.MustCompile(`(?:title|aria-label|data-name)="[^"]*\x{202e}[^"]*"`).FindAllString(p.Body, -1) {
		t.Errorf("%s contains %q", query, found)
	}
	return p.Body, text(p.Body)
}

const (
	queue = "aws:sqs/queue:Queue"
	arn   = "arn:aws:sqs:eu-west-1:402940294029:ledger-in"
)

// shop is the state of a stack with resources of all kinds. Two updates make it, of which the second one fails.
func shop(t *testing.T, s *consoletest.Server) {
	t.Helper()
	s.Stack("net", "eu")
	s.Stack("web", "prod")
	first := ""
	provider := urnOf("pulumi:providers:aws", "default_7_4_0")
	resources := func(now string) []any {
		if first == "" {
			first = now
		}
		return []any{
			m{"urn": root, "custom": false, "type": "pulumi:pulumi:Stack", "created": first, "modified": first, "outputs": m{
				"url": "https://example.com", "dbPassword": secret, hostile: "x", "file": "gnp.\u202eexe", "\u202eexe.txt": strings.Repeat("long ", 50),
			}},
			m{"urn": provider, "custom": true, "type": "pulumi:providers:aws", "id": "p", "parent": root, "created": first, "modified": first},
			m{
				"urn": urnOf(queue, "ledger-in"), "custom": true, "type": queue, "id": "https://sqs.eu-west-1.amazonaws.com/402940294029/ledger-in", "parent": root, "protect": true,
				"provider": provider + "::p", "created": first, "modified": now, "dependencies": []string{urnOf(queue, "ledger-dead")},
				"inputs": m{"delaySeconds": 0, "password": secret}, "outputs": m{"arn": arn, "kmsMasterKeyId": secret, "policy": `{"a": "` + strings.Repeat("long ", 40) + `"}`, "tags": m{"owner": "payments"}},
			},
			m{"urn": urnOf(queue, "ledger-dead"), "custom": true, "type": queue, "id": "dead", "parent": root, "created": first, "modified": first},
			m{"urn": urnOf(queue, "ledger-dead"), "custom": true, "type": queue, "id": "older", "parent": root, "delete": true},
			m{
				"urn": urnOf("pkg:index:Thing", hostile), "custom": true, "type": "pkg:index:Thing", "id": "a\u202eb" + hostile, "parent": urnOf(queue, "ledger-in"), "external": true, "taint": true,
				"inputs": m{hostile: hostile}, "outputs": m{"arn": `arn:aws:s3:::x"><script>alert(1)</script>`, "link": "javascript:alert(1)"},
			},
			m{"urn": urnOf("pulumi:pulumi:StackReference", "net"), "custom": true, "type": "pulumi:pulumi:StackReference", "id": "acme/net/eu", "parent": root, "inputs": m{"name": "acme/net/eu"}},
		}
	}
	step := func(seq int, kind, op, urn string) m {
		return m{"sequence": seq, "timestamp": 1700000000 + seq, kind: m{"metadata": m{"op": op, "urn": urn, "type": queue}}}
	}
	update(t, s, "succeeded", resources, step(0, "resourcePreEvent", "create", urnOf(queue, "ledger-in")), step(1, "resOutputsEvent", "create", urnOf(queue, "ledger-in")))
	lost := urnOf(queue, "charge-queue")
	update(t, s, "failed", resources, step(0, "resourcePreEvent", "update", urnOf(queue, "ledger-in")), step(1, "resOutputsEvent", "update", urnOf(queue, "ledger-in")),
		step(2, "resourcePreEvent", "create", lost), step(3, "resOpFailedEvent", "create", lost))
}

// row returns what the list says about a resource or a type.
func row(t *testing.T, page, name string) string {
	t.Helper()
	for _, r := range regexp.MustCompile(`(?s)<li class="d\d".*?</li>`).FindAllString(page, -1) {
		if strings.Contains(text(r), name) {
			return r
		}
	}
	t.Fatalf("the list lacks %s: %s", name, text(page))
	return ""
}

// TestLists shows the resources in each order, and filters them.
func TestLists(t *testing.T) {
	consoletest.Each(t, func(t *testing.T, s *consoletest.Server) {
		shop(t, s)
		b := s.SignIn()
		page, _ := open(t, b, "")
		for name, want := range map[string]string{
			"aws:sqs/queue": "aws:sqs/queue 3", "pkg:Thing": "pkg:Thing 1", "charge-queue": "charge-queue failed", "ledger-in": "protected ledger-in v2",
			"ledger-dead": "ledger-dead v1", "to be deleted": "waits for its deletion ledger-dead to be deleted", hostile: "waits for its replacement " + hostile,
		} {
			if got := text(row(t, page, name)); got != want {
				t.Errorf("the row of %s says %q, want %q", name, got, want)
			}
		}
		if p, _ := open(t, b, "?type="+url.QueryEscape(queue)); strings.Count(p, `class="d1"`) != 4 || !strings.Contains(row(t, p, "aws:sqs/queue"), `aria-expanded="true"`) || !strings.Contains(row(t, p, "pkg:Thing"), `aria-expanded="false"`) {
			t.Errorf("one open type: %s", text(p))
		}
		if p, _ := open(t, b, "?type=-"); strings.Contains(p, `class="d1"`) {
			t.Errorf("all types are closed, and the page shows %s", text(p))
		}
		tree, _ := open(t, b, "?view=tree")
		if r := row(t, tree, "ledger-in"); !strings.Contains(r, `class="d1"`) || !strings.Contains(r, "data-parent") {
			t.Errorf("the tree: %s", r)
		}
		if r := row(t, tree, hostile); !strings.Contains(r, `class="d2"`) {
			t.Errorf("the tree: %s", r)
		}
		changed, _ := open(t, b, "?view=changed")
		if at := strings.Index(changed, "ledger-in</span>"); at < 0 || at > strings.Index(changed, "ledger-dead</span>") {
			t.Errorf("ledger-in changed last: %s", text(changed))
		}
		for query, want := range map[string]string{
			"?q=ledger+OLDER": "1 of 7 resources pass", "?q=older": "Id older", "?q=402940294029": "1 of 7", "?provider=aws": "3 of 7", "?q=nowhere": "No resource passes the filters. Show 7 resources",
			"?view=tree&q=img": "1 of 7", "?view=tree&q=nowhere": "No resource passes", "?provider=" + url.QueryEscape(hostile): "Provider: " + hostile,
		} {
			if _, got := open(t, b, query); !strings.Contains(got, want) {
				t.Errorf("%s lacks %q: %s", query, want, got)
			}
		}
	})
}

// TestPanel shows what is known about resources.
func TestPanel(t *testing.T) {
	consoletest.Each(t, func(t *testing.T, s *consoletest.Server) {
		shop(t, s)
		b := s.SignIn()
		of := func(kind, name string) string { return "?urn=" + url.QueryEscape(urnOf(kind, name)) }
		ledger := of(queue, "ledger-in")
		for query, want := range map[string][]string{
			"": {"web-prod", "url", "https://example.com", "••••", hostile, "gnp.\ufffdexe", "Outputs 5", "Inputs 0", "Neighbours 1"},
			ledger: {
				"aws:sqs/queue:Queue", "Id https://sqs.eu-west-1", "Provider aws, default 7.4.0", "Created v1 ,", "Changed v2 ,", " UTC , Administrator", "Protected yes", "Parent web-prod",
				"arn " + arn, "kmsMasterKeyId [secret]", "tags.owner payments", "Outputs 4", "Inputs 2", "Neighbours 3", "Open in AWS",
			},
			ledger + "&part=inputs":                             {"delaySeconds 0", "password [secret]"},
			ledger + "&part=history":                            {"v2 updated it", "v1 created it"},
			ledger + "&part=neighbours":                         {"Parent", "Depends on ledger-dead", "Parent of waits for its replacement " + hostile},
			of(queue, "ledger-dead") + "&part=neighbours":       {"Needed by protected ledger-in"},
			of(queue, "ledger-dead") + "&old=1":                 {"Id older", "replaced, waits for its deletion"},
			of(queue, "charge-queue"):                           {"The state does not have the resource: the last update failed on it.", "Open v2", "v2 failed on it"},
			of(queue, "nowhere"):                                {"The state does not have this resource. It was deleted"},
			of("pkg:index:Thing", hostile):                      {"external: pulumi only reads it", "tainted: the next update replaces it", "javascript:alert(1)"},
			of("pkg:index:Thing", hostile) + "&part=neighbours": {"Parent protected ledger-in"},
			of("pulumi:pulumi:StackReference", "net"):           {"Reads net/eu"},
			"?part=neighbours":                                  {"Reads from net/ eu"},
		} {
			_, got := open(t, b, query)
			for _, w := range want {
				if !strings.Contains(joined(got), joined(w)) { // long values lose their middle
					t.Errorf("%s lacks %q: %s", query, w, got)
				}
			}
		}
		page, _ := open(t, b, ledger)
		portal := html.UnescapeString(regexp.MustCompile(`href="(https://console[^"]*)"`).FindString(page))
		if !strings.Contains(portal, "https://console.aws.amazon.com/sqs/v3/home?region=eu-west-1#/queues/https%3A%2F%2Fsqs.eu-west-1.amazonaws.com%2F402940294029%2Fledger-in") {
			t.Errorf("the link to the console of AWS is %s", portal)
		}
		if page, _ := open(t, b, of("pkg:index:Thing", hostile)); strings.Contains(page, "Open in") {
			t.Error("a resource of an unknown provider has a link")
		}
		if page, _ := open(t, b, "?part=neighbours"); !strings.Contains(page, `aria-label="web/prod reads from net/eu;"`) {
			t.Errorf("the graph of the stack is missing: %s", text(page))
		}
		if page, _ := open(t, b, ""); !strings.Contains(page, "pulumi stack output dbPassword --show-secrets --stack acme/web/prod") {
			t.Error("the command that shows a secret output is missing")
		}
	})
}

// TestRights hides the page and the stacks that a visitor may not see, and sends the state only to readers.
func TestRights(t *testing.T) {
	s := consoletest.New(t)
	shop(t, s)
	s.API(http.MethodPatch, "/api/orgs/acme", m{"setDefaultStackPermission": 0}, nil)
	stranger := s.SignInWith(s.AddUser("eve", "member"))
	for _, path := range []string{"/resources", "/resources/rows?row=0&count=10", "/resource?urn=x", "/resources/x", "/state"} {
		if p := stranger.Get(base + path); p.Status != http.StatusNotFound && p.Status != http.StatusForbidden {
			t.Errorf("a stranger reads %s: status %d", path, p.Status)
		}
	}
	ann := s.SignInWith(s.AddUser("ann", "member"))
	s.API(http.MethodPut, "/api/stacks/acme/web/prod/collaborators/ann", m{"permission": 101}, nil)
	for _, query := range []string{"?part=neighbours", "?urn=" + url.QueryEscape(urnOf("pulumi:pulumi:StackReference", "net"))} {
		if page, _ := open(t, ann, query); strings.Contains(page, "/acme/net/eu") || strings.Contains(page, `class="graph"`) {
			t.Errorf("%s shows a stack that the visitor may not see", query)
		}
	}
	p := ann.Get(base + "/state")
	if !p.Contains(`"deployment"`, "ledger-in", "c2VjcmV0") || p.Header.Get("Content-Disposition") != "attachment; filename=web-prod.json" {
		t.Errorf("the file of the state: %v %s", p.Header, p.Body)
	}
	var log struct {
		AuditLogEvents []struct{ Event, Description string }
	}
	s.API(http.MethodGet, "/api/orgs/acme/auditlogs", nil, &log)
	if !strings.Contains(fmt.Sprint(log), "stack.state-exported") {
		t.Errorf("the audit log lacks the read of the state: %v", log)
	}
}

// TestFormerAddresses opens the addresses of earlier versions.
func TestFormerAddresses(t *testing.T) {
	s := consoletest.New(t)
	s.Stack("web", "prod")
	want := base + "/resources?urn=" + url.QueryEscape(root) + "#res"
	for _, path := range []string{"/resource?urn=" + url.QueryEscape(root), "/resources/" + url.PathEscape(root)} {
		if p := s.SignIn().Get(base + path); p.Location() != want {
			t.Errorf("%s leads to %s, want %s", path, p.Location(), want)
		}
	}
}

// TestEmpty shows stacks without resources.
func TestEmpty(t *testing.T) {
	s := consoletest.New(t)
	s.Stack("web", "prod")
	b := s.SignIn()
	if _, got := open(t, b, ""); !strings.Contains(got, "Not deployed yet") || !strings.Contains(got, "pulumi up --stack acme/web/prod") {
		t.Errorf("a new stack: %s", got)
	}
	update(t, s, "succeeded", func(string) []any { return nil })
	if _, got := open(t, b, ""); !strings.Contains(got, "No resources The state of the stack is empty") {
		t.Errorf("a destroyed stack: %s", got)
	}
	must.OK(t, s.DB().Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		_, err := tx.Exec("UPDATE stacks SET state_blob = 'lost'")
		return err
	}))
	if _, got := open(t, b, ""); !strings.Contains(got, "The resources cannot be read") || !strings.Contains(got, "is damaged") {
		t.Errorf("a damaged state: %s", got)
	}
}

// TestOmitted says how many dependencies of a resource are not shown.
func TestOmitted(t *testing.T) {
	s := consoletest.New(t)
	s.Stack("web", "prod")
	const most = 10_000
	update(t, s, "succeeded", func(string) []any {
		return []any{
			m{"urn": root, "custom": false, "type": "pulumi:pulumi:Stack"},
			m{"urn": urnOf(queue, "a"), "custom": true, "type": queue, "id": "a", "dependencies": slices.Repeat([]string{root}, most+7)},
		}
	})
	_, words := open(t, s.SignIn(), "?part=neighbours&urn="+url.QueryEscape(urnOf(queue, "a")))
	if !strings.Contains(words, "Neighbours 8") || !strings.Contains(words, "Depends on web-prod pulumi:pulumi:Stack 7 more are not shown.") {
		t.Errorf("the neighbours are %s", words)
	}
}

// TestTypes shows the first of many types, until all are wanted.
func TestTypes(t *testing.T) {
	s := consoletest.New(t)
	s.Stack("web", "prod")
	update(t, s, "succeeded", func(string) []any {
		list := []any{}
		for i := range 60 {
			kind := fmt.Sprintf("pkg:index:Kind%02d", i/2)
			list = append(list, m{"urn": urnOf(kind, fmt.Sprint("name-", i)), "custom": true, "type": kind, "id": "x"})
		}
		return list
	})
	b := s.SignIn()
	page, words := open(t, b, "")
	if n := strings.Count(page, "aria-expanded="); n != 20 || !strings.Contains(words, "10 other types 20") {
		t.Errorf("%d types: %s", n, words)
	}
	for _, query := range []string{"?all=1", "?type=" + url.QueryEscape("pkg:index:Kind29")} {
		if _, words := open(t, b, query); !strings.Contains(words, "pkg:Kind29 2") || strings.Contains(words, "other types") {
			t.Errorf("%s: %s", query, words)
		}
	}
}

// many imports a state with so many resources of ten types, each with properties of two kilobytes.
func many(s *consoletest.Server, n int) {
	list := []any{m{"urn": root, "custom": false, "type": "pulumi:pulumi:Stack"}}
	for i := range n - 1 {
		kind := fmt.Sprintf("aws:service%d/thing:Thing", i%10)
		name := fmt.Sprintf("resource-%x-of-the-shop", i*7919)
		list = append(list, m{
			"urn": urnOf(kind, name), "custom": true, "type": kind, "id": "id-" + name, "parent": root, "created": "2026-01-01T00:00:00Z", "modified": "2026-01-01T00:00:00Z",
			"inputs": m{"name": name, "text": strings.Repeat("input of a resource ", 50)}, "outputs": m{"name": name, "text": strings.Repeat("output of a resource ", 50)},
		})
	}
	s.Stack("web", "prod")
	s.API(http.MethodPost, "/api/stacks/acme/web/prod/import", m{"version": 3, "deployment": m{"manifest": m{"time": "2026-01-01T00:00:00Z", "magic": "", "version": "v3.0.0"}, "resources": list}}, nil)
}

// TestSize bounds what a browser receives about a stack of 577 resources, and the pages of one of 5,000.
func TestSize(t *testing.T) {
	s := consoletest.New(t)
	many(s, 577)
	b := s.SignIn()
	size := func(query string) (packed, rows int) {
		t.Helper()
		req := b.Request(http.MethodGet, base+"/resources"+query, nil)
		req.Header.Set("Accept-Encoding", "gzip")
		req.Header.Set("Sec-Fetch-Site", "same-origin")
		p := b.Do(req)
		if p.Status != http.StatusOK || p.Header.Get("Content-Encoding") != "gzip" {
			t.Fatalf("%s: status %d, %v", query, p.Status, p.Header)
		}
		plain := must.Get(io.ReadAll(must.Get(gzip.NewReader(strings.NewReader(p.Body)))(t)))(t)
		return len(p.Body), strings.Count(string(plain), "data-depth=")
	}
	for _, query := range []string{"", "?view=tree", "?view=changed", "?view=tree&q=aws", "?view=tree&q=resource-2", "?type=" + url.QueryEscape("aws:service3/thing:Thing")} {
		if n, rows := size(query); n > 20<<10 {
			t.Errorf("%q has %d bytes with %d rows", query, n, rows)
		} else {
			t.Logf("%q: %d bytes, %d rows", query, n, rows)
		}
	}
	if _, rows := size("?view=tree"); rows != 200 {
		t.Errorf("the tree has %d rows at first", rows)
	}
	first, _ := open(t, b, "?view=tree")
	last, _ := open(t, b, "?view=tree&row=400")
	if !strings.Contains(first, "Next rows") || strings.Contains(last, "Next rows") || strings.Count(last, "data-depth=") != 177 {
		t.Error("the pages of the tree are wrong")
	}
	var window struct {
		From, Total int
		HTML        string
	}
	get := func(query string) {
		t.Helper()
		p := b.Get(base + "/resources/rows?" + query)
		if p.Status != http.StatusOK {
			t.Fatalf("%s: status %d", query, p.Status)
		}
		must.OK(t, jsonOf(p.Body, &window))
	}
	get("view=tree&row=500&count=100")
	if window.From != 500 || window.Total != 577 || strings.Count(window.HTML, "data-depth=") != 77 {
		t.Errorf("the window has %d of %d rows from %d", strings.Count(window.HTML, "data-depth="), window.Total, window.From)
	}
	get("view=tree&row=0&count=100&fold=" + regexp.MustCompile(`data-depth="0" data-key="(\w+)"`).FindStringSubmatch(first)[1])
	if window.Total != 1 || !strings.Contains(window.HTML, `data-parent="false"`) {
		t.Errorf("folding leaves %d rows", window.Total)
	}
	for _, bad := range []string{"row=-1&count=1", "row=0&count=1000", "row=x", "row=0&count=1&fold=" + strings.Repeat("a,", 600)} {
		if p := b.Get(base + "/resources/rows?" + bad); p.Status != http.StatusBadRequest {
			t.Errorf("%s: status %d", bad, p.Status)
		}
	}
}

// BenchmarkPage measures the page of 577 and of 5,000 resources, which a hundred updates have changed.
func BenchmarkPage(b *testing.B) {
	for _, n := range []int{577, 5000} {
		s := consoletest.New(b)
		many(s, n)
		for range 100 {
			s.RunUpdate(consoletest.Update{Stack: "web/prod", Kind: "update", Result: "succeeded"})
		}
		browser := s.SignIn()
		last := urnOf(fmt.Sprintf("aws:service%d/thing:Thing", (n-2)%10), fmt.Sprintf("resource-%x-of-the-shop", (n-2)*7919))
		for _, query := range []string{"", "?view=tree", "?view=changed", "?q=f", "?view=tree&part=neighbours&urn=" + url.QueryEscape(last)} {
			b.Run(fmt.Sprintf("%d%s", n, query), func(b *testing.B) {
				var took []time.Duration
				for b.Loop() {
					began := time.Now()
					if p := browser.Get(base + "/resources" + query); p.Status != http.StatusOK {
						b.Fatal(p.Status)
					}
					took = append(took, time.Since(began))
				}
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)*95/100].Microseconds())/1000, "p95-ms")
			})
		}
	}
}

func jsonOf(text string, out any) error { return json.Unmarshal([]byte(text), out) }
