package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// LoadOptions is everything outside the file that the configuration depends on.
// [ProcessOptions] fills it in for a real agent; tests fill in their own.
type LoadOptions struct {
	// Path is the file asked for with --config; "" searches for one.
	Path string
	// Cwd, Home and Etc are the directories to search. An empty one is left out.
	Cwd, Home, Etc string
	// Binary is the path of the agent's binary, symbolic links resolved.
	Binary string
	// TempDir is the system's directory for temporary files.
	TempDir string
	// Environ is the environment as NAME=VALUE pairs.
	Environ []string
	// UID is the effective user.
	UID int
}

// ProcessOptions returns the options of the running process. The path is the value of --config,
// or "". What cannot be found out stays empty: an agent may run without HOME.
func ProcessOptions(path string) LoadOptions {
	o := LoadOptions{
		Path: path, Etc: "/etc", TempDir: os.TempDir(), Environ: os.Environ(), UID: os.Geteuid(),
		Home: os.Getenv("HOME"),
	}
	if cwd, err := os.Getwd(); err == nil {
		o.Cwd = cwd
	}
	if binary, err := os.Executable(); err == nil {
		o.Binary = binary
		if resolved, err := filepath.EvalSymlinks(binary); err == nil {
			o.Binary = resolved
		}
	}
	return o
}

// Default returns the configuration without any file or environment. Values that depend on the
// machine are empty in it.
func Default() *Config {
	c := &Config{meta: meta{sources: map[string]Source{}}}
	for _, f := range fields() {
		c.meta.sources[f.name] = Source{Kind: FromDefault}
		// A default that does not parse is caught by the test of the table.
		_, _ = f.set(c, f.def, paths{})
	}
	return c
}

// Load finds and reads the configuration file, lets the environment win over it, and fills in
// the defaults that depend on the machine. The error holds everything that is wrong, one line
// each in the form "FILE:LINE: key: what is wrong: what to do". Whether an agent can run with
// the result is the question of [Config.Validate].
func Load(o LoadOptions) (*Config, error) {
	env := environment(o.Environ)
	c := Default()
	p := paths{cwd: o.Cwd, home: o.Home}

	found, err := Find(o)
	if err != nil {
		return nil, err
	}
	c.meta.file = found.Path
	for _, warning := range found.Warnings {
		c.warn("%s", warning)
	}
	for _, path := range found.Shadowed {
		c.warn("%s is not used, because %s comes first", path, found.Path)
	}

	var wrong problems
	if found.Path != "" {
		data, mode, err := readFile(found.Path, o.UID)
		if err != nil {
			return nil, err
		}
		entries, unread := parseYAML(found.Path, data)
		wrong = append(unread, c.apply(found.Path, entries, p)...)
		if !c.Token.IsZero() && mode.Perm()&0o044 != 0 {
			c.warn("%s holds a token and can be read by other users (mode %04o): run chmod 600 on it", found.Path, mode.Perm())
		}
	}
	fileToken := c.Token
	wrong = append(wrong, c.applyEnvironment(env, p)...)
	if err := wrong.err(fileToken, c.Token); err != nil {
		return nil, err
	}
	c.resolve(o, env)
	c.adviseOnIdentity()
	for i, warning := range c.meta.warnings {
		c.meta.warnings[i] = scrub(warning, fileToken, c.Token)
	}
	return c, nil
}

// applyEnvironment stores the values of variables and collects what is wrong with them.
func (c *Config) applyEnvironment(env map[string]string, p paths) problems {
	var wrong problems
	known := map[string]bool{}
	for _, f := range fields() {
		known[f.env] = true
		was, err := f.set(c, env[f.env], p)
		source := Source{Kind: FromEnv, Env: f.env}
		if err != nil {
			wrong.add(source, f.name, err.Error())
			continue
		}
		if was {
			c.meta.sources[f.name] = source
		}
	}
	var unknown []string
	for name, value := range env {
		if strings.HasPrefix(name, envPrefix) && !known[name] && strings.TrimSpace(value) != "" {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	for _, name := range unknown {
		key, isECS := strings.CutPrefix(name, envPrefix+"ECS_")
		if isECS && slices.Contains(ecsKeys(), key) {
			wrong.add(Source{Kind: FromEnv, Env: name}, "ecs."+strings.ToLower(key), refusal("ecs"))
			continue
		}
		// Kubernetes makes such variables out of the names of services, so this is no error.
		c.warn("the variable %s is not one of this agent's settings and has no effect", name)
	}
	return wrong
}

// ecsKeys are the settings of the ECS target of other agents, as they appear in variables.
func ecsKeys() []string {
	return []string{"CLUSTER", "SUBNETS", "SECURITY_GROUPS", "LAUNCH_TYPE", "ASSIGN_PUBLIC_IP", "TASK_DEFINITION_TEMPLATE_FILE"}
}

// environment turns NAME=VALUE pairs into a map; of a name that comes twice the last one counts.
func environment(environ []string) map[string]string {
	env := make(map[string]string, len(environ))
	for _, pair := range environ {
		if name, value, ok := strings.Cut(pair, "="); ok {
			env[name] = value
		}
	}
	return env
}

func (c *Config) warn(format string, args ...any) {
	c.meta.warnings = append(c.meta.warnings, fmt.Sprintf(format, args...))
}
