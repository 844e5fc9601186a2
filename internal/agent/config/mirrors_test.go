package config

import (
	"maps"
	"testing"
)

func TestMirrors(t *testing.T) {
	all := Mirrors{Go: "https://go", NPM: "https://npm", PyPI: "https://pypi/simple", Plugins: "https://plugins"}
	for name, test := range map[string]struct {
		mirrors   Mirrors
		env, want map[string]string
	}{
		"none": {Mirrors{}, map[string]string{"A": "b"}, map[string]string{"A": "b"}},
		"all": {all, nil, map[string]string{
			"GOPROXY": "https://go", "npm_config_registry": "https://npm", "YARN_NPM_REGISTRY_SERVER": "https://npm",
			"PIP_INDEX_URL": "https://pypi/simple", "UV_DEFAULT_INDEX": "https://pypi/simple", "POETRY_PYPI_MIRROR_URL": "https://pypi/simple",
			"PULUMI_PLUGIN_DOWNLOAD_URL_OVERRIDES": ".*=https://plugins",
		}},
		"one":           {Mirrors{Go: "https://go"}, map[string]string{"A": "b"}, map[string]string{"A": "b", "GOPROXY": "https://go"}},
		"the job's own": {Mirrors{Go: "https://go"}, map[string]string{"GOPROXY": "off"}, map[string]string{"GOPROXY": "off"}},
		"the job's own in capitals": {
			Mirrors{NPM: "https://npm"},
			map[string]string{"NPM_CONFIG_REGISTRY": "mine"},
			map[string]string{"NPM_CONFIG_REGISTRY": "mine", "YARN_NPM_REGISTRY_SERVER": "https://npm"},
		},
		"the job's own with another name": {
			Mirrors{PyPI: "https://pypi"},
			map[string]string{"UV_INDEX_URL": "mine", "PIP_INDEX_URL": "mine"},
			map[string]string{"UV_INDEX_URL": "mine", "PIP_INDEX_URL": "mine", "POETRY_PYPI_MIRROR_URL": "https://pypi"},
		},
	} {
		before := maps.Clone(test.env)
		if got := test.mirrors.Add(test.env); !maps.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
		if !maps.Equal(test.env, before) {
			t.Errorf("%s: the job's variables were changed", name)
		}
	}
}
