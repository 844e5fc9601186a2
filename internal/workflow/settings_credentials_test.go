package workflow

import (
	"strings"
	"testing"
)

// TestStoredCredentialsStayWithTheirAddress checks that no merge sends a stored credential to an
// address for which it was not given.
func TestStoredCredentialsStayWithTheirAddress(t *testing.T) {
	const auth = `{"basicAuth":{"userName":{"secret":"u"},"password":{"secret":"p"}}}`
	const git = `{"sourceContext":{"git":{"repoUrl":"https://h/a.git","gitAuth":` + auth + `}}}`
	const image = `{"executorContext":{"executorImage":{"reference":"r.example/a:1","credentials":{"username":"u","password":{"secret":"p"}}}}}`
	for name, tc := range map[string]struct {
		base, patch string
		kept        bool
	}{
		"another host":            {git, `{"sourceContext":{"git":{"repoUrl":"https://evil/a.git"}}}`, false},
		"another scheme":          {git, `{"sourceContext":{"git":{"repoUrl":"http://h/a.git"}}}`, false},
		"another port":            {git, `{"sourceContext":{"git":{"repoUrl":"https://h:8443/a.git"}}}`, false},
		"another repository":      {git, `{"sourceContext":{"git":{"repoUrl":"https://h/b.git"}}}`, false},
		"the password stays back": {git, `{"sourceContext":{"git":{"repoUrl":"https://evil/a","gitAuth":{"basicAuth":{"userName":"x"}}}}}`, false},
		"the same address":        {git, `{"sourceContext":{"git":{"repoUrl":"https://H:443/a"}}}`, true},
		"another branch":          {git, `{"sourceContext":{"git":{"branch":"b"}}}`, true},
		"vcs names another": {
			`{"vcs":{"provider":"github","repository":"a/b"},"sourceContext":{"git":{"gitAuth":` + auth + `}}}`,
			`{"vcs":{"provider":"gitlab","repository":"a/b"}}`, false,
		},
		"hg": {
			`{"sourceContext":{"hg":{"repoUrl":"https://h/a","hgAuth":` + auth + `}}}`, `{"sourceContext":{"hg":{"repoUrl":"https://evil/a"}}}`, false,
		},
		"template": {
			`{"sourceContext":{"template":{"sourceUrl":"https://h/a","gitAuth":` + auth + `}}}`,
			`{"sourceContext":{"template":{"sourceUrl":"https://evil/a"}}}`, false,
		},
		"another registry":            {image, `{"executorContext":{"executorImage":{"reference":"evil.example/a:1"}}}`, false},
		"no image, then another":      {image, `{"executorContext":{"executorImage":{"reference":null}}}`, false},
		"another image of a registry": {image, `{"executorContext":{"executorImage":{"reference":"r.example/b:2"}}}`, true},
		"a registry in capitals": {
			strings.Replace(image, "r.example/a:1", "library/a:1", 1), `{"executorContext":{"executorImage":{"reference":"EVIL/a"}}}`, false,
		},
	} {
		for kind, merge := range map[string]func(*Settings, []byte) (*Settings, error){"patch": MergeSettings, "request": inherit} {
			if kind == "request" && strings.Contains(tc.patch, "null") {
				continue // null means "not given" in a request
			}
			t.Run(name+"/"+kind, func(t *testing.T) {
				base := settingsOf(t, tc.base)
				seal(t, base)
				got, err := merge(base, []byte(tc.patch))
				if err != nil {
					t.Fatal(err)
				}
				if kept := strings.Contains(text(t, got), strings.Trim(ct("p"), "{}")); kept != tc.kept {
					t.Errorf("the stored password was kept: %v, want %v: %s", kept, tc.kept, text(t, got))
				}
			})
		}
	}
}

// TestSecretAddress pins the addresses for which the server has encrypted the credentials in databases.
func TestSecretAddress(t *testing.T) {
	const git, hg, template, image = "sourceContext.git.gitAuth.accessToken", "sourceContext.hg.hgAuth.accessToken", "sourceContext.template.gitAuth.accessToken", "executorContext.executorImage.credentials.password"
	source := func(address string) string { return `{"sourceContext":{"git":{"repoUrl":"` + address + `"}}}` }
	for _, tc := range []struct{ settings, path, want string }{
		{`{}`, git, ""},
		{source("https://me@H.example:443//a/b.git/"), git, "https://h.example/a/b"},
		{source("http://h.example:8080/A/b%20c"), git, "http://h.example:8080/A/b c"},
		{source("git@h.example:a/b.git"), git, "ssh://h.example/a/b"},
		{source("git+ssh://git@h.example:2222/~me/b"), git, "ssh://h.example:2222/~me/b"},
		{source("not an address"), git, "not an address"},
		{`{"vcs":{"provider":"github","repository":"o/r"}}`, git, "https://github.com/o/r"},
		{`{"vcs":{"provider":"gitlab","repository":"g/s/r.git"}}`, git, "https://gitlab.com/g/s/r"},
		{`{"vcs":{"provider":"bitbucket","repository":"o/r"}}`, git, "https://bitbucket.org/o/r"},
		{`{"vcs":{"provider":"azure_devops","repository":"o/my%20project/_git/r"}}`, git, "https://dev.azure.com/o/my project/_git/r"},
		{`{"vcs":{"provider":"custom","repository":"https://h.example/r.git"}}`, git, "https://h.example/r"},
		{`{"vcs":{"provider":"custom","repository":"team/r.git"}}`, git, "custom:team/r"},
		{`{"gitHub":{"repository":"o/r"}}`, git, "https://github.com/o/r"},
		{`{"sourceContext":{"hg":{"repoUrl":"https://h.example/a"}}}`, hg, "https://h.example/a"},
		{`{"sourceContext":{"template":{"sourceUrl":"https://h.example/a"}}}`, template, "https://h.example/a"},
		{`{"executorContext":{"executorImage":"a"}}`, image, "docker.io"},
		{`{"executorContext":{"executorImage":"index.docker.io/a/b"}}`, image, "docker.io"},
		{`{"executorContext":{"executorImage":"localhost/b"}}`, image, "localhost"},
		{`{"executorContext":{"executorImage":"h.example:5000/a@sha256:1"}}`, image, "h.example:5000"},
		{source("https://h.example/a"), image, ""},
		{source("https://h.example/a"), "operationContext.environmentVariables.sourceContext.git.gitAuth.x", ""},
	} {
		if got := settingsOf(t, tc.settings).SecretAddress(tc.path); got != tc.want {
			t.Errorf("%s in %s: got %q, want %q", tc.path, tc.settings, got, tc.want)
		}
	}
}
