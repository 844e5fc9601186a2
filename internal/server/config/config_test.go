package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestFlagsBeatEnvironmentBeatsFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "server.yaml")
	text := "# comment\nlisten: 127.0.0.1:1\nlog_level: debug\norganization: acme\nupdate_lease: 90s\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(LoadOptions{
		Path: file, UID: os.Geteuid(), Cwd: t.TempDir(), Flags: map[string]string{"listen": "127.0.0.1:3"},
		Environ: []string{"WORKFLOW_SERVER_LISTEN=127.0.0.1:2", "WORKFLOW_SERVER_ORGANIZATION=env"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen != "127.0.0.1:3" || c.Organization != "env" || c.UpdateLease != 90*time.Second || c.LogFormat != "text" {
		t.Errorf("config = %+v", c)
	}
	if !filepath.IsAbs(c.DataDir) || c.DSN() != "sqlite:"+filepath.Join(c.DataDir, "server.db") {
		t.Errorf("data directory %q, database %q", c.DataDir, c.DSN())
	}
}

func TestConfigErrorsNameThePlaceAndNeverTheValue(t *testing.T) {
	for text, want := range map[string]string{
		"listen: hunter2\n":                      ":1: listen",
		"organization: a\nlisen: hunter2\n":      ":2: lisen: is not a known key: did you mean listen?",
		"log_level: a\n":                         ":1: log_level",
		"listen: [hunter2]\n":                    ":1: listen",
		"- hunter2\n":                            ":1:",
		"listen: 127.0.0.1:1\nlisten: hunter2\n": ":2: listen",
		"database: mysql://hunter2\n":            ":1: database",
		"update_lease: 10m\n":                    ":1: update_lease",
		"update_lease: 0s\n":                     ":1: update_lease",
		"external_url: http://u:hunter2@h\n":     ":1: external_url",
		"external_url: http://h/path\n":          ":1: external_url",
		"external_url: ftp://h\n":                ":1: external_url",
		"listen: \"hunter2\n":                    "not valid YAML",
	} {
		file := filepath.Join(t.TempDir(), "server.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Load(LoadOptions{Path: file, UID: os.Geteuid(), Cwd: t.TempDir()})
		if err == nil {
			t.Errorf("%q was accepted", text)
			continue
		}
		if !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), file) {
			t.Errorf("%q: the error is %q, want one with %q", text, err, want)
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: the error repeats the value: %v", text, err)
		}
	}
}

// TestFormerNameOfNetworks sets the networks under both names. Neither name overrides the other, in
// whatever place it is set.
func TestFormerNameOfNetworks(t *testing.T) {
	file := filepath.Join(t.TempDir(), "server.yaml")
	for _, test := range []struct {
		file  string
		flags map[string]string
		env   string // of webhook_networks
		want  string
	}{
		{"", nil, "", ""},
		{"outbound_networks: 10.1.0.0/16, 10.2.0.0/16\n", nil, "", "10.1.0.0/16 10.2.0.0/16"},
		{"webhook_networks: 10.3.0.0/16\n", nil, "", "10.3.0.0/16"},
		{"webhook_networks: 10.3.0.0/16\noutbound_networks: 10.1.0.0/16\n", nil, "", "10.1.0.0/16 10.3.0.0/16"},
		{"webhook_networks: 10.3.0.0/16\n", map[string]string{"outbound_networks": "10.4.0.0/16"}, "", "10.4.0.0/16 10.3.0.0/16"},
		{"webhook_networks: 10.3.0.0/16\n", map[string]string{"outbound_networks": "10.4.0.0/16"}, "10.5.0.0/16", "10.4.0.0/16 10.5.0.0/16"},
		{"outbound_networks: 10.1.0.0/16\n", map[string]string{"webhook_networks": "10.1.0.0/16"}, "", "10.1.0.0/16 10.1.0.0/16"},
	} {
		if err := os.WriteFile(file, []byte(test.file), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Load(LoadOptions{
			Path: file, UID: os.Geteuid(), Cwd: t.TempDir(), Flags: test.flags, Environ: []string{envPrefix + "WEBHOOK_NETWORKS=" + test.env},
		})
		reach := c.Reach()
		if got := strings.Trim(fmt.Sprint(reach.Internal), "[]"); err != nil || got != test.want || reach.Anywhere {
			t.Errorf("%q %v %q: got %q, %v, want %q", test.file, test.flags, test.env, got, err, test.want)
		}
	}
	for _, key := range []string{"outbound_networks", "webhook_networks"} {
		_, err := Load(LoadOptions{Cwd: t.TempDir(), Flags: map[string]string{key: "10.1.0.0/16, 10.1.2.3"}})
		for _, want := range []string{"--" + strings.ReplaceAll(key, "_", "-"), "entry 2 is not a network", "192.168.1.20/32"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("an address in %s: %v, want %q", key, err, want)
			}
		}
	}
}
