package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// stack is a stack of the world's organization with deployment settings.
type stack struct {
	w    *world
	name string // organization/project/stack
}

// newStack makes a stack with settings that let its jobs run offline. image is
// the executor image, "" for the process executor.
func (w *world) newStack(ctx context.Context, t *testing.T, project, name, image string, variables map[string]string) *stack {
	t.Helper()
	s := &stack{w: w, name: w.server.Organization + "/" + project + "/" + name}
	if err := w.server.Call(ctx, http.MethodPost, "/api/stacks/"+w.server.Organization+"/"+project, map[string]string{"stackName": name}, nil); err != nil {
		t.Fatal(err)
	}
	env := w.jobEnv()
	settings := map[string]any{"operationContext": map[string]any{"environmentVariables": env}}
	if image != "" {
		delete(env, "PULUMI_HOME") // the image brings its own
		settings["executorContext"] = map[string]any{"executorImage": image}
	}
	maps.Copy(env, variables)
	if err := w.server.Call(ctx, http.MethodPut, s.path("settings"), settings, nil); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *stack) path(rest string) string { return "/api/stacks/" + s.name + "/deployments/" + rest }

// deployment is what the API tells of a deployment.
type deployment struct {
	ID      string `json:"id"`
	Version int    `json:"version"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// deploy enqueues an operation on the program of a repository's main branch.
func (s *stack) deploy(ctx context.Context, t *testing.T, operation, repoURL string, preRun ...string) deployment {
	t.Helper()
	var d deployment
	err := s.w.server.Call(ctx, http.MethodPost, strings.TrimSuffix(s.path(""), "/"), map[string]any{
		"operation":        operation,
		"sourceContext":    map[string]any{"git": map[string]any{"repoUrl": repoURL, "branch": "refs/heads/main"}},
		"operationContext": map[string]any{"preRunCommands": preRun},
	}, &d)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// get reads a deployment anew.
func (s *stack) get(ctx context.Context, d deployment) (deployment, error) {
	var now deployment
	err := s.w.server.Call(ctx, http.MethodGet, s.path(d.ID), nil, &now)
	return now, err
}

// wait waits until the deployment has one of the statuses.
func (s *stack) wait(ctx context.Context, t *testing.T, d deployment, patience time.Duration, statuses ...string) deployment {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var now deployment
	err := until(ctx, func() (bool, error) {
		var err error
		if now, err = s.get(ctx, d); err != nil {
			return false, err
		}
		return slices.Contains(statuses, now.Status), nil
	})
	if err != nil {
		t.Fatalf("waiting for deployment %d to be %s (it is %+v): %v\nits log:\n%s",
			d.Version, strings.Join(statuses, " or "), now, err, s.log(context.WithoutCancel(ctx), t, d))
	}
	return now
}

// finish waits for the end of a deployment.
func (s *stack) finish(ctx context.Context, t *testing.T, d deployment) deployment {
	t.Helper()
	return s.wait(ctx, t, d, 5*time.Minute, "succeeded", "failed", "skipped")
}

// log returns the deployment's log as the stream mode shows it so far.
func (s *stack) log(ctx context.Context, t *testing.T, d deployment) string {
	t.Helper()
	var out strings.Builder
	token := ""
	for range 10000 {
		path := s.path(d.ID + "/logs")
		if token != "" {
			path += "?continuationToken=" + token
		}
		var page struct {
			Lines []struct {
				Header string `json:"header"`
				Line   string `json:"line"`
			} `json:"lines"`
			NextToken string `json:"nextToken"`
		}
		if err := s.w.server.Call(ctx, http.MethodGet, path, nil, &page); err != nil {
			t.Logf("reading the log: %v", err)
			return out.String()
		}
		for _, line := range page.Lines {
			if line.Header != "" {
				fmt.Fprintf(&out, "== %s\n", line.Header)
			}
			out.WriteString(line.Line)
		}
		if page.NextToken == "" || (page.NextToken == token && len(page.Lines) == 0) {
			return out.String()
		}
		token = page.NextToken
	}
	t.Fatal("the log has no end")
	return ""
}
