package environ

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Share adds the variables of environments (Pulumi ESC). What the settings, the agent or the runner itself set stays. It
// returns notices about variables that are not used.
func (e *Environment) Share(variables map[string]string) (notices []string) {
	used := map[string]string{}
	var own []string
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		switch value := variables[name]; {
		case !validName(name) || strings.ContainsRune(value, 0):
			notices = append(notices, fmt.Sprintf("warning: ignoring the variable %q of the environments, which cannot be set", name))
		case reserved(name):
			notices = append(notices, fmt.Sprintf("warning: ignoring the variable %s of the environments, which is reserved", name))
		case e.given[name] || isProxyName(name) && e.given[otherCase(name)] || slices.Contains(identityNames, name),
			e.bundle != "" && name == "SSL_CERT_FILE": // else jobs do not trust the server
			own = append(own, name)
		default:
			used[name] = value
		}
	}
	if len(own) > 0 {
		notices = append(notices, "The deployment's own values replace these variables of the environments: "+strings.Join(own, ", "))
	}
	e.overlay(used)
	e.completeProxy()
	e.shared = used
	return notices
}
