package languagehost

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// plugin is the host's directory among the plugins in PULUMI_HOME. The CLI prefers every higher version, such as
// one of the job's image.
const plugin = "language-" + Runtime + "-v0.0.1"

// Install makes the CLI find the host in an environment, a list of NAME=value, and returns the environment. It links
// the runner's program among the CLI's plugins, or in dir, which it appends to the PATH, if the plugins belong to
// another user. The CLI reports a host on the PATH as a warning of each update.
func Install(env []string, runner, dir string) ([]string, error) {
	vars, path := map[string]string{}, -1
	for i, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		vars[name] = value
		if name == "PATH" {
			path = i
		}
	}
	home := cmp.Or(vars["PULUMI_HOME"], filepath.Join(cmp.Or(passwdHome(), vars["HOME"]), ".pulumi"))
	if filepath.IsAbs(home) && link(filepath.Join(home, "plugins", plugin), runner) == nil {
		return env, nil
	}
	if err := link(dir, runner); err != nil {
		return env, fmt.Errorf("installing the language host: %w", err)
	}
	if path < 0 {
		return append(slices.Clip(env), "PATH="+dir), nil
	}
	env = slices.Clone(env)
	env[path] += string(os.PathListSeparator) + dir
	return env, nil
}

// passwdHome returns the home directory of the user in the system's database, or "". The CLI reads it there and not in
// HOME, which the runner replaces where an agent passes none. Tests replace the function.
var passwdHome = func() string {
	u, err := user.LookupId(strconv.Itoa(os.Getuid()))
	if err != nil {
		return "" // as the CLI, which then reads HOME
	}
	return u.HomeDir
}

// link makes dir contain the host. Jobs of another version of the runner can share the directory.
func link(dir, runner string) error {
	at := filepath.Join(dir, Program)
	if current, err := os.Readlink(at); err == nil && current == runner {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := os.Remove(at); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err := os.Symlink(runner, at)
	if errors.Is(err, fs.ErrExist) {
		return nil // another job was faster
	}
	return err
}
