package config

import (
	"slices"
	"strings"
	"testing"
)

func TestProxyVariables(t *testing.T) {
	path := writeFile(t, FileName, "token: pul-0123456789abcdef\n")
	c, err := loadAndValidate(testOptions(path,
		"HTTPS_PROXY=http://user:hunter2@proxy.example.com:3128", "no_proxy=.internal,10.0.0.0/8", "http_proxy=proxy.example.com:3128", "ALL_PROXY="))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, v := range c.ProxyEnv() {
		got = append(got, v.Name+"="+v.Value.Reveal())
	}
	want := []string{
		"HTTPS_PROXY=http://user:hunter2@proxy.example.com:3128", "http_proxy=proxy.example.com:3128", "no_proxy=.internal,10.0.0.0/8",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestWrongProxyIsToldWithoutItsPassword(t *testing.T) {
	path := writeFile(t, FileName, "token: pul-0123456789abcdef\n")
	for _, tt := range []struct{ variable, want string }{
		{"HTTPS_PROXY=http://user:hun ter2@proxy:3128", "env HTTPS_PROXY: is not the URL of a proxy"},
		{"http_proxy=http://user:hunter2@:3128", "env http_proxy: is not the URL of a proxy"},
		{"HTTP_PROXY=ftp://user:hunter2@proxy", "env HTTP_PROXY: names a proxy of an unknown kind"},
		{"ALL_PROXY=http://user:hunter2%@proxy", "env ALL_PROXY: is not the URL of a proxy"},
	} {
		_, err := loadAndValidate(testOptions(path, tt.variable))
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "ter2") {
			t.Errorf("%s: %v, want %q", tt.variable, err, tt.want)
		}
	}
}

func TestProxyOnLoopbackIsWarnedAboutForContainers(t *testing.T) {
	path := writeFile(t, FileName, "token: pul-0123456789abcdef\n")
	for target, want := range map[string]bool{"docker": true, "process": false} {
		c, err := loadAndValidate(testOptions(path, "HTTPS_PROXY=http://127.0.0.1:3128", "PULUMI_AGENT_DEPLOY_TARGET="+target))
		if err != nil {
			t.Fatal(err)
		}
		if got := slices.ContainsFunc(c.Warnings(), func(s string) bool { return strings.Contains(s, "HTTPS_PROXY names a proxy on loopback") }); got != want {
			t.Errorf("%s: warned %t, want %t: %q", target, got, want, c.Warnings())
		}
	}
}
