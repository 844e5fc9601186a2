package workflow

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestSessionName(t *testing.T) {
	n := SessionName{
		Organization: "acme", Project: "web", Stack: "prod", Operation: OperationUpdate, Version: 12, DeploymentID: "01234567-89ab-cdef-0123-456789abcdef",
	}
	long := n
	long.Organization, long.Project, long.Stack = strings.Repeat("o", 40), strings.Repeat("p", 100), "prod"
	for _, test := range []struct {
		names          SessionName
		template, want string
	}{
		{n, "deploy", "deploy"},
		{n, "${organization.name}.${project.name}@${stack.name}", "acme.web@prod"},
		{n, "${operation}-${deployment.version}-${deployment.id}", "update-12-01234567-89ab-cdef-0123-456789abcdef"},
		{long, "${organization.name}-${project.name}-${stack.name}-${operation}-12", strings.Repeat("o", 24) + "-" + strings.Repeat("p", 24) + "-prod-update-12"},
		{long, "${stack.name}-${project.name}", "prod-" + strings.Repeat("p", 59)},
		{long, "${project.name}${deployment.id}", strings.Repeat("p", 28) + n.DeploymentID},
	} {
		if got := test.names.render(test.template); got != test.want {
			t.Errorf("%s: %q, want %q", test.template, got, test.want)
		}
	}
	for template, want := range map[string]string{
		"a": "at least 2", "a b": "' '", "a:b": "':'", "é${stack.name}": "'é'", "${stack.name": "'$'", "$${stack.name}": "'$'", "${}": "unknown placeholder ${}",
		"${Stack.Name}": "unknown", "${deployment.id}${deployment.id}": "longer than 64", strings.Repeat("x", 65): "longer than 64",
		"${stack.name}": "", "${operation}-${deployment.version}-${deployment.id}": "", strings.Repeat("x", 64): "",
	} {
		err := checkSessionName(template)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", template, err, want)
		}
	}
	var none *OIDCSettings
	if none.Render(n) != nil {
		t.Error("no settings were rendered as some")
	}
	set := &OIDCSettings{AWS: &OIDCAWS{SessionName: "${stack.name}"}}
	if got := set.Render(n); got.AWS.SessionName != "prod" || set.AWS.SessionName != "${stack.name}" {
		t.Errorf("got %+v from %+v", got.AWS, set.AWS)
	}
}

// TestSessionNameFits checks that AWS accepts the name that results from any accepted template.
func TestSessionNameFits(t *testing.T) {
	part := rapid.OneOf(rapid.StringMatching(`[\w+=,.@-]{0,12}`), rapid.SampledFrom([]string{
		"${organization.name}", "${project.name}", "${stack.name}", "${operation}", "${deployment.version}", "${deployment.id}",
	}))
	rapid.Check(t, func(t *rapid.T) {
		template := strings.Join(rapid.SliceOfN(part, 1, 6).Draw(t, "parts"), "")
		if checkSessionName(template) != nil {
			t.Skip()
		}
		name := rapid.StringMatching(`[a-zA-Z0-9_.-]{2,100}`)
		n := SessionName{
			Organization: name.Draw(t, "organization"), Project: name.Draw(t, "project"), Stack: name.Draw(t, "stack"),
			Operation: rapid.SampledFrom(Operations()).Draw(t, "operation"), Version: rapid.Int64Range(1, 9_999_999).Draw(t, "version"),
			DeploymentID: "01234567-89ab-cdef-0123-456789abcdef",
		}
		if got := n.render(template); len(got) > 64 || strings.ContainsAny(got, "${}") {
			t.Errorf("%q became %q", template, got)
		}
	})
}
