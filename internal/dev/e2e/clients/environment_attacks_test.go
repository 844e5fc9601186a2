package clients

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
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
	"workflowagent/internal/dev/lab/child"
	"workflowagent/internal/dev/must"
)

// escClient calls a server as a user.
type escClient struct {
	t          *testing.T
	url, token string
}

// send returns the status and the body of a response.
func (c escClient) send(method, path, body string) (status int, text string) {
	c.t.Helper()
	var resp *http.Response
	for tries := 0; ; tries++ {
		req := must.Get(http.NewRequestWithContext(c.t.Context(), method, c.url+"/api/esc/environments/"+path, strings.NewReader(body)))(c.t)
		req.Header.Set("Authorization", "token "+c.token)
		if method == http.MethodPost && strings.HasPrefix(body, "{") {
			req.Header.Set("Content-Type", "application/json")
		}
		var err error
		if resp, err = http.DefaultClient.Do(req); err == nil {
			break
		}
		// The server closes the connection half a second after it has refused a body that is too large.
		if tries == 10 || !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
			c.t.Fatal(err)
		}
	}
	defer resp.Body.Close()
	return resp.StatusCode, string(must.Get(io.ReadAll(resp.Body))(c.t))
}

// want checks the status and a part of the body.
func (c escClient) want(method, path, body string, status int, part string) string {
	c.t.Helper()
	got, text := c.send(method, path, body)
	if got != status || !strings.Contains(text, part) {
		c.t.Errorf("%s %s with %.200s: %d %.2000s, want %d with %q", method, path, body, got, text, status, part)
	}
	return text
}

// doubled returns a definition in which each value has the one before twice.
func doubled(first, format string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "values:\n  x0: %s\n", first)
	for i := range 40 {
		fmt.Fprintf(&b, "  x%d: "+format+"\n", i+1, fmt.Sprintf("${x%d}", i), fmt.Sprintf("${x%d}", i))
	}
	return b.String()
}

// TestClientsHostileEnvironments attacks a server with definitions, as callers who may change one environment. Each attack ends
// with an error for its author, and others open their environments meanwhile and afterwards.
func TestClientsHostileEnvironments(t *testing.T) {
	t.Parallel()
	w := harness.StartSite(t, "")
	server := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), filepath.Join(w.Bin, "workflow-server"), append(args, "--data-dir", w.Server.DataDir)...)
		cmd.Env = os.Environ()
		var problem bytes.Buffer
		cmd.Stderr = &problem
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("workflow-server %q: %v\n%s", args, err, problem.String())
		}
		return strings.TrimSpace(string(out))
	}
	admin := escClient{t, w.Server.URL, w.Server.Token}
	bob := escClient{t, w.Server.URL, server("user", "create", "bob", "--member-of", "organization")}
	eve := escClient{t, w.Server.URL, server("user", "create", "eve")}
	server("org", "create", "rival", "--admin", "eve")
	create := func(c escClient, org, name, definition string) {
		t.Helper()
		c.want("POST", org, `{"project": "app", "name": "`+name+`"}`, 200, "")
		if definition != "" {
			c.want("PATCH", org+"/app/"+name, definition, 200, "")
		}
	}
	create(admin, "organization", "prod", "values: {mine: 1, password: {fn::secret: planted-word}}")
	create(eve, "rival", "prod", "values: {theirs: {fn::secret: planted-rival}}")
	create(bob, "organization", "hostile", "")
	const hostile, check, open = "organization/app/hostile", "organization/yaml/check", "organization/yaml/open"
	healthy := func() {
		t.Helper()
		var opened struct{ ID string }
		must.OK(t, json.Unmarshal([]byte(eve.want("POST", "rival/app/prod/open?duration=1h", "", 200, `"id"`)), &opened))
		eve.want("GET", "rival/app/prod/open/"+opened.ID, "", 200, "planted-rival")
	}

	// Definitions that take memory, time or space.
	var keys, nested strings.Builder
	for i := range 110_000 {
		fmt.Fprintf(&keys, " k%x:\n", i)
	}
	for i := range 30 {
		fmt.Fprintf(&nested, "  x%d: %s%s\n", i, strings.Repeat("[", 9000), strings.Repeat("]", 9000))
	}
	for name, each := range map[string]struct {
		definition string
		status     int
		part       string
	}{
		"a million keys":        {"values:\n" + strings.Repeat("k:\n", 1_000_000), 413, ""},
		"as many keys as fit":   {"values:\n" + keys.String(), 400, "evaluating the environment"}, // too much memory, or time
		"an interpolation bomb": {doubled(strings.Repeat("x", 1000), `"%s%s"`), 400, "evaluating the environment"},
		"a list bomb":           {doubled("1", `["%s", "%s"]`), 400, "evaluating the environment"},
		"30 s of evaluation":    {"values:\n" + nested.String(), 400, "evaluating the environment"},
	} {
		if strings.HasPrefix(name, "30 s") && !harness.FullScale {
			continue // it takes the whole limit of time
		}
		for _, call := range [][2]string{{"PATCH", hostile}, {"POST", check}, {"POST", open}} {
			before := t.Failed()
			if bob.want(call[0], call[1], each.definition, each.status, each.part); t.Failed() && !before {
				t.Errorf("%s failed", name)
			}
		}
		healthy()
	}

	// Imports: of itself, in a circle, and of another organization.
	bob.want("PATCH", hostile, "imports: [app/hostile]", 400, "cyclic import")
	create(bob, "organization", "circle", "imports: [app/hostile]")
	bob.want("PATCH", hostile, "imports: [app/circle]", 400, "cyclic import")
	for _, definition := range []string{"imports: [rival/app/prod]", "imports: [rival/prod]", "imports: [../rival/app/prod]", "imports: ['app/prod@../../../rival/app/prod']"} {
		for _, path := range []string{check, open} {
			if status, text := bob.send("POST", path, definition); status != 400 || strings.Contains(text, "planted-rival") || strings.Contains(text, "theirs") {
				t.Errorf("%s: %d %s", definition, status, text)
			}
		}
	}
	var imported struct{ ID string }
	must.OK(t, json.Unmarshal([]byte(eve.want("POST", "rival/yaml/open", "imports: [app/prod]", 200, `"id"`)), &imported))
	if text := eve.want("GET", "rival/yaml/open/"+imported.ID, "", 200, "planted-rival"); strings.Contains(text, "planted-word") || strings.Contains(text, "mine") {
		t.Errorf("the definition imports an environment of another organization: %s", text)
	}
	eve.want("POST", open, "imports: [app/prod]", 404, "")
	eve.want("POST", "organization/app/prod/open", "", 404, "")

	// The outputs of a stack that the caller may not read.
	dir := t.TempDir()
	harness.Write(t, filepath.Join(dir, "Pulumi.yaml"), []byte("name: shop\nruntime: yaml\noutputs: {word: planted-output}\n"), 0o600)
	for _, args := range [][]string{{"stack", "init", "organization/shop/dev"}, {"up", "--yes", "--skip-preview"}} {
		ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
		cmd := child.Command(ctx, w.Tools.Pulumi(), append(args, "--non-interactive")...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), w.Tools.Env(w.Home, w.Server.URL, w.Server.Token)...)
		out, err := cmd.CombinedOutput()
		if cancel(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	must.OK(t, w.Server.Call(t.Context(), http.MethodPatch, "/api/orgs/organization", map[string]any{"setDefaultStackPermission": 0}, nil))
	const ofStack = "values: {x: {fn::open::pulumi-stacks: {stacks: {a: {stack: shop/dev}}}}}"
	bob.want("POST", open, ofStack, 400, "does not exist, or you may not see it")
	opened := func(c escClient, path, body string) (session string) {
		t.Helper()
		var out struct{ ID string }
		must.OK(t, json.Unmarshal([]byte(c.want("POST", path, body, 200, `"id"`)), &out))
		return out.ID
	}
	session := opened(admin, open, ofStack)
	admin.want("GET", open+"/"+session, "", 200, "planted-output")

	// Addresses of this machine, and of a cloud's metadata.
	for _, address := range []string{"https://127.0.0.1:1", "https://localhost", "https://169.254.169.254/latest/meta-data"} {
		bob.want("PATCH", hostile, "values: {x: {fn::open::external: {url: '"+address+"'}}}", 200, "")
		bob.want("POST", hostile+"/open", "", 400, "it cannot be reached, or its address is not public")
	}

	// A session with another token, of another user and of the same.
	bob.want("GET", open+"/"+session, "", 404, "belongs to another token")
	again := escClient{t, w.Server.URL, server("token", "create")}
	again.want("GET", open+"/"+session, "", 404, "belongs to another token")

	// A version tag that moves between the check and the opening.
	create(bob, "organization", "moving", "values: {word: first}")
	const moving = "organization/app/moving"
	bob.want("POST", moving+"/versions/tags", `{"name": "stable"}`, 204, "")
	const stable = "imports: [app/moving@stable]"
	admin.want("POST", check, stable, 200, "first")
	bob.want("PATCH", moving, "values: {word: second}", 200, "")
	bob.want("PATCH", moving+"/versions/tags/stable", `{"revision": 3}`, 204, "")
	session = opened(admin, open, stable)
	admin.want("GET", open+"/"+session, "", 200, "second")
	healthy()
}
