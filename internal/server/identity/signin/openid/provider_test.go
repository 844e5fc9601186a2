package openid

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/oauth2"

	"workflowagent/internal/server/outbound"
)

// published serves a configuration that change can change, and counts the requests.
func published(t *testing.T, change func(doc map[string]any)) (*provider, *atomic.Int32) {
	t.Helper()
	var calls atomic.Int32
	s := httptest.NewUnstartedServer(nil)
	url := "http://" + s.Listener.Addr().String()
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		doc := map[string]any{"issuer": url, "authorization_endpoint": url + "/a?tenant=x", "token_endpoint": url + "/t", "jwks_uri": url + "/k"}
		change(doc)
		_ = json.NewEncoder(w).Encode(doc)
	})
	s.Start()
	t.Cleanup(s.Close)
	return &provider{Config: Config{Issuer: url, SecretFile: "secret"}, client: &outbound.Client{Reach: outbound.Reach{Anywhere: true}}}, &calls
}

func TestDiscover(t *testing.T) {
	p, calls := published(t, func(map[string]any) {})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := p.discover(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	before := calls.Load()
	f, err := p.discover(t.Context())
	if err != nil || calls.Load() != before || f.userInfo || f.endpoint.AuthStyle != oauth2.AuthStyleInHeader {
		t.Errorf("discover = %+v, %v after %d calls", f, err, calls.Load())
	}
}

func TestDiscoverRefuses(t *testing.T) {
	for want, change := range map[string]func(map[string]any){
		"names a different issuer":        func(doc map[string]any) { doc["issuer"] = "https://evil.example" },
		"must be an absolute URL":         func(doc map[string]any) { delete(doc, "token_endpoint") },
		"must begin with https://":        func(doc map[string]any) { doc["jwks_uri"] = "http://id.example.com/k" },
		"lists no asymmetric algorithm":   func(doc map[string]any) { doc["id_token_signing_alg_values_supported"] = []string{"HS256", "none"} },
		"must not contain a user":         func(doc map[string]any) { doc["userinfo_endpoint"] = "https://u@id.example.com" },
		"is not a valid JSON object":      func(doc map[string]any) { doc["issuer"] = 7 },
		"must begin with https:// (http:": func(doc map[string]any) { doc["authorization_endpoint"] = "javascript://x/%0aalert(1)" },
	} {
		p, _ := published(t, change)
		if _, err := p.discover(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	// A remote provider must not make the server call its own machine.
	p := &provider{Config: Config{Issuer: "https://id.example.com"}}
	if err := p.checkEndpoint("http://127.0.0.1:2375/t"); err == nil {
		t.Error("an endpoint on the server's machine is accepted")
	}
}

func TestStyle(t *testing.T) {
	for _, tt := range []struct {
		secret  string
		methods []string
		want    oauth2.AuthStyle
	}{
		{"", nil, oauth2.AuthStyleInParams},
		{"s", nil, oauth2.AuthStyleInHeader},
		{"s", []string{"client_secret_post", "client_secret_basic"}, oauth2.AuthStyleInHeader},
		{"s", []string{"client_secret_post"}, oauth2.AuthStyleInParams},
	} {
		p := &provider{Config: Config{SecretFile: tt.secret}}
		if got := p.style(tt.methods); got != tt.want {
			t.Errorf("style(%v) with the secret %q = %v, want %v", tt.methods, tt.secret, got, tt.want)
		}
	}
}

func TestRoles(t *testing.T) {
	p := &provider{Config: Config{GroupsClaim: "groups", AllowEveryone: true, Roles: []Role{
		{"", "acme", "stack-collaborator"},
		{"a", "acme", "admin"},
		{"m", "acme", "member"},
		{"m", "other", "member"},
	}}}
	for groups, want := range map[string]string{"": "stack-collaborator/", "m": "member/member", "a": "admin/", "m a": "admin/member", "A": "stack-collaborator/"} {
		var list []any
		for g := range strings.FieldsSeq(groups) {
			list = append(list, g)
		}
		e := p.external("s", claims{"groups": list})
		if got := e.Roles["acme"] + "/" + e.Roles["other"]; got != want || len(e.Roles) != 2 {
			t.Errorf("the groups %q give the roles %v, want %s", groups, e.Roles, want)
		}
	}
	if got := (claims{"g": []any{"a", 7, "b"}}).texts("g"); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("the texts are %v", got)
	}
}

func TestTeams(t *testing.T) {
	p := &provider{Config: Config{GroupsClaim: "groups", AllowEveryone: true, Teams: []Team{
		{"m", "other", "core", "member"},
		{"", "acme", "everyone", "member"},
		{"m", "acme", "core", "member"},
		{"a", "acme", "core", "admin"},
	}}}
	if !p.lacks(claims{}) {
		t.Error("the groups are not needed")
	}
	for groups, want := range map[string]string{
		"": "acme/core= acme/everyone=member other/core=", "m": "acme/core=member acme/everyone=member other/core=member",
		"a": "acme/core=admin acme/everyone=member other/core=", "m a": "acme/core=admin acme/everyone=member other/core=member",
	} {
		var list []any
		for g := range strings.FieldsSeq(groups) {
			list = append(list, g)
		}
		var got []string
		for _, team := range p.external("s", claims{"groups": list}).Teams {
			got = append(got, team.Organization+"/"+team.Team+"="+team.Role)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("the groups %q give the teams %v, want %s", groups, got, want)
		}
	}
}
