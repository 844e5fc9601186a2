package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func noEnv(string) string { return "" }

func TestFlagsBeatEnvironmentBeatsFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "server.yaml")
	text := "# comment\nlisten: 127.0.0.1:1\nlog_level: debug\norganization: acme\nupdate_lease: 90s\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"WORKFLOW_SERVER_LISTEN": "127.0.0.1:2", "WORKFLOW_SERVER_ORGANIZATION": "env"}
	c, err := LoadConfig(file, map[string]string{"listen": "127.0.0.1:3"}, func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen != "127.0.0.1:3" || c.Organization != "env" || c.UpdateLease != 90*time.Second || c.LogFormat != "text" {
		t.Errorf("config = %+v", c)
	}
	if !filepath.IsAbs(c.DataDir) || c.database() != "sqlite:"+filepath.Join(c.DataDir, "server.db") {
		t.Errorf("data directory %q, database %q", c.DataDir, c.database())
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
		_, err := LoadConfig(file, nil, noEnv)
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

func TestEveryFieldHasADefaultThatWorks(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range Settings(&Config{}).Fields() {
		if seen[f.Key] || f.Doc == "" || strings.ToLower(f.Key) != f.Key {
			t.Errorf("field %q is given twice or not described", f.Key)
		}
		seen[f.Key] = true
	}
	if _, err := LoadConfig("", nil, noEnv); err != nil {
		t.Errorf("the defaults are invalid: %v", err)
	}
	if c, err := LoadConfig("", map[string]string{"external_url": "https://h:1//"}, noEnv); err != nil || c.ExternalURL != "https://h:1" {
		t.Errorf("external URL = %q, %v", c.ExternalURL, err)
	}
}
