package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"workflowagent/internal/settings"
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
}

// ProcessOptions returns the options for the running process. The path is the value of --config, or
// "". Values that cannot be determined stay empty, because an agent can run without HOME.
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
	if found.Path == "" {
		return load(o, found, nil, 0, 0)
	}
	data, info, err := readFile(found.Path, o.UID)
	if err != nil {
		return nil, err
	}
	return load(o, found, data, info.Mode(), privateMode(info, o.UID))
}

// privateMode returns the most permissive mode for a file that contains a token. The system
// service's file belongs to root and is readable by its group; chmod 600 would make it unreadable
// for the service.
func privateMode(info fs.FileInfo, uid int) fs.FileMode {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && (int(stat.Uid) != uid || int(stat.Gid) != os.Getegid()) {
		return 0o640
	}
	return newFileMode
}

// LoadText is like [Load], but reads the configuration from text, which is about to be written to
// path.
func LoadText(o LoadOptions, path string, text []byte) (*Config, error) {
	return load(o, Found{Path: path}, text, newFileMode, newFileMode)
}

// load merges the file's text and the environment. private is the most permissive mode for a file
// with a token.
func load(o LoadOptions, found Found, text []byte, mode, private fs.FileMode) (*Config, error) {
	c := &Config{meta: meta{file: found.Path}}
	for _, warning := range found.Warnings {
		c.warn("%s", warning)
	}
	for _, path := range found.Shadowed {
		c.warn("%s is not used, because %s comes first", path, found.Path)
	}
	t := table(c)
	t.Dirs = o.Dirs()
	t.SetDefaults()
	if found.Path != "" {
		t.ReadFile(found.Path, text)
		c.meta.warnings = append(c.meta.warnings, t.Warnings...)
		if !c.Token.IsZero() && mode.Perm()&0o044&^private != 0 {
			c.warn("%s contains a token and can be read by other users (mode %04o): run chmod %o on it", found.Path, mode.Perm(), private)
		}
	}
	fileToken := c.Token
	env := environment(o.Environ)
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

// environment converts NAME=VALUE pairs to a map. If a name occurs more than once, the last value
// wins.
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

// The names of the configuration file, in search order.
const (
	FileName    = "pulumi-workflow-agent.yaml"
	OldFileName = "pulumi-deployment-agent.yaml"
)

// Found is the result of a search for the configuration file.
type Found struct {
	// Path is the file to read, or "" if no file was found.
	Path string
	// Shadowed lists files that are ignored because they come later in the search order.
	Shadowed []string
	// Warnings lists the directories that cannot be searched, with the reasons.
	Warnings []string
}

// Find locates the configuration file without reading it. The file is the value of --config, which
// must exist, or the first existing file with either name in the current directory, the home
// directory, /etc, the installation's root (see installRoot), and the directory of the binary.
func Find(o LoadOptions) (Found, error) {
	if o.Path != "" {
		path, err := o.Dirs().Absolute(o.Path)
		if err != nil {
			return Found{}, fmt.Errorf("--config: %w", err)
		}
		if _, err := os.Stat(path); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return Found{}, fmt.Errorf("the configuration file %s given with --config does not exist: correct the path or create the file", path)
			}
			return Found{}, fmt.Errorf("checking the configuration file given with --config: %w", err)
		}
		return Found{Path: path}, nil
	}

	var found Found
	var seen []os.FileInfo
	for _, path := range candidates(o) {
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
			continue
		case err != nil:
			found.Warnings = append(found.Warnings, fmt.Sprintf("searching for a configuration file failed: %v", err))
			continue
		case slices.ContainsFunc(seen, func(s os.FileInfo) bool { return os.SameFile(s, info) }):
			continue // the same directory again, or a link from the old name to the new one
		}
		seen = append(seen, info)
		if found.Path == "" {
			found.Path = path
		} else {
			found.Shadowed = append(found.Shadowed, path)
		}
	}
	return found, nil
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

// readFile reads a configuration file. It rejects a file that users other than root and uid could
// have written.
func readFile(path string, uid int) ([]byte, fs.FileInfo, error) {
	// O_NONBLOCK prevents a named pipe from blocking the start forever. The checks apply to the
	// open file, which cannot be replaced between the checks and the read.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the configuration file: %w", err)
	}
	defer func() { _ = f.Close() }() // nothing was written, so the error can be ignored
	info, err := f.Stat()
	if err != nil {
		return nil, nil, fmt.Errorf("reading the configuration file: %w", err)
	}
	if err := checkFile(path, info, uid); err != nil {
		return nil, nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err != nil {
		return nil, nil, fmt.Errorf("reading the configuration file: %w", err)
	}
	if len(data) > maxFileSize {
		return nil, nil, fmt.Errorf("%s: is larger than 1 MiB: check that it is the right file", path)
	}
	return data, info, nil
}

func checkFile(path string, info os.FileInfo, uid int) error {
	switch {
	case info.IsDir():
		return fmt.Errorf("%s: is a directory: name the configuration file in it", path)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s: is not a regular file: name a configuration file", path)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid != 0 && int(stat.Uid) != uid {
		return fmt.Errorf("%s: belongs to user %d, who could change the commands of this agent: change its owner to root or to user %d (chown %d)",
			path, stat.Uid, uid, uid)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s: can be written by other users (mode %04o), who could change the commands of this agent: run chmod go-w on it",
			path, info.Mode().Perm())
	}
	return nil
}
