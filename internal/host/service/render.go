package service

import (
	"bytes"
	_ "embed" // for the templates
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed systemd.unit.tmpl
var unitText string

//go:embed launchd.plist.tmpl
var plistText string

// stepsVersion is the first systemd version that supports increasing restart delays (RestartSteps=).
const stepsVersion = 254

func (s *systemd) render(version int) []byte {
	o := s.options
	values := map[string]string{
		"Program": DefaultName, "Name": o.Name, "Description": displayName + ": " + description,
		"Account": o.Account, "StateName": stateName, "Profile": string(o.Profile), "ExecStart": unitCommand(runArguments(o)),
		"EnvironmentFile": unitEscape(s.EnvironmentFile()), "ProtectHome": protectHome(o.Executable, o.Config), "WantedBy": wantedBy(o),
	}
	return fill(unitText, values, map[string]bool{
		"User": o.User, "Docker": o.Docker, "Process": o.Profile == ProfileProcess, "RestartSteps": version >= stepsVersion,
	})
}

func (l *launchd) render() []byte {
	return fill(plistText, map[string]string{
		"Program": DefaultName, "Name": l.options.Name, "Arguments": l.plistArguments(runArguments(l.options)),
		"Account": xmlEscape(l.options.Account), "LogFile": xmlEscape(l.logFile()),
	}, map[string]bool{"Account": l.options.Account != ""})
}

// plistArguments returns the arguments of a command line as elements of a property list. It adds
// the flag with the environment file, because launchd does not read that file.
func (l *launchd) plistArguments(arguments []string) string {
	var lines []string
	for _, argument := range append(arguments, "--env-file", l.EnvironmentFile()) {
		lines = append(lines, "\t\t<string>"+xmlEscape(argument)+"</string>")
	}
	return strings.Join(lines, "\n")
}

func unitCommand(arguments []string) string {
	for i, argument := range arguments {
		arguments[i] = unitQuote(argument)
	}
	return strings.Join(arguments, " ")
}

func runArguments(o Options) []string {
	arguments := []string{o.Executable, "run"}
	if o.Config != "" {
		arguments = append(arguments, "--config", o.Config)
	}
	if o.Updates != nil {
		arguments = append(arguments, "--updates", o.Updates.Stage)
	}
	return arguments
}

func wantedBy(o Options) string {
	if o.User {
		return "default.target"
	}
	return "multi-user.target"
}

// protectHome returns the value of ProtectHome=, which blocks access to home directories unless one
// of the paths is in a home directory.
func protectHome(paths ...string) string {
	if slices.ContainsFunc(paths, inHome) {
		return "read-only"
	}
	return "yes"
}

// fill replaces {{Name}} in a template. It keeps or drops the lines between {{if Name}} or {{if not
// Name}}, {{else}} and {{end}}. It does not use text/template, which would make the agent a third
// larger: it links every exported method of every type into the binary.
func fill(text string, values map[string]string, conditions map[string]bool) []byte {
	var pairs []string
	for name, value := range values {
		pairs = append(pairs, "{{"+name+"}}", value)
	}
	replacer := strings.NewReplacer(pairs...)
	var out bytes.Buffer
	var open []bool // conditions of the enclosing {{if}}
	for line := range strings.Lines(text) {
		word, _ := strings.CutPrefix(strings.TrimSpace(line), "{{")
		name, isIf := strings.CutPrefix(word, "if ")
		name, negated := strings.CutPrefix(name, "not ")
		switch {
		case isIf:
			open = append(open, conditions[strings.TrimSuffix(name, "}}")] != negated)
		case word == "else}}":
			open[len(open)-1] = !open[len(open)-1]
		case word == "end}}":
			open = open[:len(open)-1]
		case !slices.Contains(open, false):
			_, _ = replacer.WriteString(&out, line) // writing to a buffer cannot fail
		}
	}
	return out.Bytes()
}

// unitEscape escapes a value so that systemd does not expand it (systemd.unit(5), specifiers).
func unitEscape(value string) string { return strings.ReplaceAll(value, "%", "%%") }

// unitQuote quotes a value as one word of a command line in a unit (systemd.service(5), command
// lines).
func unitQuote(value string) string {
	escaped := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%", "$", "$$", "\t", `\t`).Replace(value)
	if strings.ContainsAny(value, " \t'\";\\") || value == "" {
		return `"` + escaped + `"`
	}
	return escaped
}

// unitPath quotes a value as one word of a list of paths in a unit. In such a list, $ is not
// special.
func unitPath(value string) string { return strings.ReplaceAll(unitQuote(value), "$$", "$") }

func xmlEscape(value string) string {
	var buf bytes.Buffer
	_ = xml.EscapeText(&buf, []byte(value)) // writing to a buffer cannot fail
	return buf.String()
}

// inHome reports whether path is in a home directory, or is a link to a path in one. The sandbox
// must then leave home directories readable.
func inHome(path string) bool {
	for _, home := range []string{"/home", "/root", "/run/user"} {
		if path == home || strings.HasPrefix(path, home+string(filepath.Separator)) {
			return true
		}
	}
	resolved, err := os.Readlink(path)
	return err == nil && filepath.IsAbs(resolved) && resolved != path && inHome(resolved)
}

//go:embed systemd.update.path.tmpl
var updatePathText string

//go:embed systemd.update.service.tmpl
var updateUnitText string

//go:embed launchd.update.plist.tmpl
var updatePlistText string

// Updates contains the paths of an installation that updates itself. The agent verifies a release
// and stores it in Stage. When Request appears, the service manager runs a helper as the owner of
// the installation, and the helper installs the release.
type Updates struct {
	Root    string // root directory of the installation
	Program string // the program in Root that the helper runs, from the last version that worked
	Stage   string // directory to which the agent writes releases
	State   string // directory of the agent's state, which contains Stage
	Request string // file in Stage with which the agent requests an update
	Journal string // file in Root that exists during an update
}

func updateName(o Options) string { return o.Name + "-update" }

func updateArguments(o Options) []string {
	arguments := []string{o.Updates.Program, "update", "apply", "--service", o.Name, "--stage", o.Updates.Stage}
	if o.User {
		arguments = append(arguments, "--user")
	}
	if o.Config != "" {
		arguments = append(arguments, "--config", o.Config)
	}
	return arguments
}

// check returns an error if a path is not absolute or contains characters that no service manager
// accepts.
func (u *Updates) check() error {
	if u == nil {
		return nil
	}
	for _, path := range []string{u.Root, u.Program, u.Stage, u.State, u.Request, u.Journal} {
		if !filepath.IsAbs(path) || strings.ContainsAny(path, "\n\r\x00") {
			return fmt.Errorf("the path %q of the service's updates is not absolute, or has a line break", path)
		}
	}
	return nil
}

func (s *systemd) renderUpdates(version int) (path, unit []byte) {
	o := s.options
	values := map[string]string{
		"Program": DefaultName, "Name": unitEscape(o.Name), "Description": displayName,
		"Request": unitEscape(o.Updates.Request), "Journal": unitEscape(o.Updates.Journal),
		"Root": unitPath(o.Updates.Root), "State": unitPath(o.Updates.State),
		"ExecStart": unitCommand(updateArguments(o)), "EnvironmentFile": unitEscape(s.EnvironmentFile()),
		"ProtectHome": protectHome(o.Updates.Root, o.Config), "WantedBy": wantedBy(o),
	}
	conditions := map[string]bool{
		"User": o.User, "Restarts": version >= oneshotRestartVersion, "RestartSteps": version >= stepsVersion,
	}
	return fill(updatePathText, values, conditions), fill(updateUnitText, values, conditions)
}

// oneshotRestartVersion is the first systemd version that can restart a unit of type oneshot.
const oneshotRestartVersion = 244

func (l *launchd) renderUpdates() []byte {
	return fill(updatePlistText, map[string]string{
		"Program": DefaultName, "Name": l.options.Name, "Arguments": l.plistArguments(updateArguments(l.options)),
		"Request": xmlEscape(l.options.Updates.Request), "Journal": xmlEscape(l.options.Updates.Journal), "LogFile": xmlEscape(l.logFile()),
	}, nil)
}
