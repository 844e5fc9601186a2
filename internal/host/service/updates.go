package service

import (
	_ "embed" // for the templates
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

//go:embed systemd.update.path.tmpl
var updatePathText string

//go:embed systemd.update.service.tmpl
var updateUnitText string

//go:embed launchd.update.plist.tmpl
var updatePlistText string

// Updates are the paths of an installation that brings itself up to date. The agent
// verifies a release and puts it into Stage; a helper of the service manager, which
// belongs to whoever owns the installation, sees Request and does the rest.
type Updates struct {
	Root    string // directory of the installation
	Program string // the binary in Root that the helper runs: the version that worked last
	Stage   string // directory that the agent writes
	State   string // directory of the agent's state, with Stage in it
	Request string // file in Stage by which the agent asks
	Journal string // file in Root while an update is under way
}

// updateName is the name of the service's helper for updates.
func updateName(o Options) string { return o.Name + "-update" }

// updateArguments is the command line of the helper.
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

// check refuses paths that no service manager takes, or that are not whole.
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

// renderUpdates returns the two units of the helper.
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

// oneshotRestartVersion is the first systemd that restarts a unit that runs once.
const oneshotRestartVersion = 244

// renderUpdates returns the property list of the helper.
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

// registration is a file that a service manager reads, as it shall be: without text
// it shall not be there.
type registration struct {
	path string
	text []byte
}

// place makes the files as they shall be, all or none. The returned function puts
// back what was there before.
func place(files []registration) (undo func() error, err error) {
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

// removeFile removes a file, if it is there. The returned function puts it back.
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

// exists reports whether a file is there.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
