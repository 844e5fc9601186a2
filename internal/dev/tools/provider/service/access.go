package main

import (
	"context"
	"fmt"
)

func oidcIssuer() kind {
	issuers := func(r record) string { return path("orgs", r.text("organization"), "oidc", "issuers") }
	one := func(r record) string { return issuers(r) + "/" + r.text("issuerId") }
	policies := func(ctx context.Context, c *client, org, issuer string) (id string, list []any, err error) {
		var out struct {
			ID       string
			Policies []any
		}
		err = c.call(ctx, get, path("orgs", org, "auth", "policies", "oidcissuers", issuer), nil, &out)
		return out.ID, out.Policies, err
	}
	apply := func(ctx context.Context, c *client, org, issuer string, in record) error {
		if in["policies"] == nil {
			return nil
		}
		id, _, err := policies(ctx, c, org, issuer)
		if err != nil {
			return err
		}
		return c.call(ctx, patch, path("orgs", org, "auth", "policies", id), object{"policies": in["policies"]}, nil)
	}
	body := func(in record) object {
		o := in.pick("name", "url", "thumbprints")
		if max, ok := in["maxExpirationSeconds"]; ok {
			o["maxExpiration"] = max
		}
		return o
	}
	return kind{
		inputs: map[string]string{
			"organization": "string", "name": "string", "url": "string", "thumbprints": "strings",
			"maxExpirationSeconds": "integer", "policies": "objects",
		},
		required: []string{"organization", "name", "url"},
		fixed:    []string{"organization", "url"},
		outputs:  []string{"issuerId"},
		create: func(ctx context.Context, c *client, in record) (string, object, error) {
			var out struct{ ID string }
			err := c.call(ctx, post, issuers(in), body(in), &out)
			if err == nil {
				err = apply(ctx, c, in.text("organization"), out.ID, in)
			}
			return in.text("organization") + "/" + out.ID, object{"issuerId": out.ID}, err
		},
		read: func(ctx context.Context, c *client, state record) (object, error) {
			var out struct {
				Name, URL     string
				Thumbprints   []any
				MaxExpiration float64
			}
			if err := c.call(ctx, get, one(state), nil, &out); err != nil {
				return nil, err
			}
			_, list, err := policies(ctx, c, state.text("organization"), state.text("issuerId"))
			got := object{"name": out.Name, "url": out.URL, "thumbprints": out.Thumbprints, "maxExpirationSeconds": out.MaxExpiration, "policies": list}
			if state["maxExpirationSeconds"] == nil {
				delete(got, "maxExpirationSeconds")
			}
			return got, err
		},
		update: func(ctx context.Context, c *client, state, in record) error {
			o := body(in)
			delete(o, "url")
			if err := c.call(ctx, patch, one(state), o, nil); err != nil {
				return err
			}
			return apply(ctx, c, state.text("organization"), state.text("issuerId"), in)
		},
		remove: func(ctx context.Context, c *client, state record) error {
			return c.call(ctx, del, one(state), nil, nil)
		},
	}
}

func stack() kind {
	at := func(r record) string {
		return path("stacks", r.text("organizationName"), r.text("projectName"), r.text("stackName"))
	}
	names := []string{"organizationName", "projectName", "stackName"}
	return kind{
		inputs:   map[string]string{"organizationName": "string", "projectName": "string", "stackName": "string", "forceDestroy": "boolean"},
		required: names, fixed: names,
		create: func(ctx context.Context, c *client, in record) (string, object, error) {
			err := c.call(ctx, post, path("stacks", in.text("organizationName"), in.text("projectName")), in.pick("stackName"), nil)
			return in.text("organizationName") + "/" + in.text("projectName") + "/" + in.text("stackName"), nil, err
		},
		read: func(ctx context.Context, c *client, state record) (object, error) {
			var out object
			err := c.call(ctx, get, at(state), nil, &out)
			return object{"organizationName": out["orgName"], "projectName": out["projectName"], "stackName": out["stackName"]}, err
		},
		update: func(context.Context, *client, record, record) error { return nil }, // forceDestroy is not the server's
		remove: func(ctx context.Context, c *client, state record) error {
			query := ""
			if state.flag("forceDestroy") {
				query = "?forceDestroy=true"
			}
			return c.call(ctx, del, at(state)+query, nil, nil)
		},
	}
}

func stackTag() kind {
	names := append([]string{"name", "value"}, onStack...)
	return kind{
		inputs: withStack(map[string]string{"name": "string", "value": "string"}), required: names, fixed: names,
		create: func(ctx context.Context, c *client, in record) (string, object, error) {
			err := c.call(ctx, post, stackPath(in)+"/tags", in.pick("name", "value"), nil)
			return path(in.text("organization"), in.text("project"), in.text("stack"), in.text("name")), nil, err
		},
		read: func(ctx context.Context, c *client, state record) (object, error) {
			var out struct{ Tags map[string]string }
			if err := c.call(ctx, get, stackPath(state), nil, &out); err != nil {
				return nil, err
			}
			value, ok := out.Tags[state.text("name")]
			if !ok {
				return nil, errGone
			}
			return object{"value": value}, nil
		},
		remove: func(ctx context.Context, c *client, state record) error {
			return c.call(ctx, del, stackPath(state)+"/tags/"+path(state.text("name")), nil, nil)
		},
	}
}

func token(inputs map[string]string, list func(record) string) kind {
	var names []string
	for name := range inputs {
		names = append(names, name)
	}
	return kind{
		inputs: inputs, fixed: names, required: []string{"description"},
		outputs: []string{"tokenId", "value"}, hidden: []string{"value"},
		create: func(ctx context.Context, c *client, in record) (string, object, error) {
			body := in.pick("name", "description")
			body["expires"] = 0
			if _, org := inputs["admin"]; org {
				body["admin"] = in.flag("admin")
			}
			var out struct{ ID, TokenValue string }
			err := c.call(ctx, post, list(in), body, &out)
			return out.ID, object{"tokenId": out.ID, "value": out.TokenValue}, err
		},
		read: func(ctx context.Context, c *client, state record) (object, error) {
			var out struct {
				Tokens []struct {
					ID, Name, Description string
					Admin                 bool
				}
			}
			if err := c.call(ctx, get, list(state), nil, &out); err != nil {
				return nil, err
			}
			for _, t := range out.Tokens {
				if t.ID != state.text("tokenId") {
					continue
				}
				got := object{"description": t.Description}
				if _, named := inputs["name"]; named {
					got["name"] = t.Name
				}
				if _, org := inputs["admin"]; org {
					got["admin"] = t.Admin
				}
				return got, nil
			}
			return nil, fmt.Errorf("token %s: %w", state.text("tokenId"), errGone)
		},
		remove: func(ctx context.Context, c *client, state record) error {
			return c.call(ctx, del, list(state)+"/"+path(state.text("tokenId")), nil, nil)
		},
	}
}
