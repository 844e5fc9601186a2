package plain

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/dev/lab"
	"workflowagent/internal/server/outbound"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/forges/hook"
)

const (
	before = "1111111111111111111111111111111111111111"
	after  = "2222222222222222222222222222222222222222"
)

func sign(body, secret string) vcs.Delivery {
	return vcs.Delivery{
		Header: map[string]string{"x-generic-vcs-signature": "v1=" + hex.EncodeToString(hook.MAC([]byte(secret), []byte(body)))},
		Body:   []byte(body),
	}
}

// TestRow92SignatureWrong checks deliveries with a wrong, a missing or another integration's
// signature.
func TestRow92SignatureWrong(t *testing.T) {
	d := sign(`{"event":"push"}`, "secret")
	for name, tt := range map[string]struct {
		signature string
		secrets   []string
		ok        bool
	}{
		"right":               {d.Header["x-generic-vcs-signature"], []string{"secret"}, true},
		"previous secret":     {d.Header["x-generic-vcs-signature"], []string{"new", "secret"}, true},
		"other integration's": {d.Header["x-generic-vcs-signature"], []string{"other"}, false},
		"no secret":           {d.Header["x-generic-vcs-signature"], nil, false},
		"empty secret":        {sign(string(d.Body), "").Header["x-generic-vcs-signature"], []string{""}, false},
		"missing":             {"", []string{"secret"}, false},
		"other prefix":        {"sha256=" + strings.TrimPrefix(d.Header["x-generic-vcs-signature"], "v1="), []string{"secret"}, false},
		"cut":                 {d.Header["x-generic-vcs-signature"][:20], []string{"secret"}, false},
	} {
		var secrets [][]byte
		for _, s := range tt.secrets {
			secrets = append(secrets, []byte(s))
		}
		err := Forge{}.Verify(vcs.Delivery{Header: map[string]string{"x-generic-vcs-signature": tt.signature}, Body: d.Body}, secrets)
		if (err == nil) != tt.ok || err != nil && !errors.Is(err, vcs.ErrUnverified) {
			t.Errorf("%s: %v", name, err)
		}
	}
	d.Body = []byte(`{"event":"push" }`)
	if err := (Forge{}).Verify(d, [][]byte{[]byte("secret")}); err == nil {
		t.Error("a changed body was accepted")
	}
}

func mustParse(t *testing.T, body string) vcs.Parsed {
	t.Helper()
	parsed, err := Forge{}.Parse(vcs.Delivery{Body: []byte(body)})
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return parsed
}

func TestParse(t *testing.T) {
	parsed := mustParse(t, `{"event":"push","deliveryId":"d-1","before":"`+before+`","commit":"`+after+`","branch":"main",
		"repoUrl":"https://user:secret@Git.example.com/team/app.git","sender":"ada","message":"Fix","changedFiles":["infra/a"]}`)
	if !strings.HasPrefix(parsed.ID, "d-1/") {
		t.Errorf("the id is %s", parsed.ID)
	}
	want := vcs.Parsed{ID: parsed.ID, Events: []vcs.Event{{
		Kind: vcs.KindPush, Repo: vcs.RepoID{ID: "https://git.example.com/team/app", Name: "team/app"}, Ref: "refs/heads/main", Before: before, After: after,
		Files: []string{"infra/a"}, Complete: true, Message: "Fix", Sender: vcs.Account{Name: "ada"},
	}}}
	if diff := cmp.Diff(want, parsed); diff != "" {
		t.Error(diff)
	}
	tag := mustParse(t, `{"event":"tag_push","commit":"`+after+`","tag":"refs/tags/v1","repoUrl":"git@git.example.com:team/app","changedFiles":[]}`).Events[0]
	if tag.Kind != vcs.KindTag || tag.Ref != "refs/tags/v1" || tag.Complete || tag.Repo.ID != "git@git.example.com:team/app" {
		t.Errorf("%+v", tag)
	}
	deleted := mustParse(t, `{"event":"push","commit":"0000000000000000000000000000000000000000","branch":"main","repoUrl":"https://git.example.com/a/b"}`).Events[0]
	if !deleted.Deleted || deleted.After != "" {
		t.Errorf("%+v", deleted)
	}
	if _, err := (Forge{}).Parse(vcs.Delivery{Body: []byte("[]")}); err == nil {
		t.Error("a list was accepted")
	}
}

// TestRow90GenericChangedFiles checks a push with and without changed files.
func TestRow90GenericChangedFiles(t *testing.T) {
	for files, complete := range map[string]bool{`,"changedFiles":["x"]`: true, `,"changedFiles":[]`: true, `,"changedFiles":null`: false, "": false} {
		e := mustParse(t, `{"event":"push","commit":"`+after+`","branch":"main","repoUrl":"https://git.example.com/a/b"`+files+`}`).Events[0]
		if e.Complete != complete {
			t.Errorf("%s: complete %t", files, e.Complete)
		}
	}
}

// TestRow91GenericIgnored checks deliveries that are ignored with a reason.
func TestRow91GenericIgnored(t *testing.T) {
	for body, reason := range map[string]vcs.Reason{
		`{"event":"pull_request"}`: vcs.ReasonUnsupported,
		`{}`:                       vcs.ReasonUnsupported,
		`{"event":"push","commit":"` + after + `","branch":"main","repoUrl":"/etc/passwd"}`:                 vcs.ReasonUnknownRepo,
		`{"event":"push","commit":"` + after + `","branch":"main"}`:                                         vcs.ReasonUnknownRepo,
		`{"event":"push","commit":"abc123","branch":"main","repoUrl":"https://git.example.com/a"}`:          vcs.ReasonUnsupported,
		`{"event":"push","commit":"` + after + `","branch":"","repoUrl":"https://git.example.com/a"}`:       vcs.ReasonUnsupported,
		`{"event":"push","commit":"` + after + `","branch":"--a..b","repoUrl":"https://git.example.com/a"}`: vcs.ReasonUnsupported,
	} {
		if parsed := mustParse(t, body); len(parsed.Events) > 0 || parsed.Ignored.Reason != reason || !strings.HasPrefix(parsed.ID, "sha256:") {
			t.Errorf("%s: %+v", body, parsed)
		}
	}
}

func TestTimestamp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for age, ok := range map[time.Duration]bool{0: true, 14 * time.Minute: true, -14 * time.Minute: true, 16 * time.Minute: false, -16 * time.Minute: false} {
			sent, _ := json.Marshal(time.Now().Add(-age))
			parsed := mustParse(t, `{"event":"push","commit":"`+after+`","branch":"main","repoUrl":"https://git.example.com/a","timestamp":`+string(sent)+`}`)
			if (parsed.Ignored.Reason != vcs.ReasonStale) != ok {
				t.Errorf("after %s: %+v", age, parsed)
			}
		}
	})
}

func TestClient(t *testing.T) {
	server, err := lab.StartGitServer(t.Context(), t.TempDir(), lab.GitOptions{Password: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	_, head, err := server.NewRepo(t.Context(), "team/app", map[string]string{"a": "1"})
	if err != nil {
		t.Fatal(err)
	}
	origin, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(origin)
	strict := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.URL.Path, ".git/") { // some servers require the suffix
			http.NotFound(w, r)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	defer strict.Close()
	connection := vcs.Connection{Reach: outbound.Reach{Anywhere: true}, BaseURL: strict.URL + "/team", Credential: vcs.Credential{UserName: "x", Password: "secret"}}
	c, err := Forge{}.Connect(connection)
	if err != nil {
		t.Fatal(err)
	}
	repo, err := c.Find(t.Context(), "app")
	if err != nil || repo.Name != "app.git" || repo.CloneURL != strict.URL+"/team/app.git" || repo.ID != strict.URL+"/team/app" {
		t.Fatalf("%+v, %v", repo, err)
	}
	if found, err := c.Find(t.Context(), "app.git"); err != nil || found != repo {
		t.Errorf("with its suffix: %+v, %v", found, err)
	}
	if got, err := c.Head(t.Context(), repo.RepoID, "refs/heads/main"); got != head {
		t.Errorf("head %s, %v", got, err)
	}
	if got, err := c.Refs(t.Context(), repo.RepoID, []string{"refs/heads/"}); len(got) != 1 || got[0].Commit != head {
		t.Errorf("refs %v, %v", got, err)
	}
	if got, err := c.CloneAuth(t.Context(), repo.RepoID); err != nil || got.Password != "secret" {
		t.Errorf("credential: %v", err)
	}
	for _, name := range []string{"", "../other", "a?b", "/"} {
		if _, err := c.Find(t.Context(), name); err == nil {
			t.Errorf("the name %q was accepted", name)
		}
	}
	if _, err := c.Find(t.Context(), "missing"); !errors.Is(err, vcs.ErrNotFound) {
		t.Errorf("a missing repository: %v", err)
	}
	connection.Credential.Password = "wrong"
	if c, err = (Forge{}).Connect(connection); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Find(t.Context(), "app"); !errors.Is(err, vcs.ErrRefused) {
		t.Errorf("a wrong password: %v", err)
	}
	for _, base := range []string{"", "http://git.example.com", "https://user:pw@git.example.com", "ssh://git@git.example.com", "file:///srv"} {
		if _, err := (Forge{}).Connect(vcs.Connection{BaseURL: base}); err == nil {
			t.Errorf("the base URL %q was accepted", base)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"event":null,"commit":null}`, `{"event":"push","commit":"` + after + `","branch":"main","repoUrl":"https://git.example.com/a/b","changedFiles":[]}`,
		`{"event":"tag_push","commit":1e400}`, `{"event":"push","timestamp":"9999-12-31T00:00:00Z"}`, `[]`, `null`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		parsed, err := Forge{}.Parse(vcs.Delivery{Body: body})
		if err == nil && (parsed.ID == "" || (len(parsed.Events) == 0) == (parsed.Ignored.Reason == "")) {
			t.Errorf("%+v", parsed)
		}
	})
}

// TestNetworksOfServers connects to addresses that are not public.
func TestNetworksOfServers(t *testing.T) {
	for _, address := range []string{"ssh://git@10.1.2.3/team", "ssh://git@127.0.0.1:2222/team", "git@10.1.2.3:team", "https://10.1.2.3/team", "http://127.0.0.1/team"} {
		for _, reach := range []outbound.Reach{{}, {Anywhere: true}} {
			_, err := Forge{}.Connect(vcs.Connection{Reach: reach, BaseURL: address})
			if refused := err != nil && strings.Contains(err.Error(), "cannot be called"); refused == reach.Anywhere {
				t.Errorf("%s, permitted: %t: %v", address, reach.Anywhere, err)
			}
		}
	}
}

// A build system sends the number of its build, which other repositories and builds have, too.
func TestDeliveryIDsOfBuildSystems(t *testing.T) {
	body := func(repo, branch, commit, at string) string {
		return `{"event":"push","deliveryId":"42","repoUrl":"https://git.example/team/` + repo + `","branch":"` + branch + `","commit":"` + commit +
			`","before":"` + before + `","message":"` + at + `"}`
	}
	first := mustParse(t, body("a", "main", after, "10:00")).ID
	if again := mustParse(t, body("a.git", "main", after, "10:01")).ID; again != first {
		t.Errorf("a repeated report has another id: %s, %s", first, again)
	}
	for _, other := range []string{body("b", "main", after, ""), body("a", "dev", after, ""), body("a", "main", strings.Repeat("9", 40), "")} {
		if id := mustParse(t, other).ID; id == first {
			t.Errorf("%s has the id of another report", other)
		}
	}
}
