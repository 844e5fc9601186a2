package settings

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func testTable() *Table {
	var (
		token              Secret
		url                URL
		organization, host string
		syslog, singleRun  bool
		images             []string
	)
	return NewTable("TEST_", Group{Fields: []Field{
		{Key: "token", Value: &token},
		{Key: "service_url", Value: &url},
		{Key: "organization_name", Value: &organization},
		{Key: "syslog", Value: &syslog},
		{Key: "single_run", Value: &singleRun},
		{Key: "allowed_images", Value: &images, Separator: ","},
	}}, Group{EnvOnly: true, Fields: []Field{{Key: "docker_host", Env: "DOCKER_HOST", Value: &host}}})
}

func edit(t *testing.T, text string, changes ...Change) string {
	t.Helper()
	edited, err := testTable().Edit("FILE", []byte(text), changes)
	if err != nil {
		t.Fatal(err)
	}
	return string(edited)
}

func TestEdit(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		changes    []Change
		want       string
	}{
		{"empty file", "", []Change{{"token", "pul-1"}}, "token: pul-1\n"},
		{"only comments", "# mine\n", []Change{{"token", "pul-1"}}, "# mine\ntoken: pul-1\n"},
		{"only the start of a document", "---\n", []Change{{"token", "pul-1"}}, "---\ntoken: pul-1\n"},
		{"comment after the value stays", "token: old   # ours\nsyslog: true\n", []Change{{"token", "pul-1"}}, "token: pul-1   # ours\nsyslog: true\n"},
		{"single quotes stay", "service_url: 'a.example.com'\n", []Change{{"service_url", "b.example.com"}}, "service_url: 'b.example.com'\n"},
		{"no final newline", "syslog: true", []Change{{"single_run", "true"}}, "syslog: true\nsingle_run: true\n"},
		{"carriage returns", "# a\r\nsyslog: true\r\n", []Change{{"syslog", "false"}, {"single_run", "true"}}, "# a\r\nsyslog: false\r\nsingle_run: true\r\n"},
		{"byte order mark", "\xEF\xBB\xBFsyslog: true\n", []Change{{"syslog", "false"}}, "\xEF\xBB\xBFsyslog: false\n"},
		{
			"a list in lines", "allowed_images:\n  # why\n  - a\n  - b\n\n# about the next\nsyslog: true\n",
			[]Change{{"allowed_images", "c/*,d"}},
			"allowed_images: [\"c/*\", d]\n\n# about the next\nsyslog: true\n",
		},
		{"text over lines", "organization_name: >-\n  ac\n  me\nsyslog: true\n", []Change{{"organization_name", "b"}}, "organization_name: \"b\"\nsyslog: true\n"},
		{"a key is removed", "# a\ntoken: x\n# b\nsyslog: true\n", []Change{{"token", ""}}, "# a\n# b\nsyslog: true\n"},
		{"a missing key is removed", "syslog: true\n", []Change{{"token", ""}}, "syslog: true\n"},
		{"several", "token: x\n#syslog: false\n", []Change{{"syslog", "true"}, {"token", "y"}, {"single_run", "true"}}, "token: y\nsyslog: true\nsingle_run: true\n"},
		{"a word of YAML", "token: x\n", []Change{{"token", "null"}}, "token: \"null\"\n"},
		{"a comment that only begins like the key", "# syslog: is a daemon? yes\n#syslogs: x\n", []Change{{"token", "y"}}, "# syslog: is a daemon? yes\n#syslogs: x\ntoken: y\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, edit(t, tt.text, tt.changes...)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestEditRefuses(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		change     Change
		want       string
	}{
		{"a bad file", "token: [\n", Change{"token", "x"}, "is not valid YAML"},
		{"one line of braces", "{token: x}\n", Change{"token", "y"}, "is not written as lines"},
		{"null", "~\n", Change{"token", "y"}, "is not written as lines"},
		{"an indented mapping", "  token: x\n", Change{"token", "y"}, "is not written as lines"},
		{"after the end of the document", "syslog: true\n...\n", Change{"token", "x"}, "cannot be made without changing other text"},
		{"a comment in a text", "organization_name: |\n#token: x\n  a\n", Change{"token", "y"}, "FILE:"},
		{"unknown key", "", Change{"tokens", "x"}, "did you mean token?"},
		{"a variable's key", "", Change{"docker_host", "x"}, "set the variable DOCKER_HOST"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got, err := testTable().Edit("FILE", []byte(tt.text), []Change{tt.change}); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %q, %v; want an error with %q", got, err, tt.want)
			}
		})
	}
}

func FuzzEdit(f *testing.F) {
	names, err := filepath.Glob("../agent/config/testdata/*.good.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(data), "organization_name", "acme")
		f.Add(string(data), "token", "a#b: c")
	}
	f.Add("a: |\n token: x\n", "token", "'")
	f.Fuzz(func(t *testing.T, text, key, value string) {
		change, err := testTable().Check(Change{key, value}, Dirs{Cwd: "/cwd"})
		if err != nil {
			return
		}
		edited, err := testTable().Edit("FILE", []byte(text), []Change{change})
		if err != nil {
			return
		}
		show := func(text []byte) []string {
			entries, wrong := parseYAML("FILE", text)
			if len(wrong) > 0 {
				t.Fatalf("the edited text is wrong: %v\n%s", wrong.Err(), edited)
			}
			var all []string
			for _, e := range entries {
				if e.key != key {
					all = append(all, fmt.Sprintf("%s %q %q", e.key, e.text, e.list))
				}
			}
			slices.Sort(all)
			return all
		}
		if diff := cmp.Diff(show([]byte(text)), show(edited)); diff != "" {
			t.Errorf("other keys changed: %s", diff)
		}
	})
}
