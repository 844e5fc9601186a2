package service

import (
	"bytes"
	_ "embed" // for the templates
	"encoding/xml"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed systemd.unit.tmpl
var unitText string

//go:embed launchd.plist.tmpl
var plistText string

// stepsVersion is the first systemd that supports growing pauses between restarts.
const stepsVersion = 254

func (s *systemd) render(version int) ([]byte, error) {
	o := s.options
	arguments := runArguments(o)
	for i, argument := range arguments {
		arguments[i] = unitQuote(argument)
	}
	values := map[string]string{
		"Program": DefaultName, "Name": o.Name, "Description": displayName + ": " + description,
		"Account": o.Account, "StateName": stateName, "Profile": string(o.Profile), "ExecStart": strings.Join(arguments, " "),
		"EnvironmentFile": unitEscape(s.EnvironmentFile()), "ProtectHome": protectHome(o.Executable, o.Config), "WantedBy": wantedBy(o),
	}
	return fill(unitText, values, map[string]bool{
		"User": o.User, "Docker": o.Docker, "Process": o.Profile == ProfileProcess, "RestartSteps": version >= stepsVersion,
	})
}

func (l *launchd) render() ([]byte, error) {
	var arguments strings.Builder
	for _, argument := range append(runArguments(l.options), "--env-file", l.EnvironmentFile()) {
		arguments.WriteString("\t\t<string>" + xmlEscape(argument) + "</string>\n")
	}
	return fill(plistText, map[string]string{
		"Program": DefaultName, "Name": l.options.Name, "Arguments": strings.TrimSuffix(arguments.String(), "\n"),
		"Account": xmlEscape(l.options.Account), "LogFile": xmlEscape(l.logFile()),
	}, map[string]bool{"Account": l.options.Account != ""})
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

// protectHome blocks access to home directories, unless one of the paths is below one.
func protectHome(paths ...string) string {
	if slices.ContainsFunc(paths, inHome) {
		return "read-only"
	}
	return "yes"
}

// fill replaces {{Name}} in a template, and keeps or drops the text between lines {{if Name}} or
// {{if not Name}}, {{else}} and {{end}}. text/template would link every exported method of every
// type into the binary, which makes the agent a third larger.
func fill(text string, values map[string]string, conditions map[string]bool) ([]byte, error) {
	var pairs []string
	for name, value := range values {
		pairs = append(pairs, "{{"+name+"}}", value)
	}
	replacer := strings.NewReplacer(pairs...)
	known := strings.NewReplacer(blank(pairs)...)
	var out strings.Builder
	var open []bool
	for line := range strings.Lines(text) {
		word, isWord := strings.CutPrefix(strings.TrimSpace(line), "{{")
		word, isWhole := strings.CutSuffix(word, "}}")
		name, isIf := strings.CutPrefix(word, "if ")
		name, negated := strings.CutPrefix(name, "not ")
		switch holds, isKnown := conditions[name]; {
		case isWord && isWhole && isIf && isKnown:
			open = append(open, holds != negated)
		case isWord && isWhole && word == "else" && len(open) > 0:
			open[len(open)-1] = !open[len(open)-1]
		case isWord && isWhole && word == "end" && len(open) > 0:
			open = open[:len(open)-1]
		case strings.Contains(known.Replace(line), "{{"):
			return nil, fmt.Errorf("a line of the service's template cannot be filled: %s", strings.TrimSpace(line))
		case !slices.Contains(open, false):
			out.WriteString(replacer.Replace(line))
		}
	}
	if len(open) > 0 {
		return nil, errors.New("the template of the service has an {{if}} without {{end}}")
	}
	return []byte(out.String()), nil
}

// blank returns pairs for a replacer that removes the same words.
func blank(pairs []string) []string {
	blanks := slices.Clone(pairs)
	for i := 1; i < len(blanks); i += 2 {
		blanks[i] = ""
	}
	return blanks
}

// unitEscape prevents systemd from expanding a value (systemd.unit(5), specifiers).
func unitEscape(value string) string { return strings.ReplaceAll(value, "%", "%%") }

// unitQuote quotes a value as one word of a command line (systemd.service(5), command lines).
func unitQuote(value string) string {
	escaped := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%", "$", "$$", "\t", `\t`).Replace(value)
	if strings.ContainsAny(value, " \t'\";\\") || value == "" {
		return `"` + escaped + `"`
	}
	return escaped
}

// unitPath quotes a value as one word of a list of paths, where only % is special.
func unitPath(value string) string { return strings.ReplaceAll(unitQuote(value), "$$", "$") }

func xmlEscape(value string) string {
	var buf bytes.Buffer
	_ = xml.EscapeText(&buf, []byte(value)) // a buffer accepts everything
	return buf.String()
}

// inHome reports whether the sandbox must leave home directories readable for a path.
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

// Updates are the paths of an installation that updates itself. The agent verifies a release and
// puts it into Stage; a helper of the service manager, which runs as the owner of the installation,
// sees Request and installs it.
type Updates struct {
	Root    string // directory of the installation
	Program string // the binary in Root that the helper runs: the version that worked last
	Stage   string // directory that the agent writes
	State   string // directory of the agent's state, with Stage in it
	Request string // file in Stage by which the agent requests an update
	Journal string // file in Root during an update
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

// check refuses paths that no service manager accepts, or that are not absolute.
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

func (s *systemd) renderUpdates(version int) (path, unit []byte, err error) {
	o := s.options
	arguments := updateArguments(o)
	for i, argument := range arguments {
		arguments[i] = unitQuote(argument)
	}
	values := map[string]string{
		"Program": DefaultName, "Name": unitEscape(o.Name), "Description": displayName,
		"Request": unitEscape(o.Updates.Request), "Journal": unitEscape(o.Updates.Journal),
		"Root": unitPath(o.Updates.Root), "State": unitPath(o.Updates.State),
		"ExecStart": strings.Join(arguments, " "), "EnvironmentFile": unitEscape(s.EnvironmentFile()),
		"ProtectHome": protectHome(o.Updates.Root, o.Config), "WantedBy": wantedBy(o),
	}
	conditions := map[string]bool{
		"User": o.User, "Restarts": version >= oneshotRestartVersion, "RestartSteps": version >= stepsVersion,
	}
	if path, err = fill(updatePathText, values, conditions); err != nil {
		return nil, nil, err
	}
	unit, err = fill(updateUnitText, values, conditions)
	return path, unit, err
}

// oneshotRestartVersion is the first systemd that restarts a unit of type oneshot.
const oneshotRestartVersion = 244

func (l *launchd) renderUpdates() ([]byte, error) {
	var arguments strings.Builder
	for _, argument := range append(updateArguments(l.options), "--env-file", l.EnvironmentFile()) {
		arguments.WriteString("\t\t<string>" + xmlEscape(argument) + "</string>\n")
	}
	return fill(updatePlistText, map[string]string{
		"Program": DefaultName, "Name": l.options.Name, "Arguments": strings.TrimSuffix(arguments.String(), "\n"),
		"Request": xmlEscape(l.options.Updates.Request), "Journal": xmlEscape(l.options.Updates.Journal), "LogFile": xmlEscape(l.logFile()),
	}, nil)
}

// registration is a file of a service manager and its new text; without text it must not exist.
type registration struct {
	path string
	text []byte
}

// replaceAll writes or removes the files, all or none. undo restores their previous state.
func replaceAll(files []registration) (undo func() error, err error) {
	var undos []func() error
	undo = func() error {
		var errs []error
		for _, u := range undos {
			errs = append(errs, u())
		}
		return errors.Join(errs...)
	}
	for _, f := range files {
		var back func() error
		if f.text == nil {
			back, err = removeFile(f.path)
		} else {
			back, err = replaceFile(f.path, f.text, 0o644)
		}
		if err != nil {
			return nil, errors.Join(err, undo())
		}
		undos = append(undos, back)
	}
	return undo, nil
}

// removeFile removes a file if it exists. The returned function restores it.
func removeFile(path string) (undo func() error, err error) {
	before, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return func() error { return nil }, nil
	}
	if err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil {
		return nil, err
	}
	return func() error {
		_, err := replaceFile(path, before, 0o644)
		return err
	}, nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
