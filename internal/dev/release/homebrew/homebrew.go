// Package homebrew creates the formula with which Homebrew installs a release of the agent. It
// creates a formula, not a cask, because only formulae support services.
package homebrew

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"text/template"

	"workflowagent/internal/host/release"
)

// Template is the path of the formula's template in the repository. File is the formula's name in a
// tap.
const (
	Template = "packaging/homebrew/customer-managed-workflow-agent.rb.tmpl"
	File     = release.Program + ".rb"
)

type system struct {
	Name     string // Homebrew's name: macos, linux
	Archives []archive
}

type archive struct {
	Processor string // Homebrew's name: arm, intel
	URL       string
	Sum       string // SHA-256, hexadecimal
}

// Formula returns the template text, filled in for a release whose files are at HOME/VERSION/NAME,
// for the platforms in sums.
func Formula(text, version, home string, sums release.Checksums) ([]byte, error) {
	if err := release.CheckVersion(version); err != nil {
		return nil, err
	}
	base, err := url.Parse(home)
	if err != nil || base.Host == "" || base.Scheme != "https" && base.Scheme != "http" ||
		strings.Trim(home, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~:/[]%+@") != "" {
		return nil, fmt.Errorf("invalid mirror URL %q: a formula needs a plain URL for the archives", home)
	}
	home = strings.TrimRight(home, "/")
	var systems []system
	for _, s := range []struct{ brew, goos string }{{"macos", "darwin"}, {"linux", "linux"}} {
		found := system{Name: s.brew}
		for _, p := range []struct{ brew, goarch string }{{"arm", "arm64"}, {"intel", "amd64"}} {
			name, err := release.Archive(version, s.goos, p.goarch)
			if err != nil {
				return nil, err
			}
			if sum, ok := sums[name]; ok {
				found.Archives = append(found.Archives, archive{p.brew, home + "/" + version + "/" + name, fmt.Sprintf("%x", sum)})
			}
		}
		if len(found.Archives) > 0 {
			systems = append(systems, found)
		}
	}
	if len(systems) == 0 {
		return nil, errors.New("writing the formula: the release has no archive of the agent")
	}
	parsed, err := template.New("").Option("missingkey=error").Parse(text)
	if err != nil {
		return nil, fmt.Errorf("executing the formula's template: %w", err)
	}
	var out bytes.Buffer
	err = parsed.Execute(&out, map[string]any{
		"Version": version, "Number": strings.TrimPrefix(version, "v"), "Home": home, "Systems": systems,
	})
	if err != nil {
		return nil, fmt.Errorf("executing the formula's template: %w", err)
	}
	return out.Bytes(), nil
}
