package workflow

import (
	"strings"
	"testing"
)

func TestVersionRanges(t *testing.T) {
	for _, c := range []struct{ text, in, out string }{
		{"3.276.0", "3.276.0 v3.276.0", "3.276.1 3.275.9 4.276.0"},
		{"v3.276.0", "3.276.0", "3.276.1"},
		{"=3.276.0", "3.276.0", "3.276.1"},
		{"3.276", "3.276.0 3.276.99", "3.277.0 3.275.99"},
		{"3", "3.0.0 3.999.9", "2.9.9 4.0.0"},
		{">=3.270.0 <3.280", "3.270.0 3.279.9", "3.269.9 3.280.0"},
		{">=3.270.0,<3.280.0", "3.279.9", "3.280.0"},
		{">3.270", "3.271.0 9.0.0", "3.270.5"},
		{">3.270.1", "3.270.2", "3.270.1"},
		{"<=3.270", "3.270.9 0.0.0", "3.271.0"},
		{"^3.270.2", "3.270.2 3.999.0", "3.270.1 4.0.0"},
		{"~3.270.2", "3.270.2 3.270.9", "3.270.1 3.271.0"},
		{"~3.270", "3.270.0", "3.271.0"},
		{"~3", "3.0.0 3.9.0", "4.0.0"},
		{">= 3.270.0, <  3.280", "3.270.0 3.279.9", "3.269.9 3.280.0"},
		{" 3.276.0 ", "3.276.0", "3.276.1"},
	} {
		r, err := ParseVersionRange(c.text)
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		for want, versions := range map[bool]string{true: c.in, false: c.out} {
			for text := range strings.FieldsSeq(versions) {
				v, err := ParseVersion(text)
				if err != nil || r.Contains(v) != want {
					t.Errorf("%q contains %s: %v (%v), want %v", c.text, text, r.Contains(v), err, want)
				}
			}
		}
	}
	for _, text := range []string{"", " ", "latest", "3.x", "3.276.0.1", "3..1", ">=", ">= <3", "3 >=", "> = 3", "!3", "=>3.1.0", "^", "3.276.0-alpha", "03.1.0", "3.-1.0", "99999999999.0.0", "2000000.0.0", strings.Repeat("3 ", 100)} {
		if r, err := ParseVersionRange(text); err == nil {
			t.Errorf("%q is the range %+v", text, r)
		}
	}
	for _, text := range []string{"", "3", "3.276", "v", "vv3.1.0", "3.1.0-dev", "3.1.0\n"} {
		if v, err := ParseVersion(text); err == nil {
			t.Errorf("%q is the version %v", text, v)
		}
	}
}

func TestPulumiVersionOfSettings(t *testing.T) {
	for text, want := range map[string]string{
		`{}`:                   "",
		`"3.276.0"`:            "",
		`">=3.270.0 <4"`:       "",
		`"newest"`:             "PULUMI_DEPLOY_PULUMI_VERSION: \"newest\" is not a version",
		`{"secret":"3.276.0"}`: "PULUMI_DEPLOY_PULUMI_VERSION must not be a secret",
	} {
		if text == `{}` {
			text = `""`
		}
		s, err := ParseSettings([]byte(`{"operationContext":{"environmentVariables":{"PULUMI_DEPLOY_PULUMI_VERSION":` + text + `}}}`))
		if err != nil {
			t.Fatal(err)
		}
		err = s.Validate()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	s, err := ParseSettings([]byte(`{"operationContext":{"environmentVariables":{"PULUMI_DEPLOY_PULUMI_VERSION":" 3.276 "}}}`))
	if err != nil || s.PulumiVersion("3") != "3.276" || new(Settings).PulumiVersion("3") != "3" {
		t.Errorf("the settings select %q (%v)", s.PulumiVersion("3"), err)
	}
}
