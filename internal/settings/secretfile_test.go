package settings

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type secrets struct {
	token     Secret
	tokenFile string
	keyFile   string
	level     string
}

func secretTable(s *secrets) *Table {
	return NewTable("TEST_", Group{Fields: []Field{
		{Key: "token", Value: &s.token, Credential: "token"},
		{Key: "token_file", Value: (*Path)(&s.tokenFile)},
		{Key: "key_file", Value: (*Path)(&s.keyFile), Credential: "key"},
		{Key: "level", Value: &s.level, Default: "info"},
	}})
}

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSecretFiles(t *testing.T) {
	dir, credentials := t.TempDir(), t.TempDir()
	file, empty, lines := write(t, dir, "token", "from-file\n"), write(t, dir, "empty", "\n"), write(t, dir, "lines", "a\nhunter2\n")
	key := write(t, credentials, "key", "from-credential\n")
	credential := write(t, credentials, "token", "from-credential\n")
	for _, tt := range []struct {
		name, text  string
		env         map[string]string
		credentials string
		want        string // value of the secret
		source      string
		problem     string
	}{
		{name: "nothing", source: "default"},
		{name: "a file", text: "token_file: " + file, want: "from-file", source: file},
		{name: "a file before a credential", text: "token_file: " + file, credentials: credentials, want: "from-file", source: file},
		{name: "a credential", credentials: credentials, want: "from-credential", source: credential},
		{name: "a value before a credential", text: "token: direct", credentials: credentials, want: "direct", source: "FILE:1"},
		{name: "no such credential", credentials: dir + "/absent", source: "default"},
		{name: "a variable before a file", text: "token_file: " + file, env: map[string]string{"TEST_TOKEN": "direct"}, want: "direct", source: "env TEST_TOKEN"},
		{name: "a variable's file before a value", text: "token: direct", env: map[string]string{"TEST_TOKEN_FILE": file}, want: "from-file", source: file},
		{name: "both", text: "token: direct\ntoken_file: " + file, problem: "FILE:1: token: is set in addition to token_file: remove one of them"},
		{name: "no file", text: "token_file: /absent/x", problem: "FILE:1: token_file: cannot be read"},
		{name: "an empty file", text: "token_file: " + empty, problem: "FILE:1: token_file: names a file without content"},
		{name: "several lines", text: "token_file: " + lines, problem: "FILE:1: token_file: names a file with several lines"},
		{name: "a device", text: "token_file: /dev/zero", problem: "FILE:1: token_file: cannot be read"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var s secrets
			table := secretTable(&s)
			table.SetDefaults()
			table.ReadFile("FILE", []byte(tt.text))
			table.ReadEnv(func(name string) string { return tt.env[name] })
			table.ReadSecretFiles(tt.credentials)
			err := table.Problems.Err()
			if tt.problem != "" {
				if err == nil || !strings.HasPrefix(err.Error(), tt.problem) || strings.Contains(err.Error(), "hunter2") {
					t.Errorf("got %v, want %s", err, tt.problem)
				}
				return
			}
			if err != nil || s.token.Reveal() != tt.want || table.Sources["token"].String() != tt.source {
				t.Errorf("got %q from %q, %v; want %q from %q", s.token.Reveal(), table.Sources["token"], err, tt.want, tt.source)
			}
			if tt.credentials == credentials && s.keyFile != key {
				t.Errorf("the file with the key is %q, want %q", s.keyFile, key)
			}
		})
	}
}

func TestChanged(t *testing.T) {
	var a, b secrets
	before, after := secretTable(&a), secretTable(&b)
	a.token, b.token = NewSecret("same"), NewSecret("same")
	if got := before.Changed(after); got != nil {
		t.Errorf("equal settings differ in %v", got)
	}
	b.token, b.level = NewSecret("other"), "debug"
	if diff := cmp.Diff([]string{"token", "level"}, before.Changed(after)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
