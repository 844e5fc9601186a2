package providers

import (
	"context"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strings"

	"workflowagent/internal/esc/wire"
	"workflowagent/internal/server/fault"
)

var vaultSecrets = Provider{
	Name:        "vault-secrets",
	Description: "Reads secrets from HashiCorp Vault.",
	Inputs: encode(objectOf("the session, and what it reads", []string{"login", "read"}, fields{
		"login": objectOf("the session, usually ${…} of vault-login", []string{"address", "token"}, fields{
			"address":   textOf("the https URL of Vault, without a path"),
			"namespace": textOf("the namespace, of Vault Enterprise"),
			"token":     textOf("the token of the session"),
		}),
		"read": mapOf("what to read, by names of your choice", objectOf("a secret", []string{"path"}, fields{
			"path":  textOf("the path, such as secret/data/app"),
			"field": textOf("the field of the data; all fields by default"),
		})),
	})),
	Outputs: encode(mapOf("the data, by the names in read", true)),
	open:    openVaultSecrets,
	calls:   true,
}

func openVaultSecrets(ctx context.Context, c *Call) (wire.Value, error) {
	in := c.inputs()
	login, read := in.object("login"), in.object("read")
	if login == nil || read == nil {
		in.fail("login and read are needed")
	}
	if err := in.done(); err != nil {
		return wire.Value{}, err
	}
	v := vaultOf(login)
	v.token = login.like("token", vaultToken, "a token")
	if err := login.done(); err != nil {
		return wire.Value{}, err
	}
	out := map[string]wire.Value{}
	for _, name := range slices.Sorted(maps.Keys(read.values)) {
		members, _ := read.values[name].Value.(map[string]wire.Value)
		one := &object{provider: c.provider, path: "read.*.", values: members, problem: in.problem} // the name can be a secret
		path, field := strings.Trim(one.required("path"), "/"), one.text("field")
		if hasDots(path) {
			one.fail("read.*.path must not contain . and .. as parts")
		}
		if err := one.done(); err != nil {
			return wire.Value{}, err
		}
		answer, err := v.call(ctx, c, "GET", escaped(path), nil)
		if err != nil {
			return wire.Value{}, err
		}
		if out[name], err = c.dataOf(answer, field); err != nil {
			return wire.Value{}, err
		}
	}
	return wire.Value{Value: out, Secret: true}, nil
}

// escaped returns a path whose parts contain no other meaning.
func escaped(path string) string {
	parts := strings.Split(path, "/")
	for i, part := range parts {
		parts[i] = url.PathEscape(part)
	}
	return strings.Join(parts, "/")
}

// dataOf returns the data of a response, or a field of it. Version 2 of the key-value engine has the fields below another data.
func (c *Call) dataOf(answer []byte, field string) (wire.Value, error) {
	var got struct {
		Data json.RawMessage `json:"data"`
	}
	if !decode(answer, &got) || got.Data == nil {
		return wire.Value{}, c.unexpected("Vault")
	}
	data, err := valueOf(got.Data, true)
	members, ok := data.Value.(map[string]wire.Value)
	if err != nil || !ok {
		return wire.Value{}, c.unexpected("Vault")
	}
	if field == "" {
		return data, nil
	}
	if value, ok := members[field]; ok {
		return value, nil
	}
	if _, versioned := members["metadata"]; versioned {
		inner, _ := members["data"].Value.(map[string]wire.Value)
		if value, ok := inner[field]; ok {
			return value, nil
		}
	}
	return wire.Value{}, fault.Invalid("the provider %s: a secret does not have the field that read names", c.provider)
}
