package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
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

// privateMode is the widest mode of a file that holds a token. The service of the machine has
// a file of root's that its group may read; chmod 600 would take it away from the service.
func privateMode(info fs.FileInfo, uid int) fs.FileMode {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && (int(stat.Uid) != uid || int(stat.Gid) != os.Getegid()) {
		return 0o640
	}
	return newFileMode
}

// LoadText is [Load] for the text that the file at path is about to get.
func LoadText(o LoadOptions, path string, text []byte) (*Config, error) {
	return load(o, Found{Path: path}, text, newFileMode, newFileMode)
}

// load makes a configuration of the file's text, if there is a file, and the environment. The
// file has a mode, and private is the one that it should have with a token in it.
func load(o LoadOptions, found Found, text []byte, mode, private fs.FileMode) (*Config, error) {
	env := environment(o.Environ)
	c := Default()
	p := paths{cwd: o.Cwd, home: o.Home}
	c.meta.file = found.Path
	for _, warning := range found.Warnings {
		c.warn("%s", warning)
	}
	for _, path := range found.Shadowed {
		c.warn("%s is not used, because %s comes first", path, found.Path)
	}

	var wrong problems
	if found.Path != "" {
		entries, unread := parseYAML(found.Path, text)
		wrong = append(unread, c.apply(found.Path, entries, p)...)
		if !c.Token.IsZero() && mode.Perm()&0o044&^private != 0 {
			c.warn("%s holds a token and can be read by other users (mode %04o): run chmod %o on it", found.Path, mode.Perm(), private)
		}
	}
	fileToken := c.Token
	wrong = append(wrong, c.applyEnvironment(env, p)...)
	if err := wrong.err(fileToken, c.Token); err != nil {
		return nil, err
	}
	c.resolve(o, env)
	c.adviseOnIdentity()
	c.adviseOnMissing()
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

// The names of the configuration file, in the order they are looked for in a directory.
const (
	FileName    = "pulumi-workflow-agent.yaml"
	OldFileName = "pulumi-deployment-agent.yaml"
)

// Found is the outcome of a search for the configuration file.
type Found struct {
	// Path is the file to read, "" if there is none.
	Path string
	// Shadowed are files further down the search order, which have no effect.
	Shadowed []string
	// Warnings are places that could not be looked at.
	Warnings []string
}

// Find looks for the configuration file: the one that was asked for, which must exist, or the
// first of both names in the current directory, the home directory, /etc and the directory of
// the binary, before which comes the one in which its installation keeps what outlives an update.
// It does not look inside.
func Find(o LoadOptions) (Found, error) {
	if o.Path != "" {
		path, err := paths{cwd: o.Cwd, home: o.Home}.absolute(o.Path)
		if err != nil {
			return Found{}, fmt.Errorf("--config: %w", err)
		}
		if _, err := os.Stat(path); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return Found{}, fmt.Errorf("the configuration file %s given with --config does not exist: correct the path or create the file", path)
			}
			return Found{}, fmt.Errorf("look at the configuration file given with --config: %w", err)
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
			found.Warnings = append(found.Warnings, fmt.Sprintf("cannot look for a configuration file: %v", err))
			continue
		case containsFile(seen, info):
			continue // the same directory twice, or a link from the old name to the new one
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

// candidates returns the places a configuration file may be, best first.
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

// installRoot returns where what is to outlive an update is kept, which is not beside the binary:
// the directory of an installation that updates itself, in which each version has its own directory
// ROOT/versions/VERSION, or the etc of the Homebrew that the binary is from. It is "" if the binary
// lies elsewhere.
func (o LoadOptions) installRoot() string {
	dir := filepath.Dir(o.Binary)
	if parent := filepath.Dir(dir); filepath.IsAbs(dir) && filepath.Base(parent) == "versions" && strings.HasPrefix(filepath.Base(dir), "v") {
		return filepath.Dir(parent)
	}
	return o.brewEtc()
}

// brewEtc returns PREFIX/etc for a binary in PREFIX/Cellar/FORMULA, "" for one that is not
// Homebrew's.
func (o LoadOptions) brewEtc() string {
	prefix, _, ok := strings.Cut(o.Binary, "/Cellar/customer-managed-workflow-agent/")
	if !ok || !filepath.IsAbs(prefix) {
		return ""
	}
	return filepath.Join(prefix, "etc")
}

func containsFile(seen []os.FileInfo, info os.FileInfo) bool {
	for _, s := range seen {
		if os.SameFile(s, info) {
			return true
		}
	}
	return false
}

// readFile reads a configuration file after checking that nobody but its owner can have written
// it and that the owner is root or the user uid.
func readFile(path string, uid int) ([]byte, fs.FileInfo, error) {
	// O_NONBLOCK keeps a named pipe from blocking the start forever; the checks are made on what
	// was opened, so that nobody can swap the file between check and read.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("read the configuration file: %w", err)
	}
	defer func() { _ = f.Close() }() // nothing was written that could get lost
	info, err := f.Stat()
	if err != nil {
		return nil, nil, fmt.Errorf("read the configuration file: %w", err)
	}
	if err := checkFile(path, info, uid); err != nil {
		return nil, nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err != nil {
		return nil, nil, fmt.Errorf("read the configuration file: %w", err)
	}
	if len(data) > maxFileSize {
		return nil, nil, fmt.Errorf("%s: is larger than 1 MiB, which no configuration is: check that it is the right file", path)
	}
	return data, info, nil
}

// checkFile refuses what is not a regular file under the control of root or the user alone.
func checkFile(path string, info os.FileInfo, uid int) error {
	switch {
	case info.IsDir():
		return fmt.Errorf("%s: is a directory: name the configuration file in it", path)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s: is not a regular file: name a configuration file", path)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid != 0 && int(stat.Uid) != uid {
		return fmt.Errorf("%s: belongs to user %d, who could change what this agent runs: make it belong to root or to user %d (chown %d)",
			path, stat.Uid, uid, uid)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s: can be written by other users (mode %04o), who could change what this agent runs: run chmod go-w on it",
			path, info.Mode().Perm())
	}
	return nil
}
