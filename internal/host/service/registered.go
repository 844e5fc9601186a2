package service

import (
	"os"
	"path/filepath"
	"strings"

	"workflowagent/internal/sys/initsystem"
)

// Registered describes a service of the machine, as its systemd unit says. Drop-ins can change it.
type Registered struct {
	Name    string
	Account string
	Profile Profile
}

// WithConfig returns the service of this machine that reads a configuration file, or nil. If systemd does not run the
// machine, it returns nil.
func WithConfig(file string) *Registered {
	if !initsystem.Booted() {
		return nil
	}
	return withConfig([]string{adminUnits, packageUnits}, file)
}

// withConfig searches the directories in the order of precedence.
func withConfig(dirs []string, file string) *Registered {
	seen := map[string]bool{}
	for _, dir := range dirs {
		units, err := filepath.Glob(filepath.Join(dir, "*.service"))
		if err != nil {
			continue // the pattern is valid
		}
		for _, unit := range units {
			name := filepath.Base(unit)
			text, err := os.ReadFile(unit)
			if err != nil || seen[name] {
				continue
			}
			seen[name] = true
			if r := parseUnit(string(text), file); r != nil {
				r.Name = strings.TrimSuffix(name, ".service")
				return r
			}
		}
	}
	return nil
}

// parseUnit returns what the text of a unit says, or nil if it is not an agent's that reads the file.
func parseUnit(text, file string) *Registered {
	var r Registered
	var reads bool
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if command, ok := strings.CutPrefix(line, "ExecStart="); ok {
			_, arguments, runs := strings.Cut(command, DefaultName+" run ")
			reads = runs && strings.HasPrefix(arguments+" ", initsystem.UnitCommand("--config", file)+" ")
		}
		if account, ok := strings.CutPrefix(line, "User="); ok {
			r.Account = account
		}
		if profile, ok := strings.CutPrefix(line, profileLine); ok {
			r.Profile = Profile(strings.TrimSuffix(profile, "."))
		}
	}
	if !reads || r.Profile == "" {
		return nil
	}
	return &r
}

// profileLine begins the line of a unit with the profile of its sandbox.
const profileLine = "# Sandbox, profile "
