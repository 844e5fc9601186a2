package faults

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/moby/moby/client"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/lab/child"
	"workflowagent/internal/dev/must"
)

type leak struct {
	name   string
	docker bool
	json   bool // the logs of agent and server are JSON
	oidc   bool // the agent has an identity token instead of the pool's
	// git plants credentials for the source and returns the URL and the settings.
	git    func(t *testing.T, w *harness.Site, s *secrets) (repoURL string, auth map[string]any)
	image  func(t *testing.T, s *secrets, reference string) any
	reason string // of a deployment that must fail
	says   string // what its log must then contain
}

// TestFaultSecretsStayHidden plants secrets wherever a user can put one, has a job print those it
// sees, and searches for them, in the forms in which tools print them, during the job and
// afterwards: in the logs of server, agent and job, the API's responses, command lines and
// environments of processes, and all files of server and agent.
func TestFaultSecretsStayHidden(t *testing.T) {
	for _, tc := range []leak{
		{name: "password", git: gitPassword("git/passw+rd 5151")},
		{name: "ssh key", json: true, oidc: true, git: gitKey("passphrase of the key 5353")},
		{name: "wrong password", git: wrong(gitPassword("git/passw+rd 5252")), reason: "exit-code", says: "rejected the credentials"},
		{name: "wrong passphrase", json: true, git: wrong(gitKey("passphrase of the key 5454")), reason: "exit-code", says: "passphrase"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := harness.StartSite(t, "", tc.serverArgs()...)
			tc.run(t, w, "", "")
		})
	}
}

// TestEngineSecretsStayHidden is the same in containers, whose descriptions and outputs the engine
// keeps.
func TestEngineSecretsStayHidden(t *testing.T) {
	w, engine, image := harness.StartEngineSite(t, harness.OnLoopback)
	registry := must.Get(lab.StartRegistry(t.Context(), lab.RegistryOptions{Username: "puller", Password: "the right one"}))(t)
	t.Cleanup(func() { _ = registry.Close() })
	login := func(reference string) func(*testing.T, *secrets, string) any {
		return func(_ *testing.T, s *secrets, local string) any {
			s.plant("registry password", "registry/passw+rd 8484")
			if reference != "" {
				local = reference
			}
			return map[string]any{"reference": local, "credentials": map[string]any{
				"username": "puller", "password": map[string]string{"secret": "registry/passw+rd 8484"},
			}}
		}
	}
	for _, tc := range []leak{
		{name: "image with a password", docker: true, git: gitPassword("git/passw+rd 5151"), image: login("")},
		{
			name: "registry refuses", docker: true, git: gitPassword("git/passw+rd 5151"),
			image: login(registry.Host + "/private/image:1"), reason: "image", says: "could not be pulled",
		},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.run(t, w, engine.Host, image) })
	}
}

func (tc leak) serverArgs() []string {
	args := []string{"--log-level", "debug"}
	if tc.json {
		args = append(args, "--log-format", "json")
	}
	return args
}

func gitPassword(password string) func(*testing.T, *harness.Site, *secrets) (string, map[string]any) {
	return func(t *testing.T, w *harness.Site, s *secrets) (string, map[string]any) {
		git, err := lab.StartGitServer(t.Context(), filepath.Join(w.Dir, "private-"+strconv.Itoa(len(w.Agents))), lab.GitOptions{Username: "builder", Password: password})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = git.Close() })
		repo, _, err := git.NewRepo(t.Context(), "box", map[string]string{"Pulumi.yaml": harness.YamlProgram})
		if err != nil {
			t.Fatal(err)
		}
		s.plant("git password", password)
		return repo.URL, map[string]any{"basicAuth": map[string]any{
			"userName": map[string]string{"secret": "builder"}, "password": map[string]string{"secret": password},
		}}
	}
}

func gitKey(passphrase string) func(*testing.T, *harness.Site, *secrets) (string, map[string]any) {
	return func(t *testing.T, w *harness.Site, s *secrets) (string, map[string]any) {
		if reason, ok := lab.SSHAvailable(); !ok {
			t.Skip(reason)
		}
		dir := t.TempDir()
		server := must.Get(lab.StartSSHServer(t.Context(), dir, passphrase))(t)
		t.Cleanup(server.Close)
		repo := w.Repo(t.Context(), t)
		s.plant("passphrase", passphrase)
		s.plant("ssh key", server.PrivateKey)
		return server.RepoURL(repo), map[string]any{"sshAuth": map[string]any{
			"sshPrivateKey": map[string]string{"secret": server.PrivateKey}, "password": map[string]string{"secret": passphrase},
		}}
	}
}

func wrong(source func(*testing.T, *harness.Site, *secrets) (string, map[string]any)) func(*testing.T, *harness.Site, *secrets) (string, map[string]any) {
	return func(t *testing.T, w *harness.Site, s *secrets) (string, map[string]any) {
		repoURL, auth := source(t, w, s)
		const other = "another/passw+rd 5656"
		s.plant("wrong password", other)
		for _, mode := range auth {
			mode.(map[string]any)["password"] = map[string]string{"secret": other} //nolint:forcetypeassert // made above
		}
		return repoURL, auth
	}
}

// identify makes the server trust an issuer, and returns the settings of an agent with the issuer's
// token in a file.
func identify(t *testing.T, w *harness.Site, s *secrets) map[string]string {
	t.Helper()
	ctx := t.Context()
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	signer := must.Get(jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, (&jose.SignerOptions{}).WithHeader("kid", "k")))(t)
	now := time.Now().Unix()
	claims := must.Get(json.Marshal(map[string]any{
		"iss": "https://issuer.example", "sub": "agent-1", "aud": "urn:pulumi:org:" + w.Server.Organization, "iat": now, "exp": now + 3600,
	}))(t)
	signed := must.Get(signer.Sign(claims))(t)
	token := must.Get(signed.CompactSerialize())(t)
	s.plant("identity token", token)
	s.plant("identity token's signature", token[strings.LastIndexByte(token, '.')+1:])
	file := filepath.Join(t.TempDir(), "token")
	harness.Write(t, file, []byte(token), 0o600)
	var issuer, policy struct{ ID string }
	orgPath := "/api/orgs/" + w.Server.Organization
	for _, call := range []func() error{
		func() error {
			return w.Server.Call(ctx, http.MethodPost, orgPath+"/oidc/issuers", map[string]any{
				"name": "issuer", "url": "https://issuer.example",
				"jwks": jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k", Use: "sig", Algorithm: "ES256"}}},
			}, &issuer)
		},
		func() error {
			return w.Server.Call(ctx, http.MethodGet, orgPath+"/auth/policies/oidcissuers/"+issuer.ID, nil, &policy)
		},
		func() error {
			return w.Server.Call(ctx, http.MethodPatch, orgPath+"/auth/policies/"+policy.ID, map[string]any{"policies": []any{
				map[string]any{"decision": "allow", "tokenType": "runner", "runnerID": w.Pool.ID, "rules": map[string]string{"sub": "agent-1"}},
			}}, nil)
		},
	} {
		must.OK(t, call())
	}
	return map[string]string{"oidc_token_file": file, "organization_name": w.Server.Organization, "runner_pool_id": w.Pool.ID}
}

// The secrets differ between test processes, because each looks into all processes of the machine.
var (
	settingSecret   = fmt.Sprintf(`setting's/t0k+en "7373-%d"`, os.Getpid())
	forwardedSecret = fmt.Sprintf("forw@rded/key+ 6262-%d", os.Getpid())
	proxySecret     = fmt.Sprintf("proxy-passw0rd-9494-%d", os.Getpid())
)

func (tc leak) run(t *testing.T, w *harness.Site, engineHost, image string) {
	ctx := t.Context()
	s := newSecrets(t)
	s.plant("setting", settingSecret)
	s.plant("forwarded variable", forwardedSecret)
	s.plant("proxy password", proxySecret)
	target := "process"
	settings := map[string]string{"env_forward_allowlist": "CLOUD_KEY", "log_format": "text"}
	if tc.json {
		settings["log_format"] = "json"
	}
	env := []string{"CLOUD_KEY=" + forwardedSecret, "HTTPS_PROXY=http://proxyuser:" + proxySecret + "@127.0.0.1:9"}
	if tc.docker {
		target = "docker"
		settings["pull_image"] = strconv.FormatBool(tc.reason == "image")
		env = append(env, "DOCKER_HOST="+engineHost)
	}
	if tc.oidc {
		must.OK(t, w.MakePool(ctx))
		maps.Copy(settings, identify(t, w, s))
	}
	w.AgentArgs = []string{"--debug"}
	agent, err := w.LaunchAgent(ctx, target, settings, env...)
	if err != nil {
		t.Fatal(err)
	}
	s.plant("pool token", w.Pool.Token)
	s.plant("admin token", w.Server.Token)
	s.plant("master key", strings.TrimSpace(string(harness.Read(t, filepath.Join(w.Server.DataDir, "master-key")))))
	given := watched{
		filepath.Join(w.Bin, "customer-managed-workflow-agent") + "\x00run\x00--debug\x00": {"pool token", "forwarded variable", "proxy password"},
	}

	repoURL, auth := tc.git(t, w, s)
	st := w.NewStack(ctx, t, "box", strings.ReplaceAll(tc.name, " ", "-"), image, nil)
	patch := map[string]any{
		"operationContext": map[string]any{"environmentVariables": map[string]any{"API_TOKEN": map[string]string{"secret": settingSecret}}},
		"sourceContext":    map[string]any{"git": map[string]any{"repoUrl": repoURL, "branch": "main", "gitAuth": auth}},
	}
	if tc.image != nil {
		patch["executorContext"] = map[string]any{"executorImage": tc.image(t, s, image)}
	}
	must.OK(t, w.Server.Call(ctx, http.MethodPost, st.Path("settings"), patch, nil))
	d := st.Deploy(ctx, t, "update", repoURL,
		`echo "$API_TOKEN and $CLOUD_KEY"; printf %s "$API_TOKEN" | base64; printf 'x%s' "$CLOUD_KEY" | base64; printf %s "$API_TOKEN" | od -An -tx1 | tr -d ' \n'; echo`,
		`env; cat /proc/$PPID/cmdline | tr '\0' ' '; echo "$PULUMI_ACCESS_TOKEN"; until [ -e "/tmp/go-$PULUMI_CI_BUILD_ID" ]; do sleep 0.05; done`)
	stop := s.watch(d.ID, given)
	if tc.reason == "" {
		tc.lookInside(ctx, t, s, w, st, d, engineHost)
	}
	d = st.Finish(ctx, t, d)
	stop()
	log := st.Log(ctx, t, d)
	switch {
	case tc.reason == "" && d.Status != "succeeded", tc.reason != "" && (d.Status != "failed" || d.Reason != tc.reason || !strings.Contains(log, tc.says)):
		t.Fatalf("%+v\n%s", d, log)
	case tc.reason == "" && strings.Count(log, "[secret]") < 7:
		t.Errorf("too few secrets were masked, so the job did not show them:\n%s", log)
	}
	s.look("the deployment's log", []byte(log))
	for _, path := range []string{
		st.Path("settings"), st.Path(d.ID), st.Path(d.ID) + "/updates", strings.TrimSuffix(st.Path(""), "/"),
		"/api/orgs/" + w.Server.Organization + "/agent-pools", "/api/orgs/" + w.Server.Organization + "/agent-pools/" + w.Pool.ID,
		"/api/stacks/" + st.Name, "/api/stacks/" + st.Name + "/export", "/api/stacks/" + st.Name + "/updates",
		st.Path(d.ID) + "/logs?job=0&step=1&offset=0&count=400", st.Path(d.ID) + "/logs?job=0&step=2&offset=0&count=400",
	} {
		var answer json.RawMessage
		must.OK(t, w.Server.Call(ctx, http.MethodGet, path, nil, &answer))
		s.look(path, answer)
	}
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = harness.Until(waiting, func() (bool, error) { // the agent has removed the job's files
		left, err := filepath.Glob(filepath.Join(filepath.Dir(agent.LogFile), "state", "instances", "*", "jobs", "*"))
		return len(left) == 0, err
	})
	if err != nil {
		t.Errorf("the agent keeps the job: %v", err)
	}
	if err := agent.Process.Stop(syscall.SIGTERM, patience); err != nil { // stop removals during the search
		t.Fatal(err)
	}
	s.lookInto(filepath.Dir(agent.LogFile))
	s.look("the server's log", harness.Read(t, w.Server.LogFile))
	s.lookInto(w.Server.DataDir, secretPlace{"admin-token", "admin token"}, secretPlace{"master-key", "master key"})
}

// lookInside searches while the job runs, and then resumes it.
func (tc leak) lookInside(ctx context.Context, t *testing.T, s *secrets, w *harness.Site, st *harness.Stack, d harness.Deployment, engineHost string) {
	var access string
	var pid int
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := harness.Until(waiting, func() (bool, error) {
		if now, err := st.Get(ctx, d); err != nil || now.Status == "failed" {
			return true, err
		}
		access, pid = variableOf(d.ID, "PULUMI_ACCESS_TOKEN")
		return pid != 0 && strings.Contains(st.Log(ctx, t, d), "PULUMI_CI_BUILD_ID="+d.ID), nil
	})
	if err != nil || pid == 0 {
		t.Fatalf("the job does not reach its second command: %v\n%s", err, st.Log(ctx, t, d))
	}
	s.plant("access token", access)
	agentDir := filepath.Dir(w.Agents[len(w.Agents)-1].LogFile)
	entries, err := filepath.Glob(filepath.Join(agentDir, "state", "instances", "*", "jobs", "*.json"))
	if err != nil || len(entries) != 1 {
		t.Fatalf("the journal has %v, %v", entries, err)
	}
	var entry struct {
		Claim struct {
			JobToken string `json:"jobToken"`
		} `json:"claim"`
	}
	must.OK(t, json.Unmarshal(harness.Read(t, entries[0]), &entry))
	s.plant("job token", entry.Claim.JobToken)
	s.lookInto(agentDir,
		// For the agent's next process, which resumes the job.
		secretPlace{"state/instances/*/jobs/*.json", "job token"},
		// Written by the CLI at a login.
		secretPlace{"state/processes/*/job/pulumi-credentials/credentials.json", "access token"},
	)
	if engineHost != "" {
		tc.lookAtEngine(ctx, t, s, engineHost)
	}
	var last error
	err = harness.Until(waiting, func() (bool, error) { // the shell's children come and go, and fail in various ways
		_, pid := variableOf(d.ID, "PULUMI_ACCESS_TOKEN")
		last = os.WriteFile(filepath.Join("/proc", strconv.Itoa(pid), "root", "tmp", "go-"+d.ID), nil, 0o600)
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("the job cannot be resumed: %v, %v", err, last)
	}
	if engineHost == "" {
		t.Cleanup(func() { _ = os.Remove("/tmp/go-" + d.ID) })
	}
}

func (tc leak) lookAtEngine(ctx context.Context, t *testing.T, s *secrets, host string) {
	engine := must.Get(client.New(client.WithHost(host)))(t)
	defer engine.Close()
	list, err := engine.ContainerList(ctx, client.ContainerListOptions{All: true})
	if err != nil || len(list.Items) == 0 {
		t.Fatalf("the engine has %d containers, %v", len(list.Items), err)
	}
	look := func(what string, answer any, err error) {
		text, jsonErr := json.Marshal(answer)
		if err != nil || jsonErr != nil {
			t.Fatalf("%s: %v, %v", what, err, jsonErr)
		}
		s.look(what+" as the engine reports it", text)
	}
	look("the list of containers", list, nil)
	for _, c := range list.Items {
		found, err := engine.ContainerInspect(ctx, c.ID, client.ContainerInspectOptions{})
		look("the container", found, err)
		top, err := engine.ContainerTop(ctx, c.ID, client.ContainerTopOptions{})
		look("the container's processes", top, err)
	}
	volumes, err := engine.VolumeList(ctx, client.VolumeListOptions{})
	look("the list of volumes", volumes, err)
	images, err := engine.ImageList(ctx, client.ImageListOptions{All: true})
	look("the list of images", images, err)
}

// TestFaultErrorsHoldNoSecrets starts agents that cannot work and searches their logs and the
// server's.
func TestFaultErrorsHoldNoSecrets(t *testing.T) {
	ctx := t.Context()
	w := harness.StartSite(t, "", "--log-level", "debug")
	w.AgentArgs = []string{"--debug"}
	must.OK(t, w.MakePool(ctx))
	refusing := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		http.Error(rw, "who are you?", http.StatusProxyAuthRequired)
	}))
	defer refusing.Close()
	talking := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		http.Error(rw, "I do not know "+r.Header.Get("Authorization"), http.StatusForbidden)
	}))
	defer talking.Close()
	proxy := "http://proxyuser:" + proxySecret + "@" + strings.TrimPrefix(refusing.URL, "http://")
	for _, tc := range []struct {
		name, token, url string
		env              []string
		says             string
	}{
		{"unknown token", "pul-wrong-0123456789abcdef", w.Server.URL, nil, "401"},
		{"server that repeats the token", "pul-wrong-0123456789abcdef", talking.URL, nil, "403"},
		{"token of another kind", w.Server.Token, w.Server.URL, nil, "403"},
		{"proxy that refuses", w.Pool.Token, "http://server.example", []string{"HTTP_PROXY=" + proxy}, "407"},
		{"proxy that refuses TLS", w.Pool.Token, "https://server.example", []string{"HTTPS_PROXY=" + proxy}, ""},
		{"proxy that cannot be reached", w.Pool.Token, "http://server.example", []string{"HTTP_PROXY=http://proxyuser:" + proxySecret + "@127.0.0.1:9"}, "proxy"},
		{"proxy that cannot be parsed", w.Pool.Token, "http://server.example", []string{"HTTP_PROXY=http://proxyuser:" + proxySecret + "@127.0.0.1:port"}, "proxy"},
		{"proxy of an unknown kind", w.Pool.Token, "http://server.example", []string{"HTTP_PROXY=ftp://proxyuser:" + proxySecret + "@127.0.0.1:9"}, "proxy"},
		{"url with a password", w.Pool.Token, "http://user:" + proxySecret + "@127.0.0.1:9", nil, "service_url"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSecrets(t)
			s.plant("token", tc.token)
			s.plant("proxy password", proxySecret)
			w.AgentURL = tc.url
			before := w.Pool.Token
			w.Pool.Token = tc.token
			agent, err := w.LaunchAgent(ctx, "process", map[string]string{"request_retry_count": "0"}, tc.env...)
			w.Pool.Token = before
			if err != nil {
				t.Fatal(err)
			}
			waiting, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			err = harness.Until(waiting, func() (bool, error) {
				log := child.Tail(agent.LogFile, 1000)
				return strings.Contains(log, "level=warn") && strings.Contains(log, tc.says) || ended(agent.Process), nil
			})
			if err != nil {
				t.Errorf("the agent does not report the cause: %v\n%s", err, child.Tail(agent.LogFile, 20))
			}
			_ = agent.Process.Stop(syscall.SIGTERM, 15*time.Second) // some have already ended
			if log := child.Tail(agent.LogFile, 1000); !strings.Contains(log, tc.says) {
				t.Errorf("the agent does not report the cause:\n%s", log)
			}
			s.lookInto(filepath.Dir(agent.LogFile))
			s.look("the server's log", harness.Read(t, w.Server.LogFile))
		})
	}
}
