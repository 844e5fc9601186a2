package providers

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/esc/wire"
)

// adapter is a service of an organization, which answers with its own body.
type adapter struct {
	*httptest.Server
	status int
	header map[string]string
	body   string

	request *http.Request
	sent    []byte
}

func newAdapter(s *site) *adapter {
	a := &adapter{status: http.StatusOK, header: map[string]string{}}
	a.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.request = r
		a.sent, _ = io.ReadAll(r.Body)
		for name, value := range a.header {
			w.Header().Set(name, value)
		}
		w.WriteHeader(a.status)
		_, _ = io.WriteString(w, a.body)
	}))
	s.t.Cleanup(a.Close)
	s.roots.AddCert(a.Certificate())
	return a
}

func TestExternal(t *testing.T) {
	s := newSite(t, "127.0.0.0/8")
	a := newAdapter(s)
	a.body = `{"key":"value","list":[1,true,null,{"deep":"x"}]}`
	address := a.URL + "/secrets?of=app"
	v := must.Get(s.open("external", `{"url":"`+address+`","request":{"b":[1.50,"<x>"],"a":null}}`))(t)
	if string(a.sent) != `{"a":null,"b":[1.50,"\u003cx\u003e"]}` || a.request.Method != http.MethodPost || a.request.Header.Get("Content-Type") != "application/json" {
		t.Errorf("the adapter got %s %v: %s", a.request.Method, a.request.Header, a.sent)
	}
	c := s.claims(strings.TrimPrefix(a.request.Header.Get("Authorization"), "Bearer "))
	sum := sha256.Sum256(a.sent)
	for name, want := range map[string]any{
		"aud": address, "sub": "pulumi:environments:org:acme:env:app/prod", "org": "acme", "current_env": "app/prod", "trigger_user": "ann",
		"body_hash": "sha256-" + base64.StdEncoding.EncodeToString(sum[:]),
	} {
		if c[name] != want {
			t.Errorf("the claim %s is %v, want %v", name, c[name], want)
		}
	}
	if c["exp"].(float64)-c["iat"].(float64) != 300 {
		t.Errorf("the token is valid from %v to %v", c["iat"], c["exp"])
	}
	if s.secretText(v, "response", "key") != "value" {
		t.Errorf("the response is %+v", v)
	}
	v = must.Get(s.open("external", `{"url":"`+a.URL+`","secret":false}`))(t)
	text := string(must.Get(json.Marshal(v))(t))
	if string(a.sent) != "{}" || strings.Contains(text, "secret") || !strings.Contains(text, `"deep":{"value":"x"`) {
		t.Errorf("%s returned %s", a.sent, text)
	}
	// The remote end controls the response.
	for name, attack := range map[string]struct {
		status int
		header map[string]string
		body   string
		want   string
	}{
		"an error":        {500, nil, `{"error":"planted"}`, "status 500"},
		"no success":      {204, nil, "", "status 204"},
		"a redirect":      {302, map[string]string{"Location": "https://169.254.169.254/planted"}, `{}`, "responded with a redirect"},
		"a redirect home": {307, map[string]string{"Location": a.URL + "/planted"}, `{}`, "responded with a redirect"},
		"no JSON":         {200, nil, `<html>planted`, "expected form"},
		"no object":       {200, nil, `["planted"]`, "expected form"},
		"two documents":   {200, nil, `{"a":"planted"} {}`, "expected form"},
		"cut off":         {200, nil, `{"a":"planted"`, "expected form"},
		"too long":        {200, nil, `{"a":"` + strings.Repeat("planted", 200_000) + `"}`, "too large"},
		"too many":        {200, nil, `{"planted":[` + strings.Repeat("0,", 25_000) + `0]}`, "expected form"},
		"too deep":        {200, nil, `{"planted":` + strings.Repeat("[", 500_000), "expected form"},
		"too deep, whole": {200, nil, `{"planted":` + strings.Repeat("[", 60) + strings.Repeat("]", 60) + "}", "expected form"},
	} {
		a.status, a.header, a.body = attack.status, attack.header, attack.body
		t.Run(name, func(*testing.T) { s.refuses("external", `{"url":"`+a.URL+`"}`, attack.want) })
	}
	a.status, a.header, a.body = 200, nil, `{}`
	for url, want := range map[string]string{
		strings.Replace(a.URL, "https", "http", 1):          "must be an https URL",
		strings.Replace(a.URL, "https://", "https://u@", 1): "must be an https URL",
		a.URL + "/#planted":                                 "must be an https URL",
		a.URL + "/a b":                                      "must be an https URL",
		"HTTPS" + strings.TrimPrefix(a.URL, "https"):        "must be an https URL",
		"file:///etc/passwd":                                "must be an https URL",
		"https:planted":                                     "must be an https URL",
		"":                                                  "url is missing",
	} {
		s.refuses("external", `{"url":"`+url+`"}`, want)
	}
	s.refuses("external", `{"url":"`+a.URL+`","request":"planted"}`, "request must be an object")
	s.refuses("external", `{"url":"`+a.URL+`","request":{"a":"`+strings.Repeat("planted", 40_000)+`"}}`, "of at most 256 KiB")
	s.refuses("external", `{"url":"`+a.URL+`","planted":1}`, "unknown input")
}

// TestForbiddenAddresses checks that all providers with an address of the author's choice call what webhooks may call.
func TestForbiddenAddresses(t *testing.T) {
	s := newSite(t, "")
	a := newAdapter(s)
	a.body = `{}`
	for _, address := range []string{
		a.URL, strings.Replace(a.URL, "127.0.0.1", "localhost", 1), strings.Replace(a.URL, "127.0.0.1", "[::ffff:127.0.0.1]", 1),
		"https://169.254.169.254", "https://[fd00:ec2::254]", "https://10.0.0.1", "https://[::1]:1", "https://0.0.0.0", "https://100.100.100.200",
	} {
		for provider, inputs := range map[string]string{
			"external":      `{"url":"%s"}`,
			"vault-login":   `{"address":"%s","jwt":{"role":"r"}}`,
			"vault-secrets": `{"login":{"address":"%s","token":"planted"},"read":{"a":{"path":"b"}}}`,
		} {
			s.refuses(provider, fmt.Sprintf(inputs, address), "it cannot be reached, or its address is not public")
		}
	}
	if a.request != nil {
		t.Error("a request reached this machine")
	}
	// Not even if the operator permits all networks.
	s = newSite(t, "0.0.0.0/0")
	s.refuses("external", `{"url":"https://169.254.169.254/latest/meta-data"}`, "cannot be reached")
}

func TestVault(t *testing.T) {
	s := newSite(t, "127.0.0.0/8")
	a := newAdapter(s)
	a.body = `{"auth":{"client_token":"hvs.session","policies":["planted"]}}`
	v := must.Get(s.open("vault-login", `{"address":"`+a.URL+`/","namespace":"admin/team","jwt":{"role":"reader","mount":"team/jwt"}}`))(t)
	var sent map[string]any
	must.OK(t, json.Unmarshal(a.sent, &sent))
	c := s.claims(sent["jwt"].(string))
	if a.request.URL.Path != "/v1/auth/team/jwt/login" || a.request.Header.Get("X-Vault-Namespace") != "admin/team" || sent["role"] != "reader" ||
		c["aud"] != "acme" || c["sub"] != "pulumi:environments:org:acme:env:app/prod" || c["env"] != "app/prod" {
		t.Errorf("Vault got %s %v: %s, with %v", a.request.URL, a.request.Header, a.sent, c)
	}
	if s.secretText(v, "token") != "hvs.session" || v.Value.(map[string]wire.Value)["namespace"].Value != "admin/team" {
		t.Errorf("the session is %+v", v)
	}
	must.Get(s.open("vault-login", `{"address":"`+a.URL+`","token":{"token":"parent","displayName":"esc","maxTtl":"30m","metadata":{"team":"core"},"policies":["kv"]}}`))(t)
	if want := `{"display_name":"esc","explicit_max_ttl":"30m0s","meta":{"team":"core"},"policies":["kv"]}`; string(a.sent) != want || a.request.Header.Get("X-Vault-Token") != "parent" || a.request.URL.Path != "/v1/auth/token/create" {
		t.Errorf("Vault got %s %v: %s", a.request.URL, a.request.Header, a.sent)
	}

	a.body = `{"data":{"data":{"user":"u","password":"p"},"metadata":{"version":1}}}`
	read := func(path, field string) (wire.Value, error) {
		return s.open("vault-secrets", `{"login":{"address":"`+a.URL+`","token":"hvs.session"},"read":{"db":{"path":"`+path+`","field":"`+field+`"}}}`)
	}
	v = must.Get(read("secret/data/a pp?x", ""))(t)
	if s.secretText(v, "db", "data", "password") != "p" || a.request.Method != http.MethodGet || a.request.URL.EscapedPath() != "/v1/secret/data/a%20pp%3Fx" {
		t.Errorf("%s returned %+v", a.request.URL, v)
	}
	if v = must.Get(read("/secret/data/app", "password"))(t); s.secretText(v, "db") != "p" {
		t.Errorf("a field of version 2 is %+v", v)
	}
	a.body = `{"data":{"password":"one"}}`
	if v = must.Get(read("kv/app", "password"))(t); s.secretText(v, "db") != "one" {
		t.Errorf("a field of version 1 is %+v", v)
	}
	if _, err := read("kv/app", "planted"); err == nil || strings.Contains(err.Error(), "planted") || strings.Contains(err.Error(), "one") {
		t.Errorf("a missing field: %v", err)
	}
	if _, err := read("kv/../../sys/raw", ""); err == nil || !strings.Contains(err.Error(), "must not contain . and ..") {
		t.Errorf("a path with dots: %v", err)
	}
	a.status, a.body = 403, `{"errors":["planted"]}`
	if _, err := read("kv/app", ""); err == nil || !strings.Contains(err.Error(), "status 403") || strings.Contains(err.Error(), "planted") {
		t.Errorf("a refusal: %v", err)
	}
	a.status = 200
	for _, body := range []string{`{"data":null}`, `{"data":"planted"}`, `{"errors":["planted"]}`, `planted`} {
		a.body = body
		if _, err := read("kv/app", ""); err == nil || strings.Contains(err.Error(), "planted") {
			t.Errorf("%s: %v", body, err)
		}
	}
	a.body = `{"auth":{"client_token":"planted\r\nX-Other: header"}}`
	s.refuses("vault-login", `{"address":"`+a.URL+`","jwt":{"role":"r"}}`, "expected form")
	for inputs, want := range map[string]string{
		`{"address":"` + a.URL + `/planted","jwt":{"role":"r"}}`:                           "address must be an https URL",
		`{"address":"http://127.0.0.1:8200","jwt":{"role":"r"}}`:                           "address must be an https URL",
		`{"address":"` + a.URL + `?planted","jwt":{"role":"r"}}`:                           "address must be an https URL",
		`{"address":"` + a.URL + `","jwt":{"role":"r","mount":"../planted"}}`:              "jwt.mount does not have the form",
		`{"address":"` + a.URL + `","namespace":"planted\n","jwt":{"role":"r"}}`:           "namespace does not have the form",
		`{"address":"` + a.URL + `","jwt":{}}`:                                             "jwt.role is missing",
		`{"address":"` + a.URL + `","jwt":{"role":"r"},"token":{"token":"planted"}}`:       "either jwt or token",
		`{"address":"` + a.URL + `","token":{"token":"planted","metadata":{"planted":1}}}`: "token.metadata must be an object",
	} {
		s.refuses("vault-login", inputs, want)
	}
	s.refuses("vault-secrets", `{"login":{"address":"`+a.URL+`","token":"x"},"read":{"planted":1}}`, "path is missing")
	s.refuses("vault-secrets", `{"login":"planted","read":{}}`, "login must be an object")
	a.request = nil
	s.refuses("vault-secrets", `{"login":{"address":"`+a.URL+`","token":"x"},"read":{"a":{"path":"b"}}}`, "only environments may do", func(c *Call) { c.Current = Environment{} })
	if a.request != nil {
		t.Error("a definition without a name called Vault")
	}
}

// TestUsage uses up what one evaluation may have.
func TestUsage(t *testing.T) {
	s := newSite(t, "127.0.0.0/8")
	a := newAdapter(s)
	a.body = `{"a":"` + strings.Repeat("x", 900<<10) + `"}`
	for name, c := range map[string]struct {
		used Usage
		want string
	}{
		"opens": {Usage{opens: maxOpens}, "can open at most 50 providers"},
		"calls": {Usage{calls: maxCalls}, "at most 100 calls"},
		"bytes": {Usage{bytes: maxBytes - 1000}, "at most 4 MiB"},
	} {
		t.Run(name, func(*testing.T) {
			s.refuses("external", `{"url":"`+a.URL+`"}`, c.want, func(call *Call) { call.Used = &c.used })
		})
	}
}
