package agents_test

import (
	"fmt"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

const hostile = `"'><script>alert(1)</script>{{7*7}}` + "\u202egnp.exe"

// bidirectional finds titles with a bidirectional control.
var bidirectional = regexp.MustCompile(`title="[^"]*\x{202e}`)

// save adds an agent to a pool, which was seen some time ago.
func save(t *testing.T, s *consoletest.Server, list ...store.PoolAgent) {
	t.Helper()
	must.OK(t, s.DB().Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		for _, a := range list {
			seen := a.Every
			a.SessionID, a.Every, a.LastSeenAt = a.AgentID, time.Minute, tx.Now().Add(-seen)
			if seen < time.Minute {
				a.LiveUntil = tx.Now().Add(time.Hour)
			}
			if err := tx.SaveAgent(a); err != nil {
				return err
			}
		}
		return nil
	}))
}

// newPool adds a pool.
func newPool(s *consoletest.Server, name, description string) string {
	var made struct{ ID string }
	s.API(http.MethodPost, "/api/orgs/acme/agent-pools", map[string]string{"name": name, "description": description}, &made)
	return made.ID
}

// TestPools shows pools with agents in all states, whose hostile names and versions stay text.
func TestPools(t *testing.T) {
	s := consoletest.New(t)
	s.Stack("web", "dev")
	eu, gpu := newPool(s, "eu", hostile), newPool(s, "gpu", "")
	save(t, s,
		store.PoolAgent{PoolID: eu, AgentID: "free", Hostname: "host-free", Version: "v0.0.1", Slots: 2},
		store.PoolAgent{PoolID: eu, AgentID: hostile, Hostname: hostile, IP: hostile, Platform: hostile, Version: hostile},
		store.PoolAgent{PoolID: eu, AgentID: "gone", Hostname: "host-gone", Every: 30 * time.Minute, Slots: 1},
		store.PoolAgent{PoolID: gpu, AgentID: "gpu-1", Hostname: "gpu-1", Every: 41 * time.Minute, Slots: 1},
	)
	s.API(http.MethodPost, "/api/stacks/acme/web/dev/deployments", map[string]any{"operation": "preview", "agentPoolID": gpu}, nil)
	b := s.SignIn()
	gpuPath := "/acme/-/pools/" + gpu
	if got := plain(b.Get(gpuPath).Body); !strings.Contains(got, "Its 1 queued deployment will wait") || strings.Contains(got, "of a pull request stays") {
		t.Errorf("a queue without pull requests: %s", got)
	}
	// The deployment of a pull request does not move with the queue.
	s.Stack("web", "pull")
	var pull struct{ ID string }
	s.API(http.MethodPost, "/api/stacks/acme/web/pull/deployments", map[string]any{"operation": "preview", "agentPoolID": gpu}, &pull)
	must.OK(t, s.DB().Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		return tx.InsertCheckout(store.VCSCheckout{DeploymentID: pull.ID, Pull: 7})
	}))
	list := b.Get("/acme/-/pools")
	text := plain(list.Body)
	for _, want := range []string{
		"Agents 2 pools, 2 online", "eu default", "0 busy, 2 free", "host-free free", "takes no jobs", "host-gone offline", "gpu no agent online", "none online 2 queued",
		"gpu-1 was last seen 41 min ago. 2 deployments wait. Start the agent, or move the queue to another pool.", "Its 1 queued deployment will wait for the other pool.", "1 deployment of a pull request stays.", "eu (2 online)",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the list lacks %q: %s", want, text)
		}
	}
	if strings.Index(text, "gpu no agent online") > strings.Index(text, "eu default") {
		t.Errorf("the pool whose deployments wait is not the first: %s", text)
	}
	pages := []consoletest.Page{list, b.Get("/acme/-/pools/" + eu), b.Get("/acme/-/pools/" + eu + "/agents/" + url.PathEscape(hostile))}
	for i, p := range pages {
		if p.Status != http.StatusOK || strings.Contains(p.Body, "<script>alert") || bidirectional.MatchString(p.Body) || strings.Contains(plain(p.Body), "\u202e") || !strings.Contains(plain(p.Body), "<script>alert(1)</script>") {
			t.Errorf("page %d: status %d, or hostile names are not text: %s", i, p.Status, plain(p.Body))
		}
	}
	if got := plain(b.Get("/acme/-/pools/" + gpu + "/agents/gpu-1").Body); !strings.Contains(got, "The agent is offline. Check on its host whether it runs: customer-managed-workflow-agent doctor") {
		t.Errorf("the page of an offline agent: %s", got)
	}

	// A member sees the pools, but neither tokens nor what changes them.
	member := s.SignInWith(s.AddUser("mia", "member"))
	for _, path := range []string{"/acme/-/pools", "/acme/-/pools/" + eu, "/acme/-/pools/" + eu + "/agents/free"} {
		p := member.Get(path)
		got := plain(p.Body)
		for _, hidden := range []string{"Move the queue", "move the queue", "Tokens", "Revoke", "New token", "New pool", "Delete the pool", "Make default", "Drain the agent"} {
			if strings.Contains(got, hidden) {
				t.Errorf("a member reads %q at %s: %s", hidden, path, got)
			}
		}
		if p.Status != http.StatusOK {
			t.Errorf("a member at %s: status %d", path, p.Status)
		}
	}

	if p := b.Post("/acme/-/pools/"+gpu+"/move", url.Values{"to": {eu}}); p.Status != http.StatusSeeOther || p.Location() != "/acme/-/pools/"+eu {
		t.Errorf("moving the queue: status %d to %q", p.Status, p.Location())
	}
	if got := plain(b.Get("/acme/-/pools/" + eu).Body); !strings.Contains(got, "1 queued, the oldest for") || !strings.Contains(got, "web/ dev #1") {
		t.Errorf("the pool to which the queue moved: %s", got)
	}
	if got := plain(b.Get(gpuPath).Body); !strings.Contains(got, "1 deployment waits. Start the agent.") || strings.Contains(got, "Move the queue") {
		t.Errorf("a pool of which only pull requests wait: %s", got)
	}
}

// TestWorkOfOthers checks that a member without permissions on stacks sees how busy agents are, but not with what.
func TestWorkOfOthers(t *testing.T) {
	s := consoletest.New(t)
	s.API(http.MethodPatch, "/api/orgs/acme", map[string]int{"setDefaultStackPermission": 0}, nil)
	s.Stack("secret", "dev")
	job := s.StartJob(s.Pool(), "secret", "dev")
	s.API(http.MethodPost, "/api/stacks/acme/secret/dev/deployments", map[string]any{"operation": "preview"}, nil)
	b := s.SignInWith(s.AddUser("mia", "member"))
	list := b.Get("/acme/-/pools")
	pool := found(t, list, poolLink)
	for path, want := range map[string]string{
		"/acme/-/pools": "1 busy, 0 free", pool: "You may see none of the deployments that wait.", pool + "/agents/" + job.AgentID: "The agent runs 1 deployment that you may not see.",
	} {
		p := b.Get(path)
		if got := plain(p.Body); p.Status != http.StatusOK || strings.Contains(got, "secret") || !strings.Contains(got, want) {
			t.Errorf("%s: status %d, want %q and no name of a stack: %s", path, p.Status, want, got)
		}
	}
}

// TestManyAgents checks the pages of lists: 20 pools, of which each shows 10 agents, and 100 agents of a pool.
func TestManyAgents(t *testing.T) {
	s := consoletest.New(t)
	pool := newPool(s, "first", "")
	var agents []store.PoolAgent
	for i := range 101 {
		name := fmt.Sprintf("host-%03d", i)
		agents = append(agents, store.PoolAgent{PoolID: pool, AgentID: name + "/&?", Hostname: name, Slots: 1})
	}
	save(t, s, agents...)
	for i := range 20 {
		newPool(s, fmt.Sprintf("more-%d", i), "")
	}
	b := s.SignIn()
	next := func(path, has, lacks string) string {
		t.Helper()
		p := b.Get(path)
		if got := plain(p.Body); !strings.Contains(got, has) || strings.Contains(got, lacks) {
			t.Errorf("%s: want %q and not %q: %s", path, has, lacks, got)
		}
		_, after, ok := strings.Cut(p.Body, `rel="next"`)
		if !ok {
			return ""
		}
		before := p.Body[:len(p.Body)-len(after)]
		link := before[strings.LastIndex(before, `href="`)+len(`href="`):]
		return link[:strings.Index(link, `"`)]
	}
	second := next("/acme/-/pools", "All 101 agents", "host-010")
	if got := next(second, "more-19 none online", "more-18 none online"); got != "" {
		t.Errorf("the second page of pools has the next page %q", got)
	}
	second = next("/acme/-/pools/"+pool, "host-099", "host-100")
	if got := next(second, "host-100", "host-099"); got != "" {
		t.Errorf("the second page of agents has the next page %q", got)
	}
}

// TestNewToken checks that a new token is shown once, above the page of its pool, and by nothing else.
func TestNewToken(t *testing.T) {
	s := consoletest.New(t)
	b := s.SignIn()
	made := b.Post("/acme/-/pools", url.Values{"name": {"eu"}})
	if got := plain(made.Body); made.Status != http.StatusOK || strings.Count(got, "pul-") != 1 || !strings.Contains(got, "The server shows this token only now") || !strings.Contains(got, "configure --service-url") || !strings.Contains(made.Body, `<live-page data-of="/acme/-/pools/`) ||
		!strings.Contains(made.Body, `href="#install"`) || strings.Count(made.Body, `target="_blank"`) != 6 {
		t.Errorf("the new pool: status %d: %s", made.Status, got)
	}
	// What the open page receives when an agent connects does not lead away from the token.
	pool := found(t, b.Get("/acme/-/pools"), poolLink)
	save(t, s, store.PoolAgent{AgentID: "a1", PoolID: path.Base(pool), Hostname: "vm"})
	if address := found(t, made, regexp.MustCompile(`data-of="([^"]+)"`)); !strings.Contains(b.Get(address).Body, `class="btn primary" href="#install"`) {
		t.Errorf("the new pool: the page follows %q, whose button leaves the page", address)
	}
	token := b.Post(pool+"/tokens", url.Values{"description": {hostile}})
	if got := plain(token.Body); strings.Count(got, "pul-") != 1 || strings.Contains(token.Body, "<script>alert") {
		t.Errorf("the new token: %s", got)
	}
	if got := plain(b.Get(pool).Body); strings.Contains(got, "pul-") || !strings.Contains(got, "Revoke the token "+strings.ReplaceAll(hostile, "\u202e", "\ufffd")) {
		t.Errorf("the page of the pool after that: %s", got)
	}
}
