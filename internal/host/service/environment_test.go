package service

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestEnvironmentFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.env")
	values := map[string]string{
		"PLAIN": "http://proxy.internal:3128", "SPACED": "hello world", "DOLLAR": "a$b`c", "QUOTES": `"it's" \ done`, "PERCENT": "100%done",
	}
	must(t, SetEnvironment(path, values))
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has mode %v, %v", info.Mode(), err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ParseEnvironment(string(data)); err != nil || !maps.Equal(got, values) {
		t.Errorf("read back %v, %v", got, err)
	}

	commented := "# mine\n" + string(data) + "OTHER=1\n"
	must(t, os.WriteFile(path, []byte(commented), 0o600))
	must(t, SetEnvironment(path, map[string]string{"PLAIN": "", "OTHER": "2"}))
	data, err = os.ReadFile(path)
	if err != nil || !strings.HasPrefix(string(data), "# mine\n") || strings.Contains(string(data), "PLAIN") || !strings.HasSuffix(string(data), "\nOTHER=2\n") {
		t.Errorf("after the change: %q, %v", data, err)
	}
}

func TestEnvironmentMistakes(t *testing.T) {
	for _, text := range []string{"secret value\n", "1A=secret\n", "A=\"secret\n", "A='secret' x\n", "A=sec\"ret\n", "=secret\n"} {
		if _, err := ParseEnvironment("# fine\n" + text); err == nil || !strings.Contains(err.Error(), "line 2") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", text, err)
		}
	}
	path := filepath.Join(t.TempDir(), "agent.env")
	for _, variables := range []map[string]string{{"A B": "x"}, {"": "x"}, {"A": "x\ny"}} {
		if err := SetEnvironment(path, variables); err == nil {
			t.Errorf("%v was taken", variables)
		}
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("a file was written all the same")
	}
	// An invalid file is not changed.
	must(t, os.WriteFile(path, []byte("A=\"open\n"), 0o600))
	if err := SetEnvironment(path, map[string]string{"B": "x"}); err == nil || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("got %v", err)
	}
}
