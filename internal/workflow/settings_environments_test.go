package workflow

import (
	"strings"
	"testing"
)

// TestEnvironmentNames checks the names of environments in settings.
func TestEnvironmentNames(t *testing.T) {
	for name, want := range map[string]string{
		`["app/prod", "a.b-c_d/X@3", "default/x@stable"]`: "",
		`[]`:                          "",
		`["prod"]`:                    "does not name an environment: write project/environment",
		`["acme/app/prod"]`:           "does not name",
		`["app/"]`:                    "does not name",
		`["app/.."]`:                  "does not name",
		`["app/prod@"]`:               "does not name",
		`["app/prod@a/b"]`:            "does not name",
		`["app/\"quoted"]`:            "does not name",
		`["app/` + long(101) + `"]`:   "does not name",
		`["a/b"` + comma(20) + `]`:    "has more than 20 environments",
		`["app/prod\nvalues: {}"]`:    "does not name",
		`["` + "app/pr\u00f6d" + `"]`: "does not name",
	} {
		set, err := ParseSettings([]byte(`{"operationContext":{"environments":` + name + `}}`))
		if err != nil {
			t.Fatal(err)
		}
		if err = set.Validate(); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}

func long(n int) string { return strings.Repeat("x", n) }

func comma(n int) string { return strings.Repeat(`,"a/b"`, n) }
