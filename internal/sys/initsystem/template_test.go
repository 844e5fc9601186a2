package initsystem

import "testing"

func TestFill(t *testing.T) {
	values := map[string]string{"A": "one {{B}}", "B": "two"}
	conditions := map[string]bool{"Yes": true, "No": false}
	for text, want := range map[string]string{
		"x {{A}} {{B}}\n":                                   "x one {{B}} two\n", // the inserted values are not expanded again
		"{{if Yes}}\na\n{{else}}\nb\n{{end}}\nc\n":          "a\nc\n",
		"{{if not Yes}}\na\n{{else}}\nb\n{{end}}\n":         "b\n",
		"{{if Yes}}\n{{if No}}\na\n{{end}}\nb\n{{end}}\n":   "b\n",
		"{{if No}}\n{{if Yes}}\na\n{{end}}\n{{B}}\n{{end}}": "",
	} {
		if got := Fill(text, values, conditions); string(got) != want {
			t.Errorf("%q became %q", text, got)
		}
	}
}

func TestWordsOfUnits(t *testing.T) {
	for value, want := range map[string]string{
		"/usr/bin/agent": "/usr/bin/agent", "/a b": `"/a b"`, "100%": "100%%", "$HOME": "$HOME", `a"b\c`: `"a\"b\\c"`, "": `""`,
	} {
		if got := UnitPath(value); got != want {
			t.Errorf("%q became %s, want %s", value, got, want)
		}
	}
	// systemd expands variables only in the arguments.
	if got, want := UnitCommand("/a $b", "run", "$c d"), `"/a $b" run "$$c d"`; got != want {
		t.Errorf("the command is %s, want %s", got, want)
	}
}
