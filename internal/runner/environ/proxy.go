package environ

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"workflowagent/internal/protocol"
	"workflowagent/internal/redact"
)

// loopbackHosts must not be reached through a proxy. Go and curl exempt them by default, but the
// gRPC libraries that connect pulumi to its language hosts and providers do not.
var loopbackHosts = []string{"localhost", "127.0.0.1", "::1"}

func isProxyName(name string) bool { return slices.Contains(protocol.ProxyNames(), name) }

// otherCase returns the variable's name in the other case, because some programs read the
// upper-case name and others the lower-case name.
func otherCase(name string) string {
	if upper := strings.ToUpper(name); upper != name {
		return upper
	}
	return strings.ToLower(name)
}

// UseProxy makes this process use the same proxies as its job: those in the agent's forwarded
// values, or else those of the image or host, or else the agent's own. It must be called before the
// first connection, because a process reads these variables only once.
func UseProxy(launch *protocol.Launch) error {
	vars := missingProxy(os.Environ(), launch.Proxy)
	for name, value := range launch.ForwardedEnv {
		if isProxyName(name) {
			vars[name] = value
			if _, both := launch.ForwardedEnv[otherCase(name)]; !both {
				vars[otherCase(name)] = value // Go prefers upper case
			}
		}
	}
	for name, value := range vars {
		if err := os.Setenv(name, value); err != nil {
			return fmt.Errorf("setting the proxy variable %s: %w", name, err)
		}
	}
	return nil
}

// missingProxy returns the agent's proxy variables that environ sets in neither case, because an
// image's own settings take precedence.
func missingProxy(environ []string, agents map[string]string) map[string]string {
	own := map[string]bool{}
	for _, entry := range environ {
		if name, value, _ := strings.Cut(entry, "="); value != "" && isProxyName(name) {
			own[name], own[otherCase(name)] = true, true
		}
	}
	missing := map[string]string{}
	for name, value := range agents {
		if isProxyName(name) && !own[name] {
			missing[name] = value
		}
	}
	return missing
}

// overlay sets the variables of a layer. A proxy variable replaces the variable in both cases.
// Otherwise some programs would use an earlier layer's value.
func (e *Environment) overlay(layer map[string]string) {
	for name := range layer {
		if _, both := layer[otherCase(name)]; isProxyName(name) && !both {
			delete(e.vars, otherCase(name))
		}
	}
	maps.Copy(e.vars, layer)
}

// completeProxy sets every proxy variable in both cases and exempts loopback addresses.
func (e *Environment) completeProxy() {
	used := false
	for _, name := range protocol.ProxyNames() {
		value, ok := e.vars[name]
		if _, both := e.vars[otherCase(name)]; ok && !both {
			e.vars[otherCase(name)] = value
		}
		used = used || value != "" && !strings.EqualFold(name, "NO_PROXY")
	}
	if !used {
		return
	}
	for _, name := range []string{"NO_PROXY", "no_proxy"} {
		hosts := strings.FieldsFunc(e.vars[name], func(r rune) bool { return r == ',' || r == ' ' })
		if slices.Contains(hosts, "*") {
			continue
		}
		for _, host := range loopbackHosts {
			if !slices.Contains(hosts, host) {
				hosts = append(hosts, host)
			}
		}
		e.vars[name] = strings.Join(hosts, ",")
	}
}

func proxySecrets(vars map[string]string) []redact.Secret {
	proxies := maps.Clone(vars)
	maps.DeleteFunc(proxies, func(name, _ string) bool { return !isProxyName(name) })
	var secrets []redact.Secret
	for name, values := range protocol.ProxySecrets(proxies) {
		for _, value := range values {
			secrets = append(secrets, redact.Secret{Name: "the password in " + name, Value: value})
		}
	}
	return secrets
}
