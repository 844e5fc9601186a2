package service

import (
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"workflowagent/internal/sys/initsystem"
)

// Registered describes a service of the machine, as its systemd unit says. Drop-ins can change it.
type Registered struct {
	Name           string
	Account        string
	Groups         []string // besides those of the account
	Profile        Profile
	StateDirectory string
}

// WithConfig returns the service of this machine that reads a configuration file, or nil. If systemd does not run the
// machine, it returns nil.
func WithConfig(file string) *Registered {
	if !initsystem.Booted() {
		return nil
	}
	return withConfig([]string{adminUnits, packageUnits}, file)
}

// StateDirectory returns the state directory of the service of this machine that reads a configuration file and runs
// as a user, or "".
func StateDirectory(file string, uid int) string {
	r := WithConfig(file)
	if r == nil {
		return ""
	}
	if u, err := user.Lookup(r.Account); err != nil || u.Uid != strconv.Itoa(uid) {
		return ""
	}
	return r.StateDirectory
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
		if groups, ok := strings.CutPrefix(line, "SupplementaryGroups="); ok {
			r.Groups = strings.Fields(groups)
		}
		if name, ok := strings.CutPrefix(line, "StateDirectory="); ok {
			r.StateDirectory = filepath.Join("/var/lib", name)
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
