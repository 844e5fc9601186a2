package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
)

// client calls the Deployments API.
type client struct {
	url, token, org, project string
	http                     *http.Client
}

// apiError is an answer with an error status. Its message is for people.
type apiError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (e *apiError) Error() string { return e.Message }

// deployment is the API's description of a deployment.
type deployment struct {
	ID        string `json:"id"`
	Version   int    `json:"version"`
	Operation string `json:"pulumiOperation"`
	Status    string `json:"status"`
	Message   string `json:"message"`
}

func (c *client) stackPath(stack string) string {
	return "/api/stacks/" + url.PathEscape(c.org) + "/" + url.PathEscape(c.project) + "/" + url.PathEscape(stack)
}

func (c *client) createStack(ctx context.Context, stack string) error {
	path := "/api/stacks/" + url.PathEscape(c.org) + "/" + url.PathEscape(c.project)
	return c.call(ctx, http.MethodPost, path, map[string]any{"stackName": stack}, nil)
}

// mergeSettings merges members into the deployment settings of a stack. null would remove a member,
// and members that are not given stay as they are.
func (c *client) mergeSettings(ctx context.Context, stack string, settings map[string]any) error {
	return c.call(ctx, http.MethodPost, c.stackPath(stack)+"/deployments/settings", settings, nil)
}

// deploy queues a deployment with the settings of the stack. options add to them.
func (c *client) deploy(ctx context.Context, stack, operation string, options map[string]any) (deployment, error) {
	request := map[string]any{"operation": operation, "inheritSettings": true}
	if options != nil {
		request["operationContext"] = map[string]any{"options": options}
	}
	d := deployment{Operation: operation, Status: "not-started"}
	err := c.call(ctx, http.MethodPost, c.stackPath(stack)+"/deployments", request, &d)
	return d, err
}

// latest returns a stack's newest deployment, or an empty one.
func (c *client) latest(ctx context.Context, stack string) (deployment, error) {
	var list struct {
		Deployments []deployment `json:"deployments"`
	}
	err := c.call(ctx, http.MethodGet, c.stackPath(stack)+"/deployments?page=1&pageSize=1", nil, &list)
	if err != nil || len(list.Deployments) == 0 {
		return deployment{}, err
	}
	return list.Deployments[0], nil
}

// outputs returns the outputs of a stack's program.
func (c *client) outputs(ctx context.Context, stack string) (map[string]any, error) {
	var state struct {
		Deployment struct {
			Resources []struct {
				Type    string         `json:"type"`
				Outputs map[string]any `json:"outputs"`
			} `json:"resources"`
		} `json:"deployment"`
	}
	if err := c.call(ctx, http.MethodGet, c.stackPath(stack)+"/export", nil, &state); err != nil {
		return nil, err
	}
	for _, r := range state.Deployment.Resources {
		if r.Type == "pulumi:pulumi:Stack" {
			return r.Outputs, nil
		}
	}
	return nil, nil
}

func (c *client) call(ctx context.Context, method, path string, body, into any) error {
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return fmt.Errorf("encoding a request: %w", err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("preparing a request: %w", err)
	}
	req.Header.Set("Authorization", "token "+c.token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // read to the end or abandoned
	if resp.StatusCode >= http.StatusBadRequest {
		failed := &apiError{Code: resp.StatusCode, Message: resp.Status}
		_ = json.NewDecoder(resp.Body).Decode(failed) // else the status is the message
		failed.Code = resp.StatusCode
		return failed
	}
	if into == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return fmt.Errorf("decoding the answer to %s %s: %w", method, path, err)
	}
	return nil
}
