package engine

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/lab/child"
	"workflowagent/internal/dev/lab/postgres"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/release/image"
)

// composition is what packaging/compose/compose.yaml starts.
type composition struct {
	dockerCLI
	engine string // its address
	site   *harness.Site
}

// TestEngineCompose starts server, PostgreSQL and agent as docs/compose.md describes, signs in, and runs a deployment.
// It stops and starts everything during another deployment, and runs a last one. The tiers run it with its own engine
// next to other tests, because a restarted agent waits until the server considers the former one offline.
func TestEngineCompose(t *testing.T) {
	for _, available := range []func() (string, bool){lab.PrivateEngineAvailable, postgres.Available, composeAvailable} {
		if reason, ok := available(); !ok {
			if os.Getenv("WORKFLOW_REQUIRE_TIERS") == "all" {
				t.Fatal(reason)
			}
			t.Skip(reason)
		}
	}
	ctx := t.Context()
	dir := must.Get(os.MkdirTemp("", "e2e-"))(t) // the engine's sockets must have short paths
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	engine := must.Get(lab.StartEngine(ctx, filepath.Join(dir, "e")))(t)
	t.Cleanup(func() {
		if err := engine.Stop(); err != nil {
			t.Error(err)
		}
	})
	if reason, ok := engine.SharesHostNetwork(ctx); !ok {
		t.Skip(reason)
	}
	c, jobs := compose(t, engine)

	began := time.Now()
	c.page(t, "compose up", nil)
	t.Logf("docker-compose up took %s", time.Since(began).Round(time.Second/10))
	c.wantHealthy(t)
	if settings := c.must(t, "exec", c.container(t, "server"), "workflow-server", "config", "show"); !regexp.MustCompile(`keep_logs_for +8760h`).MatchString(settings) {
		t.Errorf("compose.override.yaml has no effect:\n%s", settings)
	}
	c.signIn(t, string(must.Get(c.run(ctx, "logs", c.container(t, "server")))(t)))
	c.signIn(t, c.page(t, "compose sign in", nil))
	waitAgentOnline(t, c.site)
	c.wantHidden(t)

	repo := c.site.Repo(ctx, t)
	s := c.site.NewStack(ctx, t, "box", "dev", jobs, nil)
	c.deployByCLI(t, s, repo)
	t.Logf("from nothing to the first deployment took %s", time.Since(began).Round(time.Second/10))

	c.page(t, "compose token", nil)
	c.revokeOldest(t)
	waitAgentOnline(t, c.site)

	held, release := hold(t)
	running := s.Deploy(ctx, t, "update", repo.URL, "wget -q -O - "+held.url)
	select {
	case <-held.reached:
	case <-time.After(harness.Patience):
		t.Fatalf("the deployment does not run: %+v", s.Wait(ctx, t, running, time.Minute, "running", "failed"))
	}
	c.page(t, "compose down", nil)
	if left := c.must(t, "ps", "--all", "--quiet", "--filter", "label=com.docker.compose.project=wflab"); left != "" {
		t.Errorf("after down, these containers remain: %s", left)
	}
	began = time.Now()
	c.page(t, "compose up", nil)
	t.Logf("docker-compose up with data took %s", time.Since(began).Round(time.Second/10))
	c.wantHealthy(t)
	release()
	if d := s.Finish(ctx, t, running); d.Status != "succeeded" {
		t.Errorf("the deployment that ran meanwhile ended as %+v; its log:\n%s", d, s.Log(ctx, t, d))
	}
	waitAgentOnline(t, c.site)
	c.deploy(t, s, "destroy", repo) // removes what the first deployment has created
	c.page(t, "compose backup", nil)
	for _, file := range []string{"workflow.dump", "master-key"} {
		if info := must.Get(os.Stat(filepath.Join(c.dir, file)))(t); info.Size() == 0 {
			t.Errorf("the backup %s is empty", file)
		}
	}
	harness.Leftovers(ctx, t, engine)
}

// held is a URL that answers only after a test permits it.
type held struct {
	url     string
	reached chan struct{} // closed by the first request
}

func hold(t *testing.T) (h held, release func()) {
	t.Helper()
	h.reached = make(chan struct{})
	released := make(chan struct{})
	var first, last sync.Once
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		first.Do(func() { close(h.reached) })
		select {
		case <-released:
		case <-r.Context().Done():
		}
	}))
	h.url = server.URL
	release = func() { last.Do(func() { close(released) }) }
	t.Cleanup(func() {
		release()
		server.Close()
	})
	return h, release
}

func composeAvailable() (reason string, ok bool) {
	for _, program := range []string{"docker", "docker-compose"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Sprintf("no %s on this machine (Debian's docker.io and docker-compose)", program), false
		}
	}
	return "", true
}

// compose prepares a directory for docs/compose.md, with images of this checkout, and the image of jobs. Its engine pulls no
// images.
func compose(t *testing.T, engine *lab.Engine) (c *composition, jobs string) {
	t.Helper()
	ctx := t.Context()
	bin, tools := harness.Programs(t)
	other := map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]
	must.OK(t, lab.BuildRunner(ctx, bin, other, os.Stderr))
	docker := newDockerCLI(t, engine)
	docker.env = append(docker.env, "COMPOSE_PROJECT_NAME=wflab")
	port := strconv.Itoa(must.Get(child.FreePort("127.0.0.1"))(t))
	c = &composition{docker, engine.Host, &harness.Site{
		Dir: docker.dir, Bin: bin, Tools: tools,
		Server: &lab.Server{URL: "http://localhost:" + port, Organization: "organization"},
	}}
	c.site.Git = must.Get(lab.StartGitServer(ctx, filepath.Join(docker.dir, "git"), lab.GitOptions{}))(t)
	t.Cleanup(func() { _ = c.site.Git.Close() })

	root := must.Get(lab.Root())(t)
	c.page(t, "compose fetch", map[string]string{"MIRROR": "file://" + filepath.Join(root, "packaging"), "VERSION": "compose"})
	// The engine pulls no images. The last lines of the page's file are variables of the agent.
	override := slices.IndexFunc(harness.Blocks(t, "compose.md"), func(b harness.CodeBlock) bool { return b.Language == "yaml" })
	harness.Write(t, filepath.Join(docker.dir, "compose.override.yaml"), []byte(harness.Blocks(t, "compose.md")[override].Text+"      PULUMI_AGENT_PULL_IMAGE: 'false'\n"), 0o600)
	database := must.Get(must.Get(lab.NewPostgresImage(ctx))(t).Load(ctx, engine.Host))(t)
	c.page(t, "compose images", map[string]string{
		"POSTGRES_IMAGE": database,
		"SERVER_IMAGE":   docker.loadImage(t, image.Server(), bin)[0],
		"AGENT_IMAGE":    docker.loadImage(t, image.Agent(), bin)[0] + "\nDOCKER_SOCKET=" + strings.TrimPrefix(engine.Host, "unix://") + "\nLISTEN=127.0.0.1:" + port + "\nEXTERNAL_URL=" + c.site.Server.URL,
	})
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if t.Failed() {
			t.Logf("%s", c.compose(ctx, "ps", "--all"))
			t.Logf("%s", c.compose(ctx, "logs", "--tail", "40"))
		}
		c.compose(ctx, "down", "--volumes", "--timeout", "20")
	})
	return c, must.Get(lab.ExecutorImage(ctx, engine.Host, tools))(t)
}

// compose runs docker-compose and returns its output, in which its errors are.
func (c *composition) compose(ctx context.Context, args ...string) []byte {
	cmd := exec.CommandContext(ctx, "docker-compose", args...)
	cmd.Dir, cmd.Env = c.dir, c.env
	out, _ := cmd.CombinedOutput()
	return out
}

// page runs commands of docs/compose.md with the older docker-compose, as the page says.
func (c *composition) page(t *testing.T, mark string, values map[string]string) string {
	t.Helper()
	return c.script(t, `docker() { if [ "$1" = compose ]; then shift; docker-compose "$@"; else command docker "$@"; fi; }`+"\n"+
		harness.Script(t, "compose.md", mark, values))
}

func (c *composition) container(t *testing.T, service string) string {
	t.Helper()
	return c.must(t, "ps", "--all", "--quiet", "--filter", "label=com.docker.compose.project=wflab", "--filter", "label=com.docker.compose.service="+service)
}

// wantHealthy checks what the health checks say, and reads an access token.
func (c *composition) wantHealthy(t *testing.T) {
	t.Helper()
	for _, service := range []string{"database", "server"} {
		if health := c.must(t, "inspect", "--format", "{{.State.Health.Status}}", c.container(t, service)); health != "healthy" {
			t.Errorf("the container of the %s is %s", service, health)
		}
	}
	if c.site.Server.Token == "" {
		c.site.Server.Token = c.must(t, "exec", c.container(t, "server"), "workflow-server", "token", "create")
		var pools struct {
			AgentPools []struct{ ID, Name string }
		}
		must.OK(t, c.site.Server.Call(t.Context(), http.MethodGet, "/api/orgs/organization/agent-pools", nil, &pools))
		if len(pools.AgentPools) != 1 || pools.AgentPools[0].Name != "compose" {
			t.Fatalf("the pools are %+v", pools)
		}
		c.site.Pool.ID = pools.AgentPools[0].ID
	}
}

var signInLink = regexp.MustCompile(`(http://localhost:\d+)/-/login/link\?key=(\S+)`)

// signIn uses the link in a text, which must work once.
func (c *composition) signIn(t *testing.T, text string) {
	t.Helper()
	link := signInLink.FindStringSubmatch(text)
	if link == nil || link[1] != c.site.Server.URL {
		t.Fatalf("no link to the console in\n%s", text)
	}
	client := &http.Client{Timeout: time.Minute, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for i, want := range []int{http.StatusSeeOther, http.StatusUnprocessableEntity} {
		req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, link[1]+"/-/login/link", strings.NewReader(url.Values{"key": {link[2]}}.Encode())))(t)
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		res := must.Get(client.Do(req))(t)
		must.OK(t, res.Body.Close())
		if res.StatusCode != want || (len(res.Cookies()) > 0) != (i == 0) {
			t.Errorf("use %d of the link: status %d, cookies %v, want %d", i+1, res.StatusCode, res.Cookies(), want)
		}
	}
}

// wantHidden checks that the engine shows neither the password of the database nor the token of the pool, and that both
// exist.
func (c *composition) wantHidden(t *testing.T) {
	t.Helper()
	password := c.must(t, "exec", c.container(t, "database"), "cat", "/run/database/password")
	token := c.must(t, "run", "--rm", "--volume", "wflab_agent:/agent", must.Get(lab.ShellImage(t.Context(), c.engine))(t), "cat", "/agent/token")
	if len(password) < 40 || !strings.HasPrefix(token, "pul-") {
		t.Fatalf("the password has %d characters, the token %d", len(password), len(token))
	}
	for id := range strings.FieldsSeq(c.must(t, "ps", "--all", "--quiet")) {
		if shown := c.must(t, "inspect", id); strings.Contains(shown, password) || strings.Contains(shown, token) {
			t.Errorf("docker inspect shows a secret of %s", c.must(t, "inspect", "--format", "{{.Name}}", id))
		}
	}
}

// revokeOldest revokes the first token of the pool, so that only the newer one works.
func (c *composition) revokeOldest(t *testing.T) {
	t.Helper()
	tokens := "/api/orgs/organization/agent-pools/" + c.site.Pool.ID + "/tokens"
	var list struct {
		Tokens []struct{ ID, Created string }
	}
	must.OK(t, c.site.Server.Call(t.Context(), http.MethodGet, tokens, nil, &list))
	if len(list.Tokens) != 2 {
		t.Fatalf("the pool has the tokens %+v", list.Tokens)
	}
	oldest := slices.MinFunc(list.Tokens, func(a, b struct{ ID, Created string }) int { return strings.Compare(a.Created, b.Created) })
	must.OK(t, c.site.Server.Call(t.Context(), http.MethodDelete, tokens+"/"+oldest.ID, nil, nil))
}

// deployByCLI runs an update with the commands of the page.
func (c *composition) deployByCLI(t *testing.T, s *harness.Stack, repo *lab.Repo) {
	t.Helper()
	must.OK(t, c.site.Server.Call(t.Context(), http.MethodPost, s.Path("settings"), map[string]any{
		"sourceContext": map[string]any{"git": map[string]any{"repoUrl": repo.URL, "branch": "refs/heads/main"}},
	}, nil))
	must.OK(t, c.site.Tools.Home(filepath.Join(c.dir, "home")))
	script := harness.Script(t, "compose.md", "compose deploy", nil)
	for _, pair := range [][2]string{{"pul-…", c.site.Server.Token}, {"http://localhost:8800", c.site.Server.URL}, {"organization/hello/dev", s.Name}} {
		if !strings.Contains(script, pair[0]) {
			t.Fatalf("docs/compose.md does not contain %s", pair[0])
		}
		script = strings.ReplaceAll(script, pair[0], pair[1])
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script)
	cmd.Dir, cmd.Env = c.dir, c.site.Tools.Env(filepath.Join(c.dir, "home"), "", "")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "pulumi update") {
		t.Fatalf("%v\n%s", err, out)
	}
}

func (c *composition) deploy(t *testing.T, s *harness.Stack, operation string, repo *lab.Repo) {
	t.Helper()
	ctx := t.Context()
	d := s.Finish(ctx, t, s.Deploy(ctx, t, operation, repo.URL))
	log := s.Log(ctx, t, d)
	if d.Status != "succeeded" || !strings.Contains(log, "== pulumi "+operation) {
		t.Fatalf("%s ended as %+v; its log:\n%s", operation, d, log)
	}
}
