package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
)

func environmentPath(r record, name string) string {
	return path("esc", "environments", r.text("organization"), r.text("project"), r.text(name))
}

func environment() kind {
	one := func(r record) string { return environmentPath(r, "name") }
	// change replaces the definition. The text is sent as it is, although the request says that it is JSON.
	change := func(ctx context.Context, c *client, in record) error {
		_, header, err := c.send(ctx, patch, one(in), []byte(in.text("yaml")))
		if err == nil && header.Get("Pulumi-ESC-Revision") == "" {
			err = fmt.Errorf("the response to a change of %s names no revision", one(in))
		}
		return err
	}
	protect := func(ctx context.Context, c *client, in record) error {
		return c.call(ctx, patch, one(in)+"/settings", object{"deletionProtected": in.flag("deletionProtected")}, nil)
	}
	return kind{
		inputs:   map[string]string{"organization": "string", "project": "string", "name": "string", "yaml": "string", "deletionProtected": "boolean"},
		required: []string{"organization", "project", "name", "yaml"},
		fixed:    []string{"organization", "project", "name"},
		outputs:  []string{"environmentId"},
		create: func(ctx context.Context, c *client, in record) (string, object, error) {
			root := path("esc", "environments", in.text("organization"))
			var metadata struct{ ID string }
			_, _, err := c.send(ctx, post, root+"/yaml/check", []byte(in.text("yaml")))
			for _, step := range []func() error{
				func() error { return c.call(ctx, post, root, in.pick("project", "name"), nil) },
				func() error { return change(ctx, c, in) },
				func() error { return protect(ctx, c, in) },
				func() error { return c.call(ctx, get, one(in)+"/metadata", nil, &metadata) },
			} {
				if err == nil {
					err = step()
				}
			}
			return path(in.text("organization"), in.text("project"), in.text("name")), object{"environmentId": metadata.ID}, err
		},
		read: func(ctx context.Context, c *client, state record) (object, error) {
			text, _, err := c.send(ctx, get, one(state), nil)
			if err != nil {
				return nil, err
			}
			var settings struct{ DeletionProtected bool }
			err = c.call(ctx, get, one(state)+"/settings", nil, &settings)
			return object{"yaml": strings.TrimSpace(string(text)), "deletionProtected": settings.DeletionProtected}, err
		},
		update: func(ctx context.Context, c *client, _, in record) error {
			if err := change(ctx, c, in); err != nil {
				return err
			}
			return protect(ctx, c, in)
		},
		remove: func(ctx context.Context, c *client, state record) error {
			return c.call(ctx, del, one(state), nil, nil)
		},
	}
}

func environmentTag() kind {
	names := []string{"organization", "project", "environment", "tagName"}
	tags := func(r record) string { return environmentPath(r, "environment") + "/tags" }
	one := func(r record) string { return tags(r) + "/" + path(r.text("tagName")) }
	return kind{
		inputs:   map[string]string{"organization": "string", "project": "string", "environment": "string", "tagName": "string", "value": "string"},
		required: append([]string{"value"}, names...), fixed: names,
		create: func(ctx context.Context, c *client, in record) (string, object, error) {
			err := c.call(ctx, post, tags(in), object{"name": in["tagName"], "value": in["value"]}, nil)
			return path(in.text("organization"), in.text("project"), in.text("environment"), in.text("tagName")), nil, err
		},
		read: func(ctx context.Context, c *client, state record) (object, error) {
			var out struct{ Name, Value string }
			err := c.call(ctx, get, one(state), nil, &out)
			return object{"tagName": out.Name, "value": out.Value}, err
		},
		update: func(ctx context.Context, c *client, state, in record) error {
			body := object{"currentTag": object{"value": state["value"]}, "newTag": object{"name": "", "value": in["value"]}}
			return c.call(ctx, patch, one(state), body, nil)
		},
		remove: func(ctx context.Context, c *client, state record) error {
			return c.call(ctx, del, one(state), nil, nil)
		},
	}
}

func environmentVersionTag() kind {
	names := []string{"organization", "project", "environment", "tagName"}
	tags := func(r record) string { return environmentPath(r, "environment") + "/versions/tags" }
	one := func(r record) string { return tags(r) + "/" + path(r.text("tagName")) }
	return kind{
		inputs:   map[string]string{"organization": "string", "project": "string", "environment": "string", "tagName": "string", "revision": "integer"},
		required: append([]string{"revision"}, names...), fixed: names,
		create: func(ctx context.Context, c *client, in record) (string, object, error) {
			err := c.call(ctx, post, tags(in), object{"name": in["tagName"], "revision": in["revision"]}, nil)
			return path(in.text("organization"), in.text("project"), in.text("environment"), in.text("tagName")), nil, err
		},
		read: func(ctx context.Context, c *client, state record) (object, error) {
			var out struct{ Revision float64 }
			err := c.call(ctx, get, one(state), nil, &out)
			return object{"revision": out.Revision}, err
		},
		update: func(ctx context.Context, c *client, state, in record) error {
			return c.call(ctx, patch, one(state), object{"revision": in["revision"]}, nil)
		},
		remove: func(ctx context.Context, c *client, state record) error {
			return c.call(ctx, del, one(state), nil, nil)
		},
	}
}

func teamEnvironmentPermission() kind {
	team := func(r record) string { return path("orgs", r.text("organization"), "teams", r.text("team")) }
	names := func(r record) object {
		return object{"projectName": r.text("project"), "envName": r.text("environment")}
	}
	all := []string{"organization", "team", "project", "environment", "permission"}
	return kind{
		inputs:   map[string]string{"organization": "string", "team": "string", "project": "string", "environment": "string", "permission": "string"},
		required: all, fixed: all,
		create: func(ctx context.Context, c *client, in record) (string, object, error) {
			grant := names(in)
			grant["permission"] = in["permission"]
			err := c.call(ctx, patch, team(in), object{"addEnvironmentPermission": grant}, nil)
			return fmt.Sprintf("%s/%s/%s+%s", in.text("organization"), in.text("team"), in.text("project"), in.text("environment")), nil, err
		},
		read: func(ctx context.Context, c *client, state record) (object, error) {
			var out struct {
				Environments []struct{ ProjectName, EnvName, Permission string }
			}
			if err := c.call(ctx, get, team(state), nil, &out); err != nil {
				return nil, err
			}
			for _, e := range out.Environments {
				if e.ProjectName == state.text("project") && e.EnvName == state.text("environment") {
					return object{"permission": e.Permission}, nil
				}
			}
			return nil, errGone
		},
		remove: func(ctx context.Context, c *client, state record) error {
			return c.call(ctx, patch, team(state), object{"removeEnvironment": names(state)}, nil)
		},
	}
}

// send sends a text and returns the response.
func (c *client) send(ctx context.Context, method, path string, body []byte) ([]byte, http.Header, error) {
	return c.exchange(ctx, method, path, body, "application/vnd.pulumi+8")
}
