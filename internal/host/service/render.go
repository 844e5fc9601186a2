package service

import (
	"bytes"
	_ "embed" // for the templates
	"encoding/xml"
	"fmt"
	"path/filepath"
	"strings"

	"workflowagent/internal/sys/initsystem"
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
		"Account": o.Account, "StateName": stateName, "Profile": string(o.Profile), "ExecStart": initsystem.UnitCommand(runArguments(o)...),
		"EnvironmentFile": initsystem.UnitEscape(s.EnvironmentFile()), "ProtectHome": initsystem.ProtectHome(o.Executable, o.Config), "WantedBy": wantedBy(o),
	}
	return initsystem.Fill(unitText, values, map[string]bool{
		"User": o.User, "Docker": o.Docker, "Process": o.Profile == ProfileProcess, "RestartSteps": version >= stepsVersion,
	})
}

func (l *launchd) render() []byte {
	return initsystem.Fill(plistText, map[string]string{
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

func xmlEscape(value string) string {
	var buf bytes.Buffer
	_ = xml.EscapeText(&buf, []byte(value)) // writing to a buffer cannot fail
	return buf.String()
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
		"Program": DefaultName, "Name": initsystem.UnitEscape(o.Name), "Description": displayName,
		"Request": initsystem.UnitEscape(o.Updates.Request), "Journal": initsystem.UnitEscape(o.Updates.Journal),
		"Root": initsystem.UnitPath(o.Updates.Root), "State": initsystem.UnitPath(o.Updates.State),
		"ExecStart": initsystem.UnitCommand(updateArguments(o)...), "EnvironmentFile": initsystem.UnitEscape(s.EnvironmentFile()),
		"ProtectHome": initsystem.ProtectHome(o.Updates.Root, o.Config), "WantedBy": wantedBy(o),
	}
	conditions := map[string]bool{
		"User": o.User, "Restarts": version >= oneshotRestartVersion, "RestartSteps": version >= stepsVersion,
	}
	return initsystem.Fill(updatePathText, values, conditions), initsystem.Fill(updateUnitText, values, conditions)
}

// oneshotRestartVersion is the first systemd version that can restart a unit of type oneshot.
const oneshotRestartVersion = 244

func (l *launchd) renderUpdates() []byte {
	return initsystem.Fill(updatePlistText, map[string]string{
		"Program": DefaultName, "Name": l.options.Name, "Arguments": l.plistArguments(updateArguments(l.options)),
		"Request": xmlEscape(l.options.Updates.Request), "Journal": xmlEscape(l.options.Updates.Journal), "LogFile": xmlEscape(l.logFile()),
	}, nil)
}
