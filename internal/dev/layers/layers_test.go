package layers

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// module is the import path prefix of this module.
const module = "workflowagent/"

const root = "../../.."

type goPackage struct {
	ImportPath     string
	Dir            string
	Name           string
	GoFiles        []string
	IgnoredGoFiles []string
	Imports        []string
	Error          *struct{ Err string }
}

func listPackages(t *testing.T, goos string, args ...string) []goPackage {
	t.Helper()
	return listPackagesIn(t, root, goos, args...)
}

// listPackagesIn lists packages of the module in a directory.
func listPackagesIn(t *testing.T, dir, goos string, args ...string) []goPackage {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-e", "-json=ImportPath,Dir,Name,GoFiles,IgnoredGoFiles,Imports,Error"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOFLAGS=-mod=readonly")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %s: %v\n%s", strings.Join(args, " "), err, &stderr)
	}
	var packages []goPackage
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return packages
		}
		if err != nil {
			t.Fatalf("read the output of go list: %v", err)
		}
		packages = append(packages, p)
	}
}

// within reports whether an import path is the path or below it.
func within(importPath, path string) bool {
	return importPath == path || strings.HasPrefix(importPath, strings.TrimSuffix(path, "/")+"/")
}

func withinAny(importPath string, paths []string) bool {
	return slices.ContainsFunc(paths, func(path string) bool { return within(importPath, path) })
}

// The groups of packages below internal. The programs share all other packages.
const (
	agent  = module + "internal/agent"
	host   = module + "internal/host"
	runner = module + "internal/runner"
	server = module + "internal/server"
	dev    = module + "internal/dev"
)

type ban struct {
	paths  []string
	reason string
}

var (
	sqlPaths    = []string{"database/sql", "modernc.org", "github.com/jackc/pgx", "github.com/pressly/goose"}
	dockerPaths = []string{"github.com/moby", "github.com/docker"}
	updatePaths = []string{"github.com/creativeprojects/go-selfupdate", "github.com/google/go-github"}
)

// harmless returns banned packages that any program may link indirectly, because they do nothing by
// themselves.
func harmless() []string {
	return []string{
		// This package contains only a driver's interfaces; the UUID package implements two of
		// them.
		"database/sql/driver",
	}
}

// TestPrograms checks that no program links a banned package, directly or indirectly.
func TestPrograms(t *testing.T) {
	for _, tt := range []struct {
		program string
		bans    []ban
	}{{
		"cmd/workflow-runner",
		[]ban{
			{dockerPaths, "the runner is already inside the container, and must stay small"},
			{[]string{"k8s.io"}, "the runner is already inside the pod, and must stay small"},
			{sqlPaths, "the runner keeps no database, and must stay small"},
			{updatePaths, "the agent replaces the runner, which must stay small"},
			{[]string{"github.com/prometheus"}, "a job serves no metrics, and the runner must stay small"},
			{[]string{server}, "code of the control plane must not run next to untrusted code"},
			{[]string{agent, host}, "code of the agent must not run inside a job"},
			{[]string{"github.com/pulumi"}, "the runner starts the user's pulumi and does not link it"},
			{[]string{dev, "testing"}, "code of tests and tools must not be shipped"},
		},
	}, {
		"cmd/customer-managed-workflow-agent",
		[]ban{
			{sqlPaths, "the agent's journal is files; a database belongs to the control plane"},
			{[]string{server}, "the agent uses the control plane only over the wire"},
			{[]string{"github.com/pulumi"}, "the agent never runs pulumi itself"},
			{[]string{dev, "testing"}, "code of tests and tools must not be shipped"},
		},
	}, {
		"cmd/workflow-server",
		[]ban{
			{[]string{"github.com/pulumi"}, "the control plane reads and writes checkpoints with its own code and never links the engine"},
			{dockerPaths, "the control plane runs no jobs"},
			{updatePaths, "the control plane may serve a mirror, but installs nothing"},
			{[]string{"k8s.io"}, "the control plane runs no jobs"},
			{[]string{agent, host, runner}, "the control plane uses agents and runners only over the wire"},
			{[]string{dev, "testing"}, "code of tests and tools must not be shipped"},
		},
	}} {
		for _, goos := range []string{"linux", "darwin"} {
			t.Run(tt.program+"/"+goos, func(t *testing.T) {
				if _, err := os.Stat(filepath.Join(root, tt.program)); err != nil {
					t.Fatalf("the program is missing: %v", err)
				}
				packages := listPackages(t, goos, "-deps", "./"+tt.program)
				for _, p := range packages {
					if p.Error != nil {
						t.Errorf("%s: %s", p.ImportPath, p.Error.Err)
					}
				}
				for _, b := range tt.bans {
					if chain := chainTo(packages, module+tt.program, b.paths, harmless()); chain != nil {
						t.Errorf("links %s, but %s:\n\t%s", chain[len(chain)-1], b.reason, strings.Join(chain, "\n\t-> "))
					}
				}
			})
		}
	}
}

// TestEvaluator checks that the evaluator of environments, a separate module that runs untrusted definitions,
// contains nothing of the other programs except the messages that it exchanges with the server.
func TestEvaluator(t *testing.T) {
	const program = module + "cmd/workflow-esc"
	for _, p := range listPackagesIn(t, filepath.Join(root, "cmd", "workflow-esc"), "linux", "-deps", ".") {
		if p.Error != nil {
			t.Errorf("%s: %s", p.ImportPath, p.Error.Err)
		}
		if strings.HasPrefix(p.ImportPath, module) && !within(p.ImportPath, program) && p.ImportPath != module+"internal/esc/wire" {
			t.Errorf("workflow-esc links %s", p.ImportPath)
		}
	}
}

// chainTo returns a shortest chain of imports from one package to a package within paths that is
// not among the allowed ones, or nil.
func chainTo(packages []goPackage, from string, paths, allowed []string) []string {
	imports := map[string][]string{}
	for _, p := range packages {
		imports[p.ImportPath] = p.Imports
	}
	came := map[string]string{from: ""}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		if at := queue[0]; withinAny(at, paths) && !slices.Contains(allowed, at) {
			var chain []string
			for ; at != ""; at = came[at] {
				chain = append(chain, at)
			}
			slices.Reverse(chain)
			return chain
		}
		for _, next := range imports[queue[0]] {
			if _, ok := came[next]; !ok {
				came[next] = queue[0]
				queue = append(queue, next)
			}
		}
	}
	return nil
}

// rule bans direct imports for the packages within of, except those within except. An empty of
// means all packages; an of that ends with a slash means only the packages below it. A banned path
// that ends with "$" does not include the packages below it.
type rule struct {
	of     string
	except []string
	ban    ban
}

func rules() []rule {
	return []rule{
		{of: module + "internal/workflow", ban: ban{[]string{strings.TrimSuffix(module, "/")}, "workflow is the pure domain and imports nothing of this module"}},
		{of: module + "internal/workflow", ban: ban{append([]string{"net/http", "os", "github.com", "go.yaml.in"}, sqlPaths...), "workflow is the pure domain and does no input or output"}},
		{of: module + "internal/esc/wire", ban: ban{append([]string{strings.TrimSuffix(module, "/"), "net", "os", "github.com", "golang.org", "go.yaml.in"}, sqlPaths...), "the messages between server and evaluator need only the standard library"}},
		{except: []string{module + "cmd"}, ban: ban{[]string{module + "cmd"}, "a program's main only translates and exports nothing"}},
		{except: []string{dev}, ban: ban{[]string{dev}, "code of tests and tools must not be shipped"}},
		{except: []string{server, module + "cmd/workflow-server", dev}, ban: ban{[]string{server}, "all other programs use the control plane only over the wire"}},
		{except: []string{agent, host, module + "cmd/customer-managed-workflow-agent", dev}, ban: ban{[]string{agent, host}, "only the agent's program may import its packages"}},
		{except: []string{runner, module + "cmd/workflow-runner", dev}, ban: ban{[]string{runner}, "only the runner's program may import its packages"}},
		{of: agent, ban: ban{[]string{host}, "the agent works without the packages for services and updates"}},
		{of: agent + "/", ban: ban{[]string{agent + "$"}, "the agent imports its parts, which must not import the agent"}},

		{of: server, except: []string{server + "/api", server + "/console"}, ban: ban{[]string{"github.com/go-chi"}, "inside the control plane, only api and console use HTTP"}},
		// Package server itself is exempt, because it opens the listener.
		{of: server + "/", except: []string{server + "/api", server + "/console", server + "/outbound"}, ban: ban{[]string{"net/http"}, "inside the control plane, only api, console and outbound use HTTP"}},
		{of: server + "/vcs", ban: ban{[]string{server + "/gitops", server + "/deployments", server + "/stacks"}, "vcs knows forges and integrations; gitops deploys"}},
		{of: server + "/stacks", ban: ban{[]string{server + "/deployments", server + "/gitops", server + "/triggers"}, "updates of stacks work without deployments"}},
		{of: server + "/deployments", ban: ban{[]string{server + "/gitops", server + "/triggers"}, "deployments do not know what creates them"}},
		{except: []string{server + "/store", dev}, ban: ban{sqlPaths, "only the store of the control plane uses SQL"}},
		{except: []string{agent + "/executor/docker", dev}, ban: ban{dockerPaths, "only the docker executor uses the engine's API"}},
		{except: []string{agent + "/executor/kubernetes", dev}, ban: ban{[]string{"k8s.io", "sigs.k8s.io"}, "only the kubernetes executor uses the cluster's API"}},
		{except: []string{host + "/update"}, ban: ban{updatePaths, "only update finds releases"}},
		{except: []string{module + "cmd", dev + "/tools"}, ban: ban{[]string{"github.com/spf13"}, "only cmd handles the command line"}},
	}
}

// TestImports checks the direct imports of every package of this module.
func TestImports(t *testing.T) {
	for _, p := range ourPackages(t) {
		for _, violation := range violations(p) {
			t.Error(violation)
		}
	}
}

func violations(p goPackage) []string {
	var found []string
	for _, r := range rules() {
		below := strings.HasSuffix(r.of, "/") && p.ImportPath+"/" == r.of
		if r.of != "" && !within(p.ImportPath, r.of) || below || withinAny(p.ImportPath, r.except) {
			continue
		}
		for _, imported := range p.Imports {
			if withinAny(imported, r.ban.paths) && !within(p.ImportPath, imported) || slices.Contains(r.ban.paths, imported+"$") {
				found = append(found, p.ImportPath+" imports "+imported+", but "+r.ban.reason)
			}
		}
	}
	return found
}

func TestViolations(t *testing.T) {
	for _, tt := range []struct {
		from, to string
		ok       bool
	}{
		{"internal/workflow", "workflowagent/internal/redact", false},
		{"internal/workflow", "time", true},
		{"internal/workflow", "net/http", false},
		{"internal/protocol", "workflowagent/internal/workflow", true},
		{"internal/protocol", "workflowagent/internal/agent/status", false},
		{"internal/agent", "workflowagent/internal/server/store", false},
		{"internal/agent", "database/sql", false},
		{"internal/agent", "github.com/moby/moby/client", false},
		{"internal/agent", "github.com/creativeprojects/go-selfupdate", false},
		{"internal/host/update", "github.com/creativeprojects/go-selfupdate", true},
		{"internal/host/update", "workflowagent/internal/host/release", true},
		{"internal/host/update", "workflowagent/internal/agent/status", true},
		{"internal/agent", "workflowagent/internal/host/release", false},
		{"internal/agent", "workflowagent/internal/dev/fakes", false},
		{"internal/dev/fakes", "workflowagent/internal/agent/executor", true},
		{"internal/delivery", "workflowagent/internal/runner", false},
		{"internal/agent", "workflowagent/internal/agent/config", true},
		{"internal/runner/source", "workflowagent/internal/server", false},
		{"internal/runner", "workflowagent/internal/protocol", true},
		{"internal/runner", "workflowagent/internal/agent/executor/process", false},
		{"internal/agent/executor/docker", "github.com/moby/moby/client", true},
		{"internal/agent/executor/kubernetes", "k8s.io/client-go/rest", true},
		{"internal/agent/executor/kubernetes/podspec", "k8s.io/api/core/v1", true},
		{"internal/host/daemon", "k8s.io/api/core/v1", false},
		{"internal/host/doctor", "sigs.k8s.io/yaml", false},
		{"internal/agent/executor/process", "workflowagent/internal/agent", false},
		{"internal/delivery", "workflowagent/internal/server/api", false},
		{"internal/redact", "workflowagent/internal/server", false},
		{"internal/agent/config", "workflowagent/internal/server", false},
		{"internal/agent/config", "workflowagent/internal/agent", false},
		{"internal/agent/status", "workflowagent/internal/agent/config", true},
		{"internal/server", "net/http", true},
		{"internal/server/api", "net/http", true},
		{"internal/server/api/state", "github.com/go-chi/chi/v5", true},
		{"internal/server/stacks", "net/http", false},
		{"internal/server/identity/oidc", "net/http", false},
		{"internal/server/outbound", "net/http", true},
		{"internal/server/stacks", "github.com/go-chi/chi/v5", false},
		{"internal/server/stacks", "workflowagent/internal/server/store", true},
		{"internal/server/stacks", "database/sql", false},
		{"internal/server/stacks", "workflowagent/internal/server/deployments", false},
		{"internal/server/vcs/integrations", "workflowagent/internal/server/deployments", false},
		{"internal/server/vcs/integrations", "workflowagent/internal/server/vcs/forges/plain", true},
		{"internal/server/deployments", "workflowagent/internal/server/vcs/integrations", true},
		{"internal/server/deployments", "workflowagent/internal/server/gitops/dispatch", false},
		{"internal/server/gitops/dispatch", "workflowagent/internal/server/deployments", true},
		{"internal/server/store", "github.com/jackc/pgx/v5/pgxpool", true},
		{"internal/server/pools", "workflowagent/internal/agent", false},
		{"internal/agent", "workflowagent/cmd/workflow-server", false},
		{"internal/agent", "github.com/spf13/cobra", false},
		{"cmd/workflow-server", "workflowagent/internal/server", true},
		{"cmd/workflow-runner", "workflowagent/internal/server", false},
	} {
		found := violations(goPackage{ImportPath: module + tt.from, Imports: []string{tt.to}})
		if ok := len(found) == 0; ok != tt.ok {
			t.Errorf("%s importing %s: violations %v", tt.from, tt.to, found)
		}
	}

	packages := []goPackage{{ImportPath: "main", Imports: []string{"a", "b"}}, {ImportPath: "a", Imports: []string{"b"}}, {ImportPath: "b", Imports: []string{"bad/x"}}}
	if chain := strings.Join(chainTo(packages, "main", []string{"bad"}, nil), " "); chain != "main b bad/x" {
		t.Errorf("chain %q", chain)
	}
	if chain := chainTo(packages, "main", []string{"ba"}, nil); chain != nil {
		t.Errorf("chain %q", chain)
	}
	if chain := chainTo(packages, "main", []string{"bad"}, []string{"bad/x"}); chain != nil {
		t.Errorf("chain %q", chain)
	}
}

// ourPackages lists the packages of this module that a build of a program or a test includes.
func ourPackages(t *testing.T) []goPackage {
	t.Helper()
	var ours []goPackage
	seen := map[string]bool{}
	for _, goos := range []string{"linux", "darwin"} {
		for _, p := range listPackages(t, goos, "./...") {
			if seen[p.ImportPath] && goos != "linux" {
				// Add the imports of files for the other operating system.
				i := slices.IndexFunc(ours, func(o goPackage) bool { return o.ImportPath == p.ImportPath })
				ours[i].Imports = append(ours[i].Imports, p.Imports...)
				ours[i].GoFiles = append(ours[i].GoFiles, p.GoFiles...)
				continue
			}
			seen[p.ImportPath] = true
			ours = append(ours, p)
		}
	}
	for i := range ours {
		slices.Sort(ours[i].Imports)
		ours[i].Imports = slices.Compact(ours[i].Imports)
		slices.Sort(ours[i].GoFiles)
		ours[i].GoFiles = slices.Compact(ours[i].GoFiles)
	}
	if len(ours) < 5 {
		t.Fatalf("go list found only %d packages", len(ours))
	}
	return ours
}
