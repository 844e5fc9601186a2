package clients

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/lab/child"
	"workflowagent/internal/dev/must"
)

// TestRestfulInfrastructure creates, changes and deletes a site with the example service.
func TestRestfulInfrastructure(t *testing.T) {
	w := harness.StartSite(t, "")
	ctx, cancel := context.WithTimeout(t.Context(), 3*harness.Patience)
	defer cancel()
	must.Get(w.StartAgent(ctx, "process", nil))(t)
	root := must.Get(lab.Root())(t)
	example := filepath.Join(root, "examples", "restful-infrastructure")
	files := must.Get(lab.ReadFiles(filepath.Join(example, "program")))(t)
	repo, _, err := w.Git.NewRepo(ctx, "site", files)
	must.OK(t, err)
	// The settings are the example's, with the address of the repository and the lab's variables.
	text := must.Get(os.ReadFile(filepath.Join(example, "settings.json")))(t)
	var settings map[string]any
	must.OK(t, json.Unmarshal([]byte(strings.Replace(string(text), "https://git.example.com/site.git", repo.URL, 1)), &settings))
	settings["operationContext"].(map[string]any)["environmentVariables"] = w.JobEnv()
	text = must.Get(json.Marshal(settings))(t)
	dir := t.TempDir()
	must.OK(t, os.WriteFile(filepath.Join(dir, "settings.json"), text, 0o600))
	build := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(dir, "service"), ".")
	build.Dir = example
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	port := must.Get(child.FreePort("127.0.0.1"))(t)
	address := fmt.Sprintf("127.0.0.1:%d", port)
	env := append(os.Environ(), "PULUMI_BACKEND_URL="+w.Server.URL, "PULUMI_ACCESS_TOKEN="+w.Server.Token)
	service, err := child.Start(ctx, filepath.Join(dir, "service"),
		[]string{"-listen", address, "-org", w.Server.Organization, "-settings", filepath.Join(dir, "settings.json")}, env, filepath.Join(dir, "log"))
	must.OK(t, err)
	t.Cleanup(func() {
		if err := service.Stop(syscall.SIGTERM, harness.Patience); err != nil {
			t.Error(err)
		}
	})

	s := restful{url: "http://" + address}
	must.OK(t, harness.Until(ctx, func() (bool, error) { return s.do(ctx, "GET", "/sites/blog", "") == 404, nil }))
	want := func(status int, method, path, body string) {
		t.Helper()
		if got := s.do(ctx, method, path, body); got != status {
			t.Fatalf("%s %s %s answered %d, want %d: %s", method, path, body, got, status, s.text)
		}
	}
	becomes := func(operation, content, first string) {
		t.Helper()
		err := harness.Until(ctx, func() (bool, error) {
			want(200, "GET", "/sites/blog", "")
			d := s.answer.Deployment
			if d.Status == "failed" || d.Status == "skipped" {
				return false, fmt.Errorf("the deployment has the status %s: %s", d.Status, d.Message)
			}
			return d.Operation == operation && d.Status == "succeeded" && s.answer.Outputs["content"] == content && s.answer.Outputs["first"] == first, nil
		})
		if err != nil {
			t.Fatalf("%v; the site is %s", err, s.text)
		}
	}
	want(202, "POST", "/sites", `{"id": "blog", "content": "Hello"}`)
	becomes("update", "Hello", "Hello")
	want(409, "POST", "/sites", `{"id": "blog", "content": "again"}`)
	// The content is data, not shell text or an option.
	const hostile = `--secret "$(id)"; $HOME`
	body := must.Get(json.Marshal(map[string]string{"content": hostile}))(t)
	want(202, "POST", "/sites/blog", string(body))
	becomes("update", hostile, "Hello")
	want(202, "DELETE", "/sites/blog", "")
	if err := harness.Until(ctx, func() (bool, error) { return s.do(ctx, "GET", "/sites/blog", "") == 404, nil }); err != nil {
		t.Fatalf("%v; the site is %s", err, s.text)
	}

	want(400, "POST", "/sites", `{"id": "../x"}`)
	want(400, "POST", "/sites", `[]`)
	want(404, "POST", "/sites/none", `{"content": "x"}`)
	want(404, "DELETE", "/sites/none", "")

	// The stack is gone before its last job ends. A runner would outlive the test.
	var org struct {
		Counts struct{ Running, Succeeded int } `json:"deploymentCounts"`
	}
	if err := harness.Until(ctx, func() (bool, error) {
		err := w.Server.Call(ctx, http.MethodGet, "/api/orgs/"+w.Server.Organization+"/deployments/metadata", nil, &org)
		return org.Counts.Running == 0 && org.Counts.Succeeded == 3, err
	}); err != nil {
		t.Errorf("%v; the deployments are %+v", err, org.Counts)
	}
}

// restful is a client of the example service with its last answer.
type restful struct {
	url    string
	text   string
	answer struct {
		Deployment struct {
			Operation       string `json:"pulumiOperation"`
			Status, Message string
		}
		Outputs map[string]any
	}
}

func (s *restful) do(ctx context.Context, method, path, body string) (status int) {
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	if err != nil {
		return 0
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.text = err.Error()
		return 0
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	s.text = string(data)
	s.answer.Outputs, s.answer.Deployment.Operation, s.answer.Deployment.Status = nil, "", ""
	if err != nil || resp.StatusCode == http.StatusOK && json.Unmarshal(data, &s.answer) != nil {
		return 0
	}
	return resp.StatusCode
}
