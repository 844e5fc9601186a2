package main

import (
	"context"
	"slices"
)

// wireNames are the members of deployment settings whose names differ in programs.
var wireNames = map[string]string{
	"agentPoolId": "agentPoolID",
	"github":      "gitHub",
	"username":    "userName", // of basicAuth
}

var gitSecrets = []string{"accessToken", "sshPrivateKey", "password"}

var settingsInputs = []string{"agentPoolId", "cacheOptions", "executorContext", "github", "operationContext", "sourceContext", "vcs"}

func deploymentSettings() kind {
	at := func(r record) string { return stackPath(r) + "/deployments/settings" }
	save := func(ctx context.Context, c *client, in record) error {
		return c.call(ctx, put, at(in), toWire(in.pick(settingsInputs...), ""), nil)
	}
	inputs := withStack(map[string]string{})
	for _, name := range settingsInputs {
		inputs[name] = "any"
	}
	inputs["agentPoolId"] = "string"
	return kind{
		inputs: inputs, required: onStack, fixed: onStack,
		create: func(ctx context.Context, c *client, in record) (string, object, error) {
			return path(in.text("organization"), in.text("project"), in.text("stack")), nil, save(ctx, c, in)
		},
		read: func(ctx context.Context, c *client, state record) (object, error) {
			var out object
			if err := c.call(ctx, get, at(state), nil, &out); err != nil {
				return nil, err
			}
			got := object{}
			for _, name := range settingsInputs {
				wire := name
				if w, ok := wireNames[name]; ok {
					wire = w
				}
				got[name] = fromWire(state[name], out[wire])
			}
			return got, nil
		},
		update: func(ctx context.Context, c *client, _, in record) error { return save(ctx, c, in) },
		remove: func(ctx context.Context, c *client, state record) error { return c.call(ctx, del, at(state), nil, nil) },
	}
}

// toWire renames members. Credentials of git are secrets even if the program does not mark them.
func toWire(v any, in string) any {
	o, ok := v.(object)
	if !ok {
		return v
	}
	out := object{}
	for name, member := range o {
		wire := name
		if w, ok := wireNames[name]; ok && (name != "username" || in == "basicAuth") {
			wire = w
		}
		text, isText := member.(string)
		if isText && slices.Contains(gitSecrets, name) {
			out[wire] = object{"secret": text}
		} else {
			out[wire] = toWire(member, name)
		}
	}
	return out
}

// fromWire returns a member of the server's settings as the program writes it. A secret comes back
// as an object with a ciphertext, and keeps the program's value. Text in its place is not secret.
func fromWire(program, server any) any {
	o, ok := server.(object)
	if !ok {
		return server
	}
	if _, secret := o["ciphertext"]; secret {
		return program
	}
	if _, secret := o["isSecret"]; secret {
		return "" // the stock provider does not understand this form
	}
	known, _ := program.(object)
	out := object{}
	for wire, member := range o {
		name := wire
		if wire == "userName" {
			name = "username"
		}
		out[name] = fromWire(known[name], member)
	}
	return out
}
