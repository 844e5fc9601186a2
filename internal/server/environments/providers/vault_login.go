package providers

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"time"

	"workflowagent/internal/esc/wire"
	"workflowagent/internal/server/outbound"
)

var vaultLogin = Provider{
	Name:        "vault-login",
	Description: "Logs in to HashiCorp Vault: with an identity token, or with a token that creates another one.",
	Inputs: encode(objectOf("the server, and either jwt or token", []string{"address"}, fields{
		"address":   textOf("the https URL of Vault, without a path"),
		"namespace": textOf("the namespace, of Vault Enterprise"),
		"jwt": objectOf("the login with an identity token", []string{"role"}, fields{
			"role":              textOf("the role of the auth method"),
			"mount":             textOf("the path of the auth method; jwt by default"),
			"subjectAttributes": textsOf(subjectAttributes),
		}),
		"token": objectOf("the login with a token, of which a child is created", []string{"token"}, fields{
			"token":       textOf("the parent token"),
			"displayName": textOf("the display name of the child; pulumi by default"),
			"maxTtl":      textOf("the maximum lifetime of the child"),
			"metadata":    mapOf("metadata of the child", map[string]any{"type": "string"}),
			"policies":    textsOf("the policies of the child"),
		}),
	})),
	Outputs: encode(objectOf("the session, as vault-secrets needs it", []string{"address", "token"}, fields{
		"address":   textOf("the URL of Vault"),
		"namespace": textOf("the namespace, if any"),
		"token":     secretOf("the token of the session"),
	})),
	open:  openVaultLogin,
	calls: true,
}

var (
	vaultPath  = newForm(`^[A-Za-z0-9_.-]{1,100}(/[A-Za-z0-9_.-]{1,100}){0,9}/?$`)
	vaultToken = newForm(`^[!-~]+$`)
)

// vault is a session.
type vault struct{ address, namespace, token string }

// vaultOf reads the address and the namespace of a session.
func vaultOf(in *object) vault {
	v := vault{address: in.required("address"), namespace: in.text("namespace")}
	u, err := url.Parse(v.address)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		in.fail("%saddress must be an https URL without a path, such as https://vault.example.com:8200", in.path)
	}
	if v.namespace != "" && !vaultPath.MatchString(v.namespace) {
		in.fail("%snamespace does not have the form of admin/team", in.path)
	}
	return v
}

// call calls Vault. The path has no slash at its beginning, and is escaped.
func (v vault) call(ctx context.Context, c *Call, method, path string, body any) (json.RawMessage, error) {
	header := map[string]string{"Accept": "application/json", "X-Vault-Request": "true"}
	if v.namespace != "" {
		header["X-Vault-Namespace"] = v.namespace
	}
	if v.token != "" {
		header["X-Vault-Token"] = v.token
	}
	call := outbound.Call{Method: method, URL: strings.TrimRight(v.address, "/") + "/v1/" + path, Header: header}
	if body != nil {
		var err error
		if call.Body, err = json.Marshal(body); err != nil {
			return nil, c.unexpected("the definition")
		}
		header["Content-Type"] = "application/json"
	}
	answer, err := c.do(ctx, call)
	if err != nil {
		return nil, err
	}
	if answer.Status != 200 {
		return nil, c.refused("Vault", answer.Status, vaultAdvice[answer.Status])
	}
	return answer.Body, nil
}

// vaultAdvice explains the statuses of Vault.
var vaultAdvice = map[int]string{
	400: "the role, the mount or the claims of the identity token are not accepted",
	403: "the token or the identity may not do that, or the mount does not exist",
	404: "the path or the namespace does not exist",
	503: "Vault is sealed or in maintenance",
}

func openVaultLogin(ctx context.Context, c *Call) (wire.Value, error) {
	in := c.inputs()
	v := vaultOf(in)
	jwt, parent := in.exclusive("jwt", "token")
	if err := in.done(); err != nil {
		return wire.Value{}, err
	}
	var path string
	body := map[string]any{}
	if jwt != nil {
		mount := jwt.text("mount")
		if mount == "" {
			mount = "jwt"
		}
		if !vaultPath.MatchString(mount) || hasDots(mount) {
			jwt.fail("jwt.mount does not have the form of jwt or team/jwt")
		}
		body["role"] = jwt.required("role")
		attributes := jwt.texts("subjectAttributes")
		if err := jwt.done(); err != nil {
			return wire.Value{}, err
		}
		token, err := c.token(ctx, c.audience(""), attributes, exchangeLifetime, nil)
		if err != nil {
			return wire.Value{}, err
		}
		body["jwt"], path = token, "auth/"+strings.TrimSuffix(mount, "/")+"/login"
	} else {
		v.token = parent.like("token", vaultToken, "a token")
		childOf(parent, body)
		path = "auth/token/create"
		if err := parent.done(); err != nil {
			return wire.Value{}, err
		}
	}
	answer, err := v.call(ctx, c, "POST", path, body)
	if err != nil {
		return wire.Value{}, err
	}
	var got struct {
		Auth struct {
			Token string `json:"client_token"`
		} `json:"auth"`
	}
	if !decode(answer, &got) || !vaultToken.MatchString(got.Auth.Token) {
		return wire.Value{}, c.unexpected("Vault")
	}
	out := map[string]wire.Value{"address": plain(v.address), "token": secret(got.Auth.Token)}
	if v.namespace != "" {
		out["namespace"] = plain(v.namespace)
	}
	return result(out), nil
}

// childOf adds what a child of a token must have.
func childOf(parent *object, body map[string]any) {
	body["display_name"] = "pulumi"
	if name := parent.text("displayName"); name != "" {
		body["display_name"] = name
	}
	if longest := parent.duration("maxTtl", time.Second, 365*24*time.Hour, 0); longest > 0 {
		body["explicit_max_ttl"] = longest.String()
	}
	if list := parent.texts("policies"); list != nil {
		body["policies"] = list
	}
	if metadata := parent.object("metadata"); metadata != nil {
		texts := map[string]string{}
		for name, value := range metadata.values {
			text, ok := value.Value.(string)
			if !ok || len(texts) == maxTexts {
				parent.fail("token.metadata must be an object of at most %d texts", maxTexts)
			}
			texts[name] = text
		}
		body["meta"] = texts
	}
}

// hasDots reports whether a path has a part that means another path.
func hasDots(path string) bool {
	for part := range strings.SplitSeq(path, "/") {
		if part == "." || part == ".." {
			return true
		}
	}
	return false
}
