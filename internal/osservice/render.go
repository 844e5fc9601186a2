package osservice

import (
	"bytes"
	_ "embed" // for the templates
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

//go:embed systemd.unit.tmpl
var unitText string

//go:embed launchd.plist.tmpl
var plistText string

// stepsVersion is the first systemd that makes the pauses between restarts grow.
const stepsVersion = 254

// render returns the unit for a version of systemd.
func (s *systemd) render(version int) ([]byte, error) {
	o := s.options
	arguments := runArguments(o)
	quoted := make([]string, len(arguments))
	for i, argument := range arguments {
		quoted[i] = unitQuote(argument)
	}
	return execute("unit", unitText, map[string]any{
		"Program": DefaultName, "Name": o.Name, "Description": displayName + ": " + description,
		"User": o.User, "Account": o.Account, "Docker": o.Docker,
		"Profile": o.Profile, "Process": o.Profile == ProfileProcess,
		"ExecStart": strings.Join(quoted, " "), "ExecutableInHome": inHome(o.Executable) || inHome(o.Config),
		"EnvironmentFile": unitEscape(s.EnvironmentFile()),
		"RestartSteps":    version >= stepsVersion,
	})
}

// render returns the property list.
func (l *launchd) render() ([]byte, error) {
	arguments := append(runArguments(l.options), "--env-file", l.EnvironmentFile())
	for i, argument := range arguments {
		arguments[i] = xmlEscape(argument)
	}
	return execute("plist", plistText, map[string]any{
		"Program": DefaultName, "Name": l.options.Name, "Arguments": arguments,
		"Account": xmlEscape(l.options.Account), "LogFile": xmlEscape(l.logFile()),
	})
}

// runArguments is the command line of the service.
func runArguments(o Options) []string {
	arguments := []string{o.Executable, "run"}
	if o.Config != "" {
		arguments = append(arguments, "--config", o.Config)
	}
	return arguments
}

func execute(name, text string, data map[string]any) ([]byte, error) {
	t, err := template.New(name).Option("missingkey=error").Parse(text)
	if err != nil {
		return nil, fmt.Errorf("reading the template of the %s: %w", name, err)
	}
	var buf bytes.Buffer
	if err := t.Execute(&buf, data); err != nil {
		return nil, fmt.Errorf("making the %s: %w", name, err)
	}
	return buf.Bytes(), nil
}

// unitEscape keeps systemd from expanding a value (systemd.unit(5), specifiers).
func unitEscape(value string) string { return strings.ReplaceAll(value, "%", "%%") }

// unitQuote makes one word of a command line of a value (systemd.service(5),
// command lines).
func unitQuote(value string) string {
	escaped := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%", "$", "$$", "\t", `\t`).Replace(value)
	if strings.ContainsAny(value, " \t'\";\\") || value == "" {
		return `"` + escaped + `"`
	}
	return escaped
}

func xmlEscape(value string) string {
	var buf bytes.Buffer
	_ = xml.EscapeText(&buf, []byte(value)) // a buffer takes everything
	return buf.String()
}

// inHome reports whether the sandbox must leave home directories readable for a
// path.
func inHome(path string) bool {
	for _, home := range []string{"/home", "/root", "/run/user"} {
		if path == home || strings.HasPrefix(path, home+string(filepath.Separator)) {
			return true
		}
	}
	resolved, err := os.Readlink(path)
	return err == nil && filepath.IsAbs(resolved) && resolved != path && inHome(resolved)
}
