package environ

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// cacheVariables name the directories in which tools keep what they download or compile. Of these, only
// caches of packages and build results are in a workspace, never a tool's settings, which can contain
// credentials. Poetry is missing, because its cache contains the installed virtual environments.
var cacheVariables = map[string]string{
	"npm_config_cache":      "npm",
	"YARN_CACHE_FOLDER":     "yarn",
	"BUN_INSTALL_CACHE_DIR": "bun",
	"PIP_CACHE_DIR":         "pip",
	"UV_CACHE_DIR":          "uv",
	"GOMODCACHE":            "go-modules",
	"GOCACHE":               "go-build",
	"NUGET_PACKAGES":        "nuget",
}

// cacheLinks are the directories below HOME of the tools that have no such variable, or whose variable
// also moves their settings. unless is a variable that makes the tool use another directory.
var cacheLinks = []struct{ path, unless, cache string }{
	{".local/share/pnpm/store", "PNPM_HOME", "pnpm"},
	{".m2/repository", "", "maven"},
	{".gradle/caches", "GRADLE_USER_HOME", "gradle"},
	{".gradle/wrapper", "GRADLE_USER_HOME", "gradle-wrapper"},
}

// Links are the symbolic links in HOME through which tools use a workspace.
type Links struct{ targets map[string]string }

// UseCaches makes tools keep their caches below caches, and pulumi its plugins in plugins, unless the
// settings or the image set the tool's variable or have filled its directory.
func (e *Environment) UseCaches(caches, plugins string) (*Links, error) {
	links := &Links{map[string]string{}}
	given := map[string]bool{}
	for name := range e.vars {
		given[strings.ToUpper(name)] = true // npm also reads NPM_CONFIG_CACHE
	}
	for name, dir := range cacheVariables {
		if !given[strings.ToUpper(name)] {
			e.vars[name] = filepath.Join(caches, dir)
		}
	}
	home := e.vars["HOME"]
	for _, link := range cacheLinks {
		if e.vars[link.unless] == "" {
			links.targets[filepath.Join(home, link.path)] = filepath.Join(caches, link.cache)
		}
	}
	// The directory of plugins is only a part of PULUMI_HOME, which also has credentials.
	pulumi := cmp.Or(e.vars["PULUMI_HOME"], filepath.Join(home, ".pulumi"))
	links.targets[filepath.Join(pulumi, "plugins")] = plugins
	for path, target := range links.targets {
		err := link(path, target)
		if errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrPermission) {
			delete(links.targets, path) // the image's own directory
		} else if err != nil {
			return links, err
		}
	}
	return links, nil
}

func link(path, target string) error {
	if _, err := os.Lstat(path); err == nil {
		return fs.ErrExist
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := os.MkdirAll(target, 0o700); err != nil {
		return err
	}
	return os.Symlink(target, path)
}

// Remove removes the links.
func (l *Links) Remove() error {
	var errs []error
	for path, target := range l.targets {
		if at, err := os.Readlink(path); err == nil && at == target {
			errs = append(errs, os.Remove(path))
		}
	}
	return errors.Join(errs...)
}

// LeaveCaches reverts [Environment.UseCaches].
func (e *Environment) LeaveCaches(caches string, links *Links) error {
	for name, dir := range cacheVariables {
		if e.vars[name] == filepath.Join(caches, dir) {
			delete(e.vars, name)
		}
	}
	return links.Remove()
}
