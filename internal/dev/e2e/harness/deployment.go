package harness

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/must"
)

// Stack is a stack of the site's organization with deployment settings.
type Stack struct {
	W    *Site
	Name string // organization/project/stack
}

// NewStack creates a stack with settings that let its jobs run offline. image is the executor
// image, or "" for the process executor.
func (w *Site) NewStack(ctx context.Context, t *testing.T, project, name, image string, variables map[string]string) *Stack {
	t.Helper()
	s := &Stack{W: w, Name: w.Server.Organization + "/" + project + "/" + name}
	must.OK(t, w.Server.Call(ctx, http.MethodPost, "/api/stacks/"+w.Server.Organization+"/"+project, map[string]string{"stackName": name}, nil))
	env := w.JobEnv()
	settings := map[string]any{"operationContext": map[string]any{"environmentVariables": env}}
	if image != "" {
		delete(env, "PULUMI_HOME") // the image sets its own
		settings["executorContext"] = map[string]any{"executorImage": image}
	}
	maps.Copy(env, variables)
	must.OK(t, w.Server.Call(ctx, http.MethodPut, s.Path("settings"), settings, nil))
	return s
}

// Path returns the API path of rest below the stack's deployments.
func (s *Stack) Path(rest string) string { return "/api/stacks/" + s.Name + "/deployments/" + rest }

// RunLanguageHost is a pre-run command that fails unless the language host of policy packs runs in the job. The host
// ends with its input.
const RunLanguageHost = `PATH=$(echo "${PULUMI_HOME:-$HOME/.pulumi}"/plugins/language-executable-v*):$PATH; : | pulumi-language-executable`

// Deployment is the API's description of a deployment.
type Deployment struct {
	ID        string `json:"id"`
	Version   int    `json:"version"`
	Status    string `json:"status"`
	Reason    string `json:"reason"`
	Message   string `json:"message"`
	Operation string `json:"pulumiOperation"`
	Initiator string `json:"initiator"`
}

// Deploy enqueues an operation on the program of a repository's main branch.
func (s *Stack) Deploy(ctx context.Context, t *testing.T, operation, repoURL string, preRun ...string) Deployment {
	t.Helper()
	var d Deployment
	err := s.W.Server.Call(ctx, http.MethodPost, strings.TrimSuffix(s.Path(""), "/"), map[string]any{
		"operation":        operation,
		"sourceContext":    map[string]any{"git": map[string]any{"repoUrl": repoURL, "branch": "refs/heads/main"}},
		"operationContext": map[string]any{"preRunCommands": preRun},
	}, &d)
	must.OK(t, err)
	return d
}

// Get returns the current description of a deployment.
func (s *Stack) Get(ctx context.Context, d Deployment) (Deployment, error) {
	var now Deployment
	err := s.W.Server.Call(ctx, http.MethodGet, s.Path(d.ID), nil, &now)
	return now, err
}

// Wait waits until the deployment has one of the statuses.
func (s *Stack) Wait(ctx context.Context, t *testing.T, d Deployment, patience time.Duration, statuses ...string) Deployment {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var now Deployment
	err := Until(ctx, func() (bool, error) {
		var err error
		if now, err = s.Get(ctx, d); err != nil {
			return false, err
		}
		return slices.Contains(statuses, now.Status), nil
	})
	if err != nil {
		t.Fatalf("waiting for deployment %d to be %s (it is %+v): %v\nits log:\n%s",
			d.Version, strings.Join(statuses, " or "), now, err, s.Log(context.WithoutCancel(ctx), t, d))
	}
	return now
}

// Finish waits until the deployment has succeeded, failed or been skipped.
func (s *Stack) Finish(ctx context.Context, t *testing.T, d Deployment) Deployment {
	t.Helper()
	return s.Wait(ctx, t, d, 5*time.Minute, "succeeded", "failed", "skipped")
}

// Log returns the deployment's current log in stream mode.
func (s *Stack) Log(ctx context.Context, t *testing.T, d Deployment) string {
	t.Helper()
	var out strings.Builder
	token := ""
	for range 10000 {
		path := s.Path(d.ID + "/logs")
		if token != "" {
			path += "?wait=0&continuationToken=" + token
		}
		var page struct {
			Lines []struct {
				Header string `json:"header"`
				Line   string `json:"line"`
			} `json:"lines"`
			NextToken string `json:"nextToken"`
		}
		if err := s.W.Server.Call(ctx, http.MethodGet, path, nil, &page); err != nil {
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
