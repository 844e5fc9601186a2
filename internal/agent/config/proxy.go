package config

import (
	"errors"
	"net/url"
	"slices"
	"strings"

	"workflowagent/internal/protocol"
	"workflowagent/internal/settings"
)

// resolveProxy collects the proxy variables, which apply to the agent and its jobs.
func (c *Config) resolveProxy(env map[string]string) {
	for _, upper := range []string{"HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY"} {
		for _, name := range []string{upper, strings.ToLower(upper)} {
			if env[name] != "" {
				c.meta.proxy = append(c.meta.proxy, ForwardedVar{Name: name, Value: settings.NewSecret(env[name])})
			}
		}
	}
	if c.DeployTarget == TargetProcess {
		return
	}
	for _, v := range c.meta.proxy {
		if u, err := parseProxy(v.Value.Reveal()); namesProxy(v.Name) && err == nil && protocol.IsLoopback(u.Host) {
			c.warn("%s names a proxy on loopback, which job containers cannot reach unless they share the host's network: use an address of this host that containers can reach", v.Name)
		}
	}
}

// ProxyEnv returns the proxy variables that are set on the host, with names in upper and lower
// case. Their values may contain passwords.
func (c *Config) ProxyEnv() []ForwardedVar { return c.meta.proxy }

// validateProxy reports invalid proxy variables early, because an error at the first connection
// would contain the password.
func (c *Config) validateProxy(wrong *settings.Problems) {
	for _, v := range c.meta.proxy {
		if !namesProxy(v.Name) {
			continue
		}
		if _, err := parseProxy(v.Value.Reveal()); err != nil {
			wrong.Add(settings.Source{Kind: settings.FromEnv, Name: v.Name}, "", err.Error())
		}
	}
}

func namesProxy(variable string) bool { return !strings.EqualFold(variable, "NO_PROXY") }

// parseProxy parses the URL of a proxy in the same way as Go's HTTP client, which uses http if the
// scheme is missing. Its errors never contain the value.
func parseProxy(value string) (*url.URL, error) {
	if !strings.Contains(value, "://") {
		value = "http://" + value
	}
	u, err := url.Parse(value)
	if err != nil || u.Hostname() == "" {
		return nil, errors.New("is not the URL of a proxy: write it like http://proxy.example.com:3128, with special characters of a password as %XX")
	}
	if !slices.Contains([]string{"http", "https", "socks5", "socks5h"}, u.Scheme) {
		return nil, errors.New("names a proxy of an unknown kind: use http, https or socks5")
	}
	return u, nil
}
