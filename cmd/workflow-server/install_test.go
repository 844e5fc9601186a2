package main

import (
	"strings"
	"testing"
)

// TestDirectoriesOfInstallations checks that nothing is installed where systemd starts no program.
func TestDirectoriesOfInstallations(t *testing.T) {
	for dir, want := range map[string]string{
		"relative": "absolute path", "/": "not the root directory", "//.": "not the root directory",
		`/opt/it's`: "quotes", `/opt/a"b`: "quotes", `/opt/a\b`: "quotes", "/opt/a\nb": "quotes",
	} {
		_, code, err := execute(t, "install", "--dir", dir)
		if code != 2 || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--dir %q: exit code %d, %v", dir, code, err)
		}
	}
}
