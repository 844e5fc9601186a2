package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func testOptions(path string, environ ...string) LoadOptions {
	return LoadOptions{
		Path: path, Cwd: "/cwd", Binary: "/opt/agent/customer-managed-workflow-agent",
		TempDir: "/tmp", Environ: environ, UID: os.Geteuid(),
	}
}

func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	must(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func loadAndValidate(o LoadOptions) (*Config, error) {
	c, err := Load(o)
	if err != nil {
		return nil, err
	}
	return c, c.Validate()
}

// TestFiles loads testdata/*.bad.yaml and *.good.yaml. Each file covers one rule, and its first
// lines begin with "# want: ". In a bad file, these lines contain the expected error, with FILE for
// the path. In a good file, they contain expected settings in the form "key value".
func TestFiles(t *testing.T) {
	names, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(names) < 70 {
		t.Fatalf("found only %d files", len(names))
	}
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			// The checkout may be group-writable, but the copy is not.
			path := writeFile(t, FileName, string(data))
			var want []string
			for line := range strings.Lines(string(data)) {
				if text, ok := strings.CutPrefix(line, "# want: "); ok {
					want = append(want, strings.TrimSuffix(text, "\n"))
				}
			}
			c, err := loadAndValidate(testOptions(path))
			if strings.HasSuffix(name, ".good.yaml") {
				checkGood(t, c, err, want)
				return
			}
			if err == nil {
				t.Fatal("the file was accepted")
			}
			got := strings.Split(strings.ReplaceAll(err.Error(), path, "FILE"), "\n")
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			for _, secret := range []string{"0123456789abcdef", "0123", "fedcba", "hunter2"} {
				if strings.Contains(strings.ReplaceAll(err.Error(), path, ""), secret) {
					t.Errorf("the error contains a secret: %v", err)
				}
			}
		})
	}
}

func checkGood(t *testing.T, c *Config, err error, want []string) {
	t.Helper()
	if err != nil {
		t.Fatalf("the file was rejected: %v", err)
	}
	got := map[string]string{}
	for _, s := range c.Settings() {
		got[s.Key] = s.Value
	}
	for _, line := range want {
		key, value, _ := strings.Cut(line, " ")
		if shown, ok := got[key]; !ok || shown != value {
			t.Errorf("%s is %q, want %q", key, shown, value)
		}
	}
}

func TestOddBytes(t *testing.T) {
	const token = "token: pul-0123456789abcdef\n"
	for _, tt := range []struct {
		name, content, want string
	}{
		{"utf-8 byte order mark", "\xEF\xBB\xBF" + token, ""},
		{"carriage returns", strings.ReplaceAll(token+"single_run: true\n", "\n", "\r\n"), ""},
		{"no final newline", strings.TrimSpace(token), ""},
		{"utf-16 little endian", "\xFF\xFEt\x00", "FILE:1: is UTF-16 text: save the file as UTF-8"},
		{"utf-16 big endian", "\xFE\xFF\x00t", "FILE:1: is UTF-16 text: save the file as UTF-8"},
		{"latin-1", token + "organization_name: caf\xE9\n", "FILE:2: is not UTF-8 text: save the file as UTF-8"},
		{"nul byte", token + "organization_name: a\x00b\n", "FILE:2: contains a control character: remove it"},
		{"escape", "# \x1b[2J\n" + token, "FILE:1: contains a control character: remove it"},
		{"too large", token + "#" + strings.Repeat("x", 1<<20), "FILE: is larger than 1 MiB: check that it is the right file"},
		{"nesting", token + "organization_name: " + strings.Repeat("[", 100_000), "FILE:2: is not valid YAML: check the indentation (spaces, no tabs), quotes and colons around this line"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := writeFile(t, FileName, tt.content)
			_, err := loadAndValidate(testOptions(path))
			got := ""
			if err != nil {
				got = strings.ReplaceAll(err.Error(), path, "FILE")
			}
			if got != tt.want {
				t.Errorf("error %q, want %q", got, tt.want)
			}
		})
	}
}

func TestEmptyFiles(t *testing.T) {
	for _, content := range []string{"", "\n", "# nothing\n", "---\n", "--- ~\n", "{}\n"} {
		path := writeFile(t, FileName, content)
		c, err := loadAndValidate(testOptions(path, "PULUMI_AGENT_TOKEN=pul-0123456789abcdef"))
		if err != nil {
			t.Errorf("%q: %v", content, err)
			continue
		}
		if c.File() != path || c.Source("token").String() != "env PULUMI_AGENT_TOKEN" {
			t.Errorf("%q: file %q, token from %q", content, c.File(), c.Source("token"))
		}
	}
}

func TestManyProblems(t *testing.T) {
	var b strings.Builder
	for i := 0; b.Len() < 1<<20-100; i++ {
		fmt.Fprintf(&b, "some_key_%s: x\n", strings.Map(func(r rune) rune { return r - '0' + 'a' }, strconv.Itoa(i)))
	}
	begin := time.Now()
	_, err := Load(testOptions(writeFile(t, FileName, b.String())))
	if err == nil {
		t.Fatal("the file was accepted")
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 20+1 || !strings.HasPrefix(lines[20], "and ") || !strings.Contains(lines[0], ":1: some_key_a: ") {
		t.Errorf("got %d lines: %.300s", len(lines), err)
	}
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("took %s", took)
	}
}

// FuzzLoad checks that Load and Validate return and that no message contains the token.
func FuzzLoad(f *testing.F) {
	names, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(data), "1m")
	}
	const token = "Zq7Zq7Xw9Xw9Kj4Kj4"
	for _, tail := range []string{": x", "\n: - ", `"`, ": [", "\n\t", "&a", "*b", "\n- "} {
		f.Add("token: "+token+tail, token)
		f.Add("token:\n  "+token+tail+"\nservice_url: "+token, token+"@")
		f.Add(token+tail, token)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, content, value string) {
		path := filepath.Join(dir, FileName)
		must(t, os.WriteFile(path, []byte(content), 0o600))
		var environ []string
		for _, field := range Table().Fields() {
			if field.Key != "token" {
				environ = append(environ, field.Env+"="+value)
			}
		}
		for _, o := range []LoadOptions{testOptions(path), testOptions(path, "PULUMI_AGENT_TOKEN="+token), testOptions(path, environ...)} {
			c, err := loadAndValidate(o)
			var warnings []string
			if c != nil {
				warnings = c.Warnings()
			}
			text := strings.Join(warnings, "\n") + errorText(err)
			if strings.Contains(text, token) {
				t.Errorf("the message contains the token: %q", text)
			}
			if err != nil && strings.ContainsFunc(text, func(r rune) bool { return r == '\x1b' || r == '\r' || r == 0 }) {
				t.Errorf("the message contains control characters: %q", text)
			}
		}
	})
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return errors.Join(err).Error()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
