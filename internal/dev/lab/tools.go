package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"workflowagent/internal/dev/lab/child"
)

const (
	// PulumiVersion is the version of the CLI in the nested module internal/dev/tools/pulumi.
	PulumiVersion = "v3.276.0"
	// PreviousPulumiVersion is the version of the CLI in the nested module internal/dev/tools/previouspulumi.
	PreviousPulumiVersion = "v3.255.0"
	// OldPulumiVersion is the version of the CLI in the nested module internal/dev/tools/oldpulumi.
	OldPulumiVersion = "v3.206.0"
	// ProviderVersion is the version that the providers "lab" and "pulumiservice" report.
	ProviderVersion = "0.1.0"

	pulumiBinary   = "pulumi"
	yamlBinary     = "pulumi-language-yaml"
	providerBinary = "pulumi-resource-lab"
	replayerBinary = "replayer"
	hostBinary     = "language-host"
	serviceBinary  = "pulumi-resource-pulumiservice"
)

// Tools are Pulumi programs.
type Tools struct {
	// Dir holds pulumi and pulumi-language-yaml.
	Dir string
	// ProviderDir holds pulumi-resource-lab and pulumi-resource-pulumiservice, or is "" without
	// providers. A provider must be in a Pulumi home: the CLI warns at every step about a provider
	// on the PATH.
	ProviderDir string

	yaml string // path of pulumi-language-yaml if Dir lacks it
}

// PulumiTools returns the pinned programs from the cache, or builds them, which takes minutes and
// is reported on progress.
func PulumiTools(ctx context.Context, progress io.Writer) (Tools, error) {
	tools, err := PulumiCLI(ctx, progress)
	if err != nil {
		return Tools{}, err
	}
	tools.ProviderDir, err = buildModule(ctx, progress, "provider", []program{
		{
			name: providerBinary, pkg: ".",
			ldflags: "-X main.version=" + ProviderVersion,
			what:    "the example provider", expect: "about 1 min",
		},
		{
			name: serviceBinary, pkg: "./service",
			ldflags: "-X main.version=" + ProviderVersion,
			what:    "the provider of the server's own resources", expect: "a few seconds",
		},
	})
	return tools, err
}

// PulumiCLI is [PulumiTools] without the providers.
func PulumiCLI(ctx context.Context, progress io.Writer) (Tools, error) {
	dir, err := buildModule(ctx, progress, "pulumi", []program{
		{
			name: pulumiBinary, pkg: "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi",
			ldflags: "-X github.com/pulumi/pulumi/sdk/v3/go/common/version.Version=" + PulumiVersion,
			what:    "the pulumi CLI", expect: "about 5 min",
		},
		{
			name: yamlBinary, pkg: "github.com/pulumi/pulumi-yaml/cmd/pulumi-language-yaml",
			ldflags: "-X github.com/pulumi/pulumi/sdk/v3/go/common/version.Version=" + PulumiVersion,
			what:    "Pulumi's YAML language host", expect: "about 1 min",
		},
	})
	return Tools{Dir: dir}, err
}

// OldPulumi returns the path of an older CLI, building it if necessary.
func OldPulumi(ctx context.Context, progress io.Writer) (string, error) {
	dir, err := buildModule(ctx, progress, "oldpulumi", []program{{
		name: pulumiBinary, pkg: "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi",
		ldflags: "-X github.com/pulumi/pulumi/sdk/v3/go/common/version.Version=" + OldPulumiVersion,
		what:    "an older pulumi CLI", expect: "about 3 min",
	}})
	return filepath.Join(dir, pulumiBinary), err
}

// PreviousPulumi returns the tools with the CLI before the newest one, building it if necessary. It is built after the
// newest one, with which it shares most packages.
func PreviousPulumi(ctx context.Context, progress io.Writer) (Tools, error) {
	tools, err := PulumiTools(ctx, progress)
	if err != nil {
		return Tools{}, err
	}
	tools.yaml = filepath.Join(tools.Dir, yamlBinary)
	tools.Dir, err = buildModule(ctx, progress, "previouspulumi", []program{{
		name: pulumiBinary, pkg: "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi",
		ldflags: "-X github.com/pulumi/pulumi/sdk/v3/go/common/version.Version=" + PreviousPulumiVersion,
		what:    "the pulumi CLI before the newest", expect: "about 1 min",
	}})
	return tools, err
}

// Replayer returns the path of the program that replays journals with the CLI's code, building it
// if necessary. It builds the CLI first, so that only the replayer's main package remains to be
// compiled.
func Replayer(ctx context.Context, progress io.Writer) (string, error) {
	if _, err := PulumiCLI(ctx, progress); err != nil {
		return "", err
	}
	dir, err := buildPrograms(ctx, progress, "pulumi", replayerBinary, []program{{
		name: replayerBinary, pkg: "./" + replayerBinary,
		ldflags: "-X github.com/pulumi/pulumi/sdk/v3/go/common/version.Version=" + PulumiVersion,
		what:    "the replayer of journals", expect: "about 1 min",
	}})
	return filepath.Join(dir, replayerBinary), err
}

// LanguageHost returns the path of a language host of Node.js, Python and Go, building it if necessary.
// It runs the language in its name, so callers link pulumi-language-nodejs to it, for example. It is
// built after the CLI, with which it shares most packages.
func LanguageHost(ctx context.Context, progress io.Writer) (string, error) {
	if _, err := PulumiCLI(ctx, progress); err != nil {
		return "", err
	}
	dir, err := buildPrograms(ctx, progress, "pulumi", hostBinary, []program{{
		name: hostBinary, pkg: "./languages", what: "the language host", expect: "about 1 min",
	}})
	return filepath.Join(dir, hostBinary), err
}

// Pulumi returns the path of the pulumi CLI.
func (t Tools) Pulumi() string { return filepath.Join(t.Dir, pulumiBinary) }

// Provider returns the path of the provider's program.
func (t Tools) Provider() string { return filepath.Join(t.ProviderDir, providerBinary) }

// Home makes dir a Pulumi home that holds at most the providers, and the programs that Dir lacks.
func (t Tools) Home(dir string) error {
	if err := os.MkdirAll(filepath.Join(dir, "user"), 0o755); err != nil {
		return fmt.Errorf("preparing a Pulumi home: %w", err)
	}
	var programs []string
	if t.ProviderDir != "" {
		programs = append(programs, filepath.Join(t.ProviderDir, providerBinary), filepath.Join(t.ProviderDir, serviceBinary))
	}
	if t.yaml != "" {
		programs = append(programs, t.yaml)
	}
	for _, program := range programs {
		name := filepath.Base(program)
		plugin := filepath.Join(dir, "plugins", pluginDir(name))
		if err := os.MkdirAll(plugin, 0o755); err != nil {
			return fmt.Errorf("preparing a Pulumi home: %w", err)
		}
		if err := os.Symlink(program, filepath.Join(plugin, name)); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("installing a plugin: %w", err)
		}
	}
	return nil
}

// Env returns a complete environment for the CLI, which inherits only the PATH, the temporary
// directory and the proxies. home must have been prepared by [Tools.Home]. An empty backendURL or
// token is omitted.
func (t Tools) Env(home, backendURL, token string) []string {
	env := append(t.Quiet(),
		"PATH="+t.Dir+string(os.PathListSeparator)+os.Getenv("PATH"),
		"HOME="+filepath.Join(home, "user"),
		"PULUMI_HOME="+home,
		"LANG=C.UTF-8",
		"GIT_CONFIG_NOSYSTEM=1",
		"GIT_TERMINAL_PROMPT=0",
	)
	for _, name := range []string{"TMPDIR", "NO_PROXY", "no_proxy"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	if backendURL != "" {
		env = append(env, "PULUMI_BACKEND_URL="+backendURL)
	}
	if token != "" {
		env = append(env, "PULUMI_ACCESS_TOKEN="+token)
	}
	return env
}

// Quiet returns environment variables that limit the CLI's connections to its backend: no update
// check, no plugin downloads, no package registry.
func (Tools) Quiet() []string {
	return []string{
		"PULUMI_SKIP_UPDATE_CHECK=true",
		"PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION=true",
		"PULUMI_DISABLE_REGISTRY_RESOLVE=true",
	}
}

func pluginDir(binary string) string {
	return strings.TrimPrefix(binary, "pulumi-") + "-v" + ProviderVersion
}

type program struct {
	name, pkg, ldflags string
	what, expect       string
	cgoTags            string // build tags of a program that needs cgo, or ""
}

// toolDir returns the directory of the nested module internal/dev/tools/name.
func toolDir(name string) (string, error) {
	root, err := Root()
	return filepath.Join(root, "internal", "dev", "tools", name), err
}

// buildModule returns the directory of the programs of the nested module internal/dev/tools/name.
func buildModule(ctx context.Context, progress io.Writer, name string, programs []program) (string, error) {
	return buildPrograms(ctx, progress, name, name, programs)
}

// buildPrograms returns the cached directory, called name, of programs of the nested module
// internal/dev/tools/module. It reports on progress what it builds.
func buildPrograms(ctx context.Context, progress io.Writer, module, name string, programs []program) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	version, err := goVersion(ctx, root)
	if err != nil {
		return "", err
	}
	src := filepath.Join(root, "internal", "dev", "tools", module)
	var key fingerprint
	dirs := []string{src}
	for _, p := range programs {
		if strings.HasPrefix(p.pkg, "./") {
			dirs = append(dirs, filepath.Join(src, p.pkg))
		}
	}
	for _, dir := range dirs {
		if err := key.addModule(dir); err != nil {
			return "", fmt.Errorf("reading the source of %s: %w", programs[0].what, err)
		}
	}
	key.add("go", version)
	key.add("platform", runtime.GOOS+"/"+runtime.GOARCH)
	for _, p := range programs {
		key.add(p.name, p.pkg+" "+p.ldflags+p.cgoTags)
	}
	return cached(ctx, name, key.sum(), func(dir string) error {
		for _, p := range programs {
			if err := p.build(ctx, progress, src, filepath.Join(dir, p.name)); err != nil {
				return err
			}
		}
		return nil
	})
}

func (p program) build(ctx context.Context, progress io.Writer, src, out string) error {
	cgo := "0"
	if p.cgoTags != "" {
		cgo = "1"
	}
	cmd := child.Command(ctx, "go", "build", "-v", "-trimpath", "-mod=readonly", "-buildvcs=false", "-tags", p.cgoTags,
		"-ldflags", strings.TrimSpace("-s -w "+p.ldflags), "-o", out, p.pkg)
	cmd.Dir = src
	cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo, "GOWORK=off")
	watch := newBuildWatch(progress, fmt.Sprintf("building %s (first time only; %s on two cores)", p.what, p.expect))
	cmd.Stdout, cmd.Stderr = watch, watch
	defer watch.stop()
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("building %s from %s: %w\n%s", p.what, src, err, watch.tail())
	}
	return nil
}

func goVersion(ctx context.Context, dir string) (string, error) {
	cmd := child.Command(ctx, "go", "env", "GOVERSION")
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("reading Go's version (Go must be on the PATH): %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}
