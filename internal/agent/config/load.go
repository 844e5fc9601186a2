package config

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"workflowagent/internal/settings"
	"workflowagent/internal/settings/conffile"
)

// LoadOptions contains the inputs of [Load] other than the content of the configuration file.
type LoadOptions struct {
	// Path is the value of --config. If it is "", Load searches for a file.
	Path string
	// Cwd, Home and Etc are the directories to search. An empty name is skipped.
	Cwd, Home, Etc string
	// Binary is the path of the agent's binary, with symbolic links resolved.
	Binary string
	// TempDir is the system's directory for temporary files.
	TempDir string
	Environ []string
	UID     int
	// ServiceState returns the state directory of the service of this machine that reads a
	// configuration file and runs as a user, or "". It can be nil.
	ServiceState func(file string, uid int) string
}

// ProcessOptions returns the options for the running process. The path is the value of --config, or
// "". Values that cannot be determined stay empty, because an agent can run without HOME.
func ProcessOptions(path string) LoadOptions {
	o := LoadOptions{
		Path: path, Etc: "/etc", TempDir: os.TempDir(), Environ: os.Environ(), UID: os.Geteuid(),
		Home: os.Getenv("HOME"), Binary: conffile.Program(),
	}
	if cwd, err := os.Getwd(); err == nil {
		o.Cwd = cwd
	}
	return o
}

// Dirs returns the base directories for relative paths.
func (o LoadOptions) Dirs() settings.Dirs { return settings.Dirs{Cwd: o.Cwd, Home: o.Home} }

// Load finds and reads the configuration file, applies the environment, which takes precedence, and
// fills in the defaults that depend on the machine. The error lists every problem on a line of the
// form "FILE:LINE: key: problem: remedy". [Config.Validate] checks whether an agent can run with
// the result.
func Load(o LoadOptions) (*Config, error) {
	found, err := Find(o)
	if err != nil {
		return nil, err
	}
	var file conffile.File
	if found.Path != "" {
		if file, err = conffile.Read(found.Path, o.UID, atRisk); err != nil {
			return nil, err
		}
	}
	return load(o, found, file)
}

// atRisk is what users who can write the configuration file could change.
const atRisk = "the commands of this agent"

// LoadText is like [Load], but reads the configuration from text, which is about to be written to
// path.
func LoadText(o LoadOptions, path string, text []byte) (*Config, error) {
	return load(o, conffile.Found{Path: path}, conffile.File{Path: path, Text: text})
}

// load merges the file and the environment.
func load(o LoadOptions, found conffile.Found, file conffile.File) (*Config, error) {
	c := &Config{meta: meta{file: found.Path, warnings: found.Warnings()}}
	t := table(c)
	t.Dirs = o.Dirs()
	t.SetDefaults()
	if found.Path != "" {
		t.ReadFile(found.Path, file.Text)
		c.meta.warnings = append(c.meta.warnings, t.Warnings...)
		if warning := file.Exposed("a token"); !c.Token.IsZero() && warning != "" {
			c.warn("%s", warning)
		}
	}
	fileToken := c.Token
	env := conffile.Environment(o.Environ)
	t.ReadEnv(func(name string) string { return env[name] })
	c.checkVariables(t, env)
	if err := t.Problems.Err(fileToken, c.Token); err != nil {
		return nil, err
	}
	c.meta.sources = t.Sources
	c.resolve(o, env)
	c.adviseOnIdentity()
	c.adviseOnKubernetes()
	for i, warning := range c.meta.warnings {
		c.meta.warnings[i] = settings.Scrub(warning, fileToken, c.Token)
	}
	return c, nil
}

// checkVariables warns about unknown variables with the agent's prefix, and rejects the variables
// of the ECS target.
func (c *Config) checkVariables(t *settings.Table, env map[string]string) {
	known := map[string]bool{}
	for _, f := range t.Fields() {
		known[f.Env] = true
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if !strings.HasPrefix(name, envPrefix) || known[name] || strings.TrimSpace(env[name]) == "" {
			continue
		}
		key, isECS := strings.CutPrefix(name, envPrefix+"ECS_")
		if isECS && slices.Contains(ecsKeys(), key) {
			t.Problems.Add(settings.Source{Kind: settings.FromEnv, Name: name}, "ecs."+strings.ToLower(key), refuse("ecs"))
			continue
		}
		// This is only a warning, because Kubernetes derives such variables from service names.
		c.warn("the variable %s is not one of this agent's settings and has no effect", name)
	}
}

func ecsKeys() []string {
	return []string{"CLUSTER", "SUBNETS", "SECURITY_GROUPS", "LAUNCH_TYPE", "ASSIGN_PUBLIC_IP", "TASK_DEFINITION_TEMPLATE_FILE"}
}

func (c *Config) warn(format string, args ...any) {
	c.meta.warnings = append(c.meta.warnings, fmt.Sprintf(format, args...))
}

// The names of the configuration file, in search order.
const (
	FileName    = "pulumi-workflow-agent.yaml"
	OldFileName = "pulumi-deployment-agent.yaml"
)

// Find locates the configuration file without reading it. The file is the value of --config, which
// must exist, or the first existing file with either name in the current directory, the home
// directory, /etc, the installation's root (see installRoot), and the directory of the binary.
func Find(o LoadOptions) (conffile.Found, error) {
	return conffile.Find(o.Path, o.Dirs(), candidates(o))
}

func candidates(o LoadOptions) []string {
	dirs := []string{o.Cwd, o.Home, o.Etc}
	if o.Binary != "" {
		if root := o.installRoot(); root != "" {
			dirs = append(dirs, root)
		}
		dirs = append(dirs, filepath.Dir(o.Binary))
	}
	var all []string
	for _, dir := range dirs {
		if dir == "" {
			continue
		}
		all = append(all, filepath.Join(dir, FileName), filepath.Join(dir, OldFileName))
	}
	return all
}

// installRoot returns a directory for the configuration file that updates do not replace. For an
// installation that updates itself and keeps each version in ROOT/versions/VERSION, it returns
// ROOT. For a binary that Homebrew installed, it returns Homebrew's etc directory. For other
// binaries, it returns "".
func (o LoadOptions) installRoot() string {
	dir := filepath.Dir(o.Binary)
	if parent := filepath.Dir(dir); filepath.IsAbs(dir) && filepath.Base(parent) == "versions" && strings.HasPrefix(filepath.Base(dir), "v") {
		return filepath.Dir(parent)
	}
	return o.brewEtc()
}

func (o LoadOptions) brewEtc() string {
	prefix, _, ok := strings.Cut(o.Binary, "/Cellar/customer-managed-workflow-agent/")
	if !ok || !filepath.IsAbs(prefix) {
		return ""
	}
	return filepath.Join(prefix, "etc")
}
