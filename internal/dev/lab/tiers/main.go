// Command tiers runs the test tiers that this machine can run, and reports why it skipped the
// others. With WORKFLOW_REQUIRE_TIERS=all a skipped tier is a failure.
//
// Some tiers run at the same time, because most tiers mostly wait. Those that take longest start first, so that
// the processors are busy until the end. A tier's output is printed when the tier finishes. With the flag -only,
// it runs the named tiers.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"text/tabwriter"
	"time"

	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/lab/chromium"
	"workflowagent/internal/dev/lab/cluster"
	"workflowagent/internal/dev/lab/postgres"
	"workflowagent/internal/dev/storetest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	only := flag.String("only", "", "comma-separated tiers to run (default: all)")
	flag.Parse()
	if err := run(ctx, *only); err != nil {
		fmt.Fprintln(os.Stderr, "make test:", err)
		stop()
		os.Exit(1)
	}
}

type tier struct {
	name    string
	what    string
	missing func(context.Context) string // why this machine cannot run it, or ""
	test    func(*suite, context.Context, io.Writer) error
}

type suite struct {
	root string
	dir  string        // directory for the servers' files
	env  []string      // environment of the tests
	race bool          // the race detector is available
	cpu  *atomic.Int64 // nanoseconds of all processors that the tests of a tier took
}

func run(ctx context.Context, only string) error {
	chosen, err := choose(tiers(), only)
	if err != nil {
		return err
	}
	root, err := lab.Root()
	if err != nil {
		return err
	}
	// The paths of sockets in this directory must be shorter than 104 characters.
	dir, err := os.MkdirTemp("", "tiers-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	// Other users run the programs of this directory.
	if err := os.Chmod(dir, 0o711); err != nil {
		return err
	}
	s := &suite{root: root, dir: dir, env: append(os.Environ(), storetest.TemplatesEnv+"="+dir)}
	r := &results{}
	if reason := raceMissing(ctx); reason == "" {
		s.race = true
	} else {
		fmt.Println("the race detector is off: " + reason)
		r.skip(raceDetector, reason)
	}
	// Build the product once, instead of in every end-to-end package.
	bin := filepath.Join(dir, "bin")
	if err := lab.BuildProduct(ctx, bin, os.Stdout); err != nil {
		return err
	}
	s.env = append(s.env, "WORKFLOW_BIN="+bin)
	inTurn(chosen, atOnce, func(t tier) { s.run(ctx, t, r) })
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	fmt.Println("\ntest tiers:")
	report := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprint(report, strings.Join(r.lines, ""))
	fmt.Fprintln(report, "gitea\toptional\tdeployments from a real Gitea, and its client: run make gitea")
	if err := report.Flush(); err != nil {
		return err
	}
	for _, line := range r.causes {
		fmt.Println(line)
	}
	return conclude(r.failed, r.skipped, os.Getenv("WORKFLOW_REQUIRE_TIERS") == "all")
}

type results struct {
	mu                     sync.Mutex
	lines, failed, skipped []string
	causes                 []string // the names of the tests that failed, for readers who see only the end of the output
}

func (r *results) skip(name, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.skipped = append(r.skipped, name)
	r.lines = append(r.lines, fmt.Sprintf("%s\tskipped\t%s\n", name, reason))
}

func (s *suite) run(ctx context.Context, t tier, r *results) {
	if ctx.Err() != nil {
		return
	}
	if reason := t.missing(ctx); reason != "" {
		r.skip(t.name, reason)
		return
	}
	fmt.Printf("tier %s started\n", t.name)
	var out bytes.Buffer
	start, counted := time.Now(), *s
	counted.cpu = &atomic.Int64{}
	err := t.test(&counted, ctx, &out)
	took, cpu := time.Since(start).Round(time.Second), time.Duration(counted.cpu.Load()).Round(time.Second)
	r.mu.Lock()
	defer r.mu.Unlock()
	verdict := "passed"
	if err != nil {
		verdict = "FAILED"
		r.failed = append(r.failed, t.name)
		fmt.Fprintln(&out, err)
		r.causes = append(r.causes, causes(t.name, out.String())...)
	}
	fmt.Printf("\n--- tier %s: %s\n%s", t.name, t.what, &out)
	r.lines = append(r.lines, fmt.Sprintf("%s\t%s\t%s\t(%s of processors)\n", t.name, verdict, took, cpu))
}

// causes returns the lines of a tier's output that say which tests and packages failed.
func causes(tier, out string) []string {
	var found []string
	for line := range strings.Lines(out) {
		text := strings.TrimSpace(line)
		if strings.HasPrefix(text, "--- FAIL: ") || strings.HasPrefix(line, "FAIL\t") || strings.HasPrefix(line, "panic: ") {
			found = append(found, tier+": "+text)
		}
	}
	return found
}

func conclude(failed, skipped []string, requireAll bool) error {
	if len(failed) > 0 {
		return fmt.Errorf("failed: %s", strings.Join(failed, ", "))
	}
	if len(skipped) > 0 && requireAll {
		return fmt.Errorf("WORKFLOW_REQUIRE_TIERS=all: skipped tiers: %s", strings.Join(skipped, ", "))
	}
	return nil
}

// raceDetector is reported like a tier if it is missing, because tests find fewer errors without
// it.
const raceDetector = "race detector"

// raceMissing returns why tests cannot be built with the race detector, or "".
func raceMissing(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "go", "env", "CC").Output()
	compiler := strings.Fields(string(out))
	switch {
	case err != nil:
		return "reading Go's environment: " + err.Error()
	case len(compiler) == 0:
		return "Go has no C compiler (CC)"
	}
	if _, err := exec.LookPath(compiler[0]); err != nil {
		return "the C compiler " + compiler[0] + " is not installed"
	}
	return ""
}

func (s *suite) provider(ctx context.Context, out io.Writer) error {
	return s.goTestIn(ctx, out, filepath.Join(s.root, "internal", "dev", "tools", "provider"), s.env, "./...")
}

func (s *suite) install(ctx context.Context, out io.Writer) error {
	return s.goTestIn(ctx, out, filepath.Join(s.root, "internal", "dev", "tools", "install"), s.env, "./...")
}

func (s *suite) evaluator(ctx context.Context, out io.Writer) error {
	return s.goTestIn(ctx, out, filepath.Join(s.root, "cmd", "workflow-esc"), s.env, "./...")
}

func (s *suite) pages(ctx context.Context, out io.Writer) error {
	return s.goTestIn(ctx, out, filepath.Join(s.root, "internal", "dev", "tools", "console"), s.env, "./...")
}

// engineTests matches the names of tests in other tiers' packages that require a Docker Engine.
const engineTests = "^TestEngine"

// ownEngineTests matches the names of those that start an engine of their own.
const ownEngineTests = "^TestEngineCompose"

// clusterTests matches the names of tests in other tiers' packages that require a Kubernetes cluster.
const clusterTests = "^TestCluster"

// nodeTests matches the names of those that affect all pods of their cluster.
const nodeTests = "^TestClusterNode"

func e2e(name, parallel string) func(*suite, context.Context, io.Writer) error {
	return func(s *suite, ctx context.Context, out io.Writer) error {
		return s.goTest(ctx, out, s.env, "-skip", engineTests+"|"+clusterTests, "-parallel", parallel, "./internal/dev/e2e/"+name)
	}
}

// engine tests the executor with an engine of its own while the end-to-end tests share another.
func (s *suite) engine(ctx context.Context, out io.Writer) error {
	return together(ctx, out,
		func(ctx context.Context, out io.Writer) error { return s.raceTest(ctx, out, s.env, enginePackages...) },
		func(ctx context.Context, out io.Writer) error {
			engine, err := lab.NeedEngine(ctx, filepath.Join(s.dir, "e"))
			if err != nil {
				return err
			}
			defer func() { _ = engine.Stop() }()
			// One package at a time, because tests check that no container is left.
			return s.goTest(ctx, out, append(slices.Clone(s.env), "DOCKER_HOST="+engine.Host), "-run", engineTests, "-skip", ownEngineTests, "-parallel", parallelTests, "-p", "1",
				"./internal/dev/e2e/engine", "./internal/dev/e2e/clients", "./internal/dev/e2e/faults")
		},
		func(ctx context.Context, out io.Writer) error {
			return s.goTest(ctx, out, s.env, "-run", ownEngineTests, "./internal/dev/e2e/engine")
		},
	)
}

// cluster tests with two clusters. Tests that stop programs of a cluster or drain its node affect all
// of its pods. They are in the second one, where no other tests run at the same time.
func (s *suite) cluster(ctx context.Context, out io.Writer) error {
	const e2e = "./internal/dev/e2e/"
	return together(ctx, out,
		func(ctx context.Context, out io.Writer) error {
			return s.inCluster(ctx, func(env []string) error {
				return together(ctx, out,
					func(ctx context.Context, out io.Writer) error {
						return s.goTest(ctx, out, env, "-run", clusterTests, "-skip", nodeTests, "-parallel", parallelTests, "-p", "3", e2e+"faults", e2e+"cluster", e2e+"install")
					},
					func(ctx context.Context, out io.Writer) error {
						return s.raceTest(ctx, out, env, "-parallel", parallelTests, "./internal/agent/executor/kubernetes")
					},
				)
			})
		},
		func(ctx context.Context, out io.Writer) error {
			return s.inCluster(ctx, func(env []string) error {
				return errors.Join(
					s.goTest(ctx, out, env, "./internal/dev/lab/cluster"),
					s.goTest(ctx, out, env, "-run", nodeTests, e2e+"faults"),
				)
			})
		},
	)
}

// together runs tests at the same time. It writes their output to out, one after the other.
func together(ctx context.Context, out io.Writer, tests ...func(ctx context.Context, out io.Writer) error) error {
	outs := make([]bytes.Buffer, len(tests))
	errs := make([]error, len(tests))
	var all sync.WaitGroup
	for i, test := range tests {
		all.Go(func() { errs[i] = test(ctx, &outs[i]) })
	}
	all.Wait()
	for i := range outs {
		_, _ = outs[i].WriteTo(out)
	}
	return errors.Join(errs...)
}

// inCluster calls test with the environment of tests that use a new cluster.
func (s *suite) inCluster(ctx context.Context, test func(env []string) error) (err error) {
	c, err := cluster.Start(ctx, cluster.Options{Progress: os.Stdout})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	return test(append(slices.Clone(s.env), cluster.Variable+"="+c.Dir))
}

// raceTest tests packages, with the race detector if it is available. The race detector requires cgo. It does not
// observe SQLite, which is C translated to Go: that would take four times as long as all other code together.
func (s *suite) raceTest(ctx context.Context, out io.Writer, env []string, packages ...string) error {
	if !s.race {
		return s.goTest(ctx, out, env, packages...)
	}
	return s.goTest(ctx, out, append(slices.Clone(env), "CGO_ENABLED=1"), append([]string{"-race", "-gcflags=modernc.org/...=-race=false"}, packages...)...)
}

func (s *suite) goTest(ctx context.Context, out io.Writer, env []string, args ...string) error {
	return s.goTestIn(ctx, out, s.root, env, args...)
}

func (s *suite) goTestIn(ctx context.Context, out io.Writer, dir string, env []string, args ...string) error {
	// -vet=off, because the linters include go vet.
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-count=1", "-vet=off", "-timeout=40m"}, args...)...)
	cmd.Dir, cmd.Env = dir, env
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	err := cmd.Run()
	if p := cmd.ProcessState; p != nil {
		s.cpu.Add(int64(p.UserTime() + p.SystemTime()))
	}
	if err != nil {
		return fmt.Errorf("go test: %w", err)
	}
	return nil
}

func postgresMissing(context.Context) string {
	reason, _ := postgres.Available()
	return reason
}

func clientsMissing(ctx context.Context) string {
	if _, err := exec.LookPath("git"); err != nil {
		return "git is not installed"
	}
	if _, err := lab.PulumiTools(ctx, os.Stderr); err != nil {
		return err.Error()
	}
	return ""
}

func browserMissing(ctx context.Context) string {
	if reason, ok := chromium.Available(); !ok {
		return reason
	}
	return clientsMissing(ctx)
}

func installMissing(context.Context) string {
	reason, _ := lab.NodeAvailable()
	return reason
}

func packagesMissing(context.Context) string {
	if reason, ok := lab.ReleasesAvailable(); !ok {
		return reason
	}
	// Without these programs the tests would skip checks.
	for _, program := range []string{"dpkg-deb", "lintian", "rpm", "rpmkeys", "rpmlint"} {
		if _, err := exec.LookPath(program); err != nil {
			return program + " is not installed"
		}
	}
	return ""
}

func initMissing(ctx context.Context) string {
	if reason := clientsMissing(ctx); reason != "" {
		return reason
	}
	if reason, ok := lab.ReleasesAvailable(); !ok { // the tests install packages
		return reason
	}
	reason, _ := lab.MachineAvailable()
	return reason
}

func clusterMissing(ctx context.Context) string {
	if reason, ok := cluster.Available(); !ok {
		return reason
	}
	return clientsMissing(ctx)
}

func engineMissing(context.Context) string {
	if runtime.GOOS != "linux" {
		return "containers of the test lab require Linux"
	}
	reason, _ := lab.EngineAvailable()
	return reason
}
