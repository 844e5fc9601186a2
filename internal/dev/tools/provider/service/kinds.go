package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"time"
)

const (
	get   = http.MethodGet
	post  = http.MethodPost
	put   = http.MethodPut
	patch = http.MethodPatch
	del   = http.MethodDelete
)

var kinds = map[string]kind{
	"pulumiservice:index:AgentPool":                 agentPool(),
	"pulumiservice:index:DeploymentSettings":        deploymentSettings(),
	"pulumiservice:index:DeploymentSchedule":        schedule("schedules", map[string]string{"scheduleCron": "string", "timestamp": "string", "pulumiOperation": "string"}, rawSchedule),
	"pulumiservice:index:DriftSchedule":             schedule("drift/schedules", map[string]string{"scheduleCron": "string", "autoRemediate": "boolean"}, driftSchedule),
	"pulumiservice:index:TtlSchedule":               schedule("ttl/schedules", map[string]string{"timestamp": "string", "deleteAfterDestroy": "boolean"}, ttlSchedule),
	"pulumiservice:index:Webhook":                   webhook(),
	"pulumiservice:index:PolicyPack":                policyPack(),
	"pulumiservice:index:Environment":               environment(),
	"pulumiservice:index:EnvironmentTag":            environmentTag(),
	"pulumiservice:index:EnvironmentVersionTag":     environmentVersionTag(),
	"pulumiservice:index:TeamEnvironmentPermission": teamEnvironmentPermission(),
	"pulumiservice:index:PolicyGroup":               policyGroup(),
	"pulumiservice:index:OidcIssuer":                oidcIssuer(),
	"pulumiservice:index:Stack":                     stack(),
	"pulumiservice:index:StackTag":                  stackTag(),
	"pulumiservice:index:AccessToken":               token(map[string]string{"description": "string"}, func(record) string { return path("user", "tokens") }),
	"pulumiservice:index:OrgAccessToken": token(
		map[string]string{"organizationName": "string", "name": "string", "description": "string", "admin": "boolean"},
		func(r record) string { return path("orgs", r.text("organizationName"), "tokens") },
	),
	"pulumiservice:index:TeamAccessToken": token(
		map[string]string{"organizationName": "string", "teamName": "string", "name": "string", "description": "string"},
		func(r record) string {
			return path("orgs", r.text("organizationName"), "teams", r.text("teamName"), "tokens")
		},
	),
}

func agentPool() kind {
	at := func(r record) string {
		return path("orgs", r.text("organizationName"), "agent-pools", r.text("agentPoolId"))
	}
	return kind{
		inputs:   map[string]string{"organizationName": "string", "name": "string", "description": "string", "forceDestroy": "boolean"},
		required: []string{"organizationName", "name"},
		fixed:    []string{"organizationName"},
		outputs:  []string{"agentPoolId", "tokenValue"},
		hidden:   []string{"tokenValue"},
		create: func(ctx context.Context, c *client, in record) (string, object, error) {
			var out struct{ ID, TokenValue string }
			err := c.call(ctx, post, path("orgs", in.text("organizationName"), "agent-pools"), in.pick("name", "description"), &out)
			return in.text("organizationName") + "/" + in.text("name") + "/" + out.ID, object{"agentPoolId": out.ID, "tokenValue": out.TokenValue}, err
		},
		read: func(ctx context.Context, c *client, state record) (object, error) {
			var out struct{ ID, Name, Description string }
			err := c.call(ctx, get, at(state), nil, &out)
			return object{"agentPoolId": out.ID, "name": out.Name, "description": out.Description}, err
		},
		update: func(ctx context.Context, c *client, state, in record) error {
			return c.call(ctx, patch, at(state), object{"name": in.text("name"), "description": in.text("description")}, nil)
		},
		remove: func(ctx context.Context, c *client, state record) error {
			query := ""
			if state.flag("forceDestroy") {
				query = "?force=true"
			}
			return c.call(ctx, del, at(state)+query, nil, nil)
		},
	}
}

// scheduled is a schedule in a response of the server.
type scheduled struct {
	ID, ScheduleCron, ScheduleOnce string
	Definition                     struct {
		Request struct {
			Operation        string
			OperationContext struct {
				Options struct{ DeleteAfterDestroy, RemediateIfDriftDetected bool }
			}
		}
	}
}

// once returns the time of a schedule as the program writes it. The stock provider parses times in
// responses with this layout, and fails for others.
func (s scheduled) once(inProgram string) (string, error) {
	if s.ScheduleOnce == "" {
		return "", nil
	}
	at, err := time.ParseInLocation("2006-01-02 15:04:05", s.ScheduleOnce, time.UTC)
	if err != nil {
		return "", fmt.Errorf("the time of the schedule: %w", err)
	}
	if want, err := time.Parse(time.RFC3339, inProgram); err == nil && want.Equal(at) {
		return inProgram, nil
	}
	return at.Format(time.RFC3339), nil
}

// form translates between a program's inputs and a schedule.
type form struct {
	body func(in record) object
	read func(s scheduled, state record) (object, error)
}

var (
	rawSchedule = form{
		func(in record) object {
			body := object{"request": object{"operation": in.text("pulumiOperation"), "operationContext": object{"options": object{}}}}
			if cron := in.text("scheduleCron"); cron != "" {
				body["scheduleCron"] = cron
			} else {
				body["scheduleOnce"] = in.text("timestamp")
			}
			return body
		},
		func(s scheduled, state record) (object, error) {
			at, err := s.once(state.text("timestamp"))
			return object{"scheduleCron": s.ScheduleCron, "timestamp": at, "pulumiOperation": s.Definition.Request.Operation}, err
		},
	}
	driftSchedule = form{
		func(in record) object { return in.pick("scheduleCron", "autoRemediate") },
		func(s scheduled, _ record) (object, error) {
			return object{"scheduleCron": s.ScheduleCron, "autoRemediate": s.Definition.Request.OperationContext.Options.RemediateIfDriftDetected}, nil
		},
	}
	ttlSchedule = form{
		func(in record) object { return in.pick("timestamp", "deleteAfterDestroy") },
		func(s scheduled, state record) (object, error) {
			at, err := s.once(state.text("timestamp"))
			return object{"timestamp": at, "deleteAfterDestroy": s.Definition.Request.OperationContext.Options.DeleteAfterDestroy}, err
		},
	}
)

var onStack = []string{"organization", "project", "stack"}

func stackPath(r record) string {
	return path("stacks", r.text("organization"), r.text("project"), r.text("stack"))
}

func withStack(inputs map[string]string) map[string]string {
	for _, name := range onStack {
		inputs[name] = "string"
	}
	return inputs
}

func schedule(collection string, inputs map[string]string, f form) kind {
	one := func(r record) string { return stackPath(r) + "/deployments/schedules/" + r.text("scheduleId") }
	return kind{
		inputs: withStack(inputs), required: onStack, fixed: onStack, outputs: []string{"scheduleId"},
		create: func(ctx context.Context, c *client, in record) (string, object, error) {
			var out scheduled
			err := c.call(ctx, post, stackPath(in)+"/deployments/"+collection, f.body(in), &out)
			return path(in.text("organization"), in.text("project"), in.text("stack"), out.ID), object{"scheduleId": out.ID}, err
		},
		read: func(ctx context.Context, c *client, state record) (object, error) {
			var out scheduled
			if err := c.call(ctx, get, one(state), nil, &out); err != nil {
				return nil, err
			}
			return f.read(out, state)
		},
		update: func(ctx context.Context, c *client, state, in record) error {
			return c.call(ctx, post, stackPath(state)+"/deployments/"+collection+"/"+state.text("scheduleId"), f.body(in), nil)
		},
		remove: func(ctx context.Context, c *client, state record) error {
			return c.call(ctx, del, one(state), nil, nil)
		},
	}
}

func webhook() kind {
	hooks := func(r record) string {
		if r.text("stackName") != "" {
			return path("stacks", r.text("organizationName"), r.text("projectName"), r.text("stackName"), "hooks")
		}
		if r.text("environmentName") != "" {
			return path("esc", "environments", r.text("organizationName"), r.text("projectName"), r.text("environmentName"), "hooks")
		}
		return path("orgs", r.text("organizationName"), "hooks")
	}
	names := []string{"organizationName", "projectName", "stackName", "displayName", "payloadUrl", "active", "format", "filters", "groups"}
	body := func(in record) object {
		o := in.pick(names...)
		if secret := in.text("secret"); secret != "" {
			o["secret"] = secret
		}
		if name, ok := in["environmentName"]; ok {
			o["envName"] = name
		}
		if in["filters"] == nil && in["groups"] == nil {
			switch {
			case in.text("stackName") != "":
				o["groups"] = []string{"deployments", "stacks"}
			case in.text("environmentName") != "":
				o["groups"] = []string{"environments"}
			default:
				o["groups"] = []string{"deployments", "environments", "stacks"}
			}
		}
		return o
	}
	return kind{
		inputs: map[string]string{
			"organizationName": "string", "projectName": "string", "stackName": "string", "environmentName": "string", "displayName": "string",
			"payloadUrl": "string", "active": "boolean", "format": "string", "filters": "strings", "groups": "strings", "secret": "string",
		},
		required: []string{"organizationName", "displayName", "payloadUrl", "active"},
		fixed:    []string{"organizationName", "projectName", "stackName", "environmentName"},
		outputs:  []string{"name"},
		create: func(ctx context.Context, c *client, in record) (string, object, error) {
			var out struct{ Name string }
			err := c.call(ctx, post, hooks(in), body(in), &out)
			return hooks(in) + "/" + out.Name, object{"name": out.Name}, err
		},
		read: func(ctx context.Context, c *client, state record) (object, error) {
			var out struct {
				DisplayName, PayloadURL, Format, SecretCiphertext string
				Active, HasSecret                                 bool
				Filters, Groups                                   []any
			}
			if err := c.call(ctx, get, hooks(state)+"/"+path(state.text("name")), nil, &out); err != nil {
				return nil, err
			}
			got := object{"displayName": out.DisplayName, "payloadUrl": out.PayloadURL, "active": out.Active, "format": out.Format, "filters": out.Filters, "groups": out.Groups}
			if state["filters"] == nil && state["groups"] == nil {
				delete(got, "filters")
				delete(got, "groups")
			}
			if state["format"] == nil && out.Format == "raw" {
				delete(got, "format")
			}
			sum := sha256.Sum256([]byte(state.text("secret")))
			if out.HasSecret != (state.text("secret") != "") || out.HasSecret && out.SecretCiphertext != hex.EncodeToString(sum[:]) {
				got["secret"] = "changed on the server"
			}
			return got, nil
		},
		update: func(ctx context.Context, c *client, state, in record) error {
			o := body(in)
			o["name"] = state.text("name")
			return c.call(ctx, patch, hooks(state)+"/"+path(state.text("name")), o, nil)
		},
		remove: func(ctx context.Context, c *client, state record) error {
			return c.call(ctx, del, hooks(state)+"/"+path(state.text("name")), nil, nil)
		},
	}
}
