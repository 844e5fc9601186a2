package config

import (
	"errors"
	"maps"
	"strings"
)

// Mirrors are the addresses from which the tools in jobs get packages, or "" for the tools' defaults.
type Mirrors struct {
	Go, NPM, PyPI, Plugins string
}

// Add returns a job's variables with those that make its tools use the mirrors, unless the job sets them
// itself.
func (m Mirrors) Add(env map[string]string) map[string]string {
	own := map[string]bool{}
	for name := range env {
		own[strings.ToLower(name)] = true // npm reads its variables in any case
	}
	all := maps.Clone(env)
	if all == nil {
		all = map[string]string{}
	}
	// add sets a variable unless the job sets it, or another variable of the same meaning.
	add := func(mirror, value, name string, same ...string) {
		for _, other := range append(same, name) {
			if own[strings.ToLower(other)] {
				return
			}
		}
		if mirror != "" {
			all[name] = value
		}
	}
	add(m.Go, m.Go, "GOPROXY")
	add(m.NPM, m.NPM, "npm_config_registry", "YARN_REGISTRY")
	add(m.NPM, m.NPM, "YARN_NPM_REGISTRY_SERVER")
	add(m.PyPI, m.PyPI, "PIP_INDEX_URL")
	add(m.PyPI, m.PyPI, "UV_DEFAULT_INDEX", "UV_INDEX_URL")
	add(m.PyPI, m.PyPI, "POETRY_PYPI_MIRROR_URL")
	// The part before the = is a regular expression for the address, or in older versions the name, of
	// the plugins.
	add(m.Plugins, ".*="+m.Plugins, "PULUMI_PLUGIN_DOWNLOAD_URL_OVERRIDES")
	return all
}

// checkPluginMirror rejects what pulumi would read as more than one address.
func checkPluginMirror(url string) error {
	if strings.ContainsAny(url, ",=") {
		return errors.New("contains a comma or an equals sign, which pulumi cannot read: use another path")
	}
	return nil
}
