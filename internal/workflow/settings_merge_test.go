package workflow

import (
	"strings"
	"testing"
)

func TestMergeSettings(t *testing.T) {
	for _, tc := range []struct{ name, base, patch, want string }{
		{"nothing stored", `{}`, `{"tag":"a"}`, `{"tag":"a"}`},
		{"null removes", `{"tag":"a","agentPoolID":"p"}`, `{"agentPoolID":null}`, `{"tag":"a"}`},
		{"empty string resets the pool", `{"agentPoolID":"p"}`, `{"agentPoolID":""}`, `{}`},
		{"a missing pool stays", `{"agentPoolID":"p"}`, `{"tag":"a"}`, `{"tag":"a","agentPoolID":"p"}`},
		{"null for a missing member", `{"tag":"a"}`, `{"vcs":null,"sourceContext":{"git":{"gitAuth":null}}}`, `{"tag":"a","sourceContext":{"git":{}}}`},
		{"null removes vcs", `{"tag":"a","vcs":{"provider":"github","repository":"a/b"}}`, `{"vcs":null}`, `{"tag":"a"}`},
		{"an empty patch", `{"tag":"a"}`, `{}`, `{"tag":"a"}`},
		{
			"the CLI names the other modes of gitAuth as null", `{"sourceContext":{"git":{"gitAuth":{"basicAuth":{"userName":"u","password":{"secret":"p"}}}}}}`,
			`{"sourceContext":{"git":{"gitAuth":{"accessToken":{"secret":"t"},"basicAuth":null,"sshAuth":null}}}}`,
			`{"sourceContext":{"git":{"gitAuth":{"accessToken":` + ct("t") + `}}}}`,
		},
		{
			"a ciphertext that was read is kept", `{"operationContext":{"environmentVariables":{"A":{"secret":"s"}}}}`,
			`{"operationContext":{"environmentVariables":{"A":` + ct("s") + `}}}`, `{"operationContext":{"environmentVariables":{"A":` + ct("s") + `}}}`,
		},
		{
			"a plain value replaces a secret", `{"operationContext":{"environmentVariables":{"A":{"secret":"s"}}}}`,
			`{"operationContext":{"environmentVariables":{"A":"x"}}}`, `{"operationContext":{"environmentVariables":{"A":"x"}}}`,
		},
		{
			"an empty list replaces", `{"operationContext":{"preRunCommands":["a"]}}`, `{"operationContext":{"preRunCommands":[]}}`, `{"operationContext":{}}`,
		},
		{
			"capitals of untagged fields", `{"sourceContext":{"git":{"repoUrl":"https://h/a","branch":"main"}}}`,
			`{"SourceContext":{"Git":{"RepoDir":"x"}}}`,
			`{"sourceContext":{"git":{"repoUrl":"https://h/a","branch":"main","repoDir":"x"}}}`,
		},
		{"unknown members are not kept", `{}`, `{"tag":"a","future":{"x":1},"sourceContext":{"git":{"later":true,"branch":"b"}}}`, `{"tag":"a","sourceContext":{"git":{"branch":"b"}}}`},
		{
			"variables merge one by one", `{"operationContext":{"environmentVariables":{"A":"1","B":"2"}}}`,
			`{"operationContext":{"environmentVariables":{"A":null,"C":{"secret":"s"}}}}`,
			`{"operationContext":{"environmentVariables":{"B":"2","C":` + ct("s") + `}}}`,
		},
		{
			"names of variables are case-sensitive", `{"operationContext":{"environmentVariables":{"a":"1"}}}`,
			`{"operationContext":{"environmentVariables":{"A":"2"}}}`, `{"operationContext":{"environmentVariables":{"a":"1","A":"2"}}}`,
		},
		{
			"vcs is replaced as a whole", `{"vcs":{"provider":"github","repository":"a/b","deployCommits":true,"paths":["x"]}}`,
			`{"vcs":{"provider":"github","repository":"a/b"}}`,
			`{"vcs":{"provider":"github","repository":"a/b","deployCommits":false,"previewPullRequests":false,"pullRequestTemplate":false}}`,
		},
		{
			"gitHub is merged", `{"gitHub":{"repository":"a/b","deployCommits":true}}`, `{"gitHub":{"previewPullRequests":true}}`,
			`{"gitHub":{"repository":"a/b","deployCommits":true,"previewPullRequests":true,"pullRequestTemplate":false}}`,
		},
		{
			"one mode of gitAuth removes the others", `{"sourceContext":{"git":{"gitAuth":{"sshAuth":{"sshPrivateKey":{"secret":"k"}}}}}}`,
			`{"sourceContext":{"git":{"gitAuth":{"accessToken":{"secret":"t"}}}}}`,
			`{"sourceContext":{"git":{"gitAuth":{"accessToken":` + ct("t") + `}}}}`,
		},
		{
			"commit removes branch", `{"sourceContext":{"git":{"branch":"main"}}}`, `{"sourceContext":{"git":{"commit":"abcdef1"}}}`,
			`{"sourceContext":{"git":{"commit":"abcdef1"}}}`,
		},
		{"commit removes tag", `{"sourceContext":{"git":{"tag":"v1"}}}`, `{"sourceContext":{"git":{"commit":"abcdef1"}}}`, `{"sourceContext":{"git":{"commit":"abcdef1"}}}`},
		{
			"commit and tag remove branch", `{"sourceContext":{"git":{"branch":"main"}}}`, `{"sourceContext":{"git":{"commit":"abcdef1","tag":"v1"}}}`,
			`{"sourceContext":{"git":{"commit":"abcdef1","tag":"v1"}}}`,
		},
		{
			"git removes template", `{"sourceContext":{"template":{"sourceUrl":"u"}}}`, `{"sourceContext":{"git":{"branch":"b"}}}`,
			`{"sourceContext":{"git":{"branch":"b"}}}`,
		},
		{
			"lists replace", `{"operationContext":{"preRunCommands":["a","b"]}}`, `{"operationContext":{"preRunCommands":["c"]}}`,
			`{"operationContext":{"preRunCommands":["c"]}}`,
		},
		{
			"image as text gets credentials", `{"executorContext":{"executorImage":"img"}}`,
			`{"executorContext":{"executorImage":{"credentials":{"username":"u","password":{"secret":"p"}}}}}`,
			`{"executorContext":{"executorImage":{"reference":"img","credentials":{"username":"u","password":` + ct("p") + `}}}}`,
		},
		{
			"image as text replaces one with credentials", `{"executorContext":{"executorImage":{"reference":"a","credentials":{"username":"u","password":{"secret":"p"}}}}}`,
			`{"executorContext":{"executorImage":"b"}}`, `{"executorContext":{"executorImage":"b"}}`,
		},
		{
			"an option can be switched off", `{"operationContext":{"options":{"skipInstallDependencies":true}}}`,
			`{"operationContext":{"options":{"skipInstallDependencies":false}}}`, `{"operationContext":{"options":{"skipInstallDependencies":false}}}`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			base := settingsOf(t, tc.base)
			seal(t, base)
			got, err := MergeSettings(base, []byte(tc.patch))
			if err != nil {
				t.Fatal(err)
			}
			sameJSON(t, text(t, got), tc.want)
		})
	}
}

func TestInheritSettings(t *testing.T) {
	const stored = `{"agentPoolID":"p","sourceContext":{"git":{"repoUrl":"https://h/a","branch":"main","gitAuth":{"accessToken":{"secret":"t"}}}},
		"operationContext":{"preRunCommands":["a"],"environmentVariables":{"A":"1"}},"executorContext":{"executorImage":"img"}}`
	for _, tc := range []struct{ name, request, want string }{
		{
			"what the stock CLI sends for nothing", `{"operation":"update","executorContext":{"workingDirectory":""},"agentPoolID":null,
			"sourceContext":{"git":{"branch":"","repoUrl":""}},
			"operationContext":{"preRunCommands":null,"operation":"","environmentVariables":{}}}`, stored,
		},
		{"no pool", `{}`, stored},
		{"an empty pool", `{"agentPoolID":""}`, stored},
		{"another pool", `{"agentPoolID":"q"}`, strings.Replace(stored, `"agentPoolID":"p"`, `"agentPoolID":"q"`, 1)},
		{"empty objects", `{"sourceContext":{},"operationContext":{"options":{},"environmentVariables":{"A":null}},"executorContext":{"executorImage":""}}`, stored},
		{"untagged names", `{"SourceContext":{"Git":{"Branch":"x"}}}`, strings.Replace(stored, `"branch":"main"`, `"branch":"x"`, 1)},
		{
			"empty lists are not given", `{"operationContext":{"preRunCommands":[]}}`, stored,
		},
		{
			"a commit next to an empty branch", `{"sourceContext":{"git":{"branch":"","commit":"abcdef1"}}}`,
			strings.Replace(stored, `"branch":"main"`, `"commit":"abcdef1"`, 1),
		},
		{"a tag instead of the branch", `{"sourceContext":{"git":{"tag":"v1"}}}`, strings.Replace(stored, `"branch":"main"`, `"tag":"v1"`, 1)},
		{
			"an empty variable is a value", `{"operationContext":{"environmentVariables":{"A":""}}}`,
			strings.Replace(stored, `"A":"1"`, `"A":""`, 1),
		},
		{
			"credentials stay with their host", `{"sourceContext":{"git":{"repoUrl":"https://elsewhere/a"}}}`,
			strings.NewReplacer(`https://h/a`, `https://elsewhere/a`, `,"gitAuth":{"accessToken":{"secret":"t"}}`, ``).Replace(stored),
		},
		{
			"credentials do not go to another repository of the host", `{"sourceContext":{"git":{"repoUrl":"https://H/b"}}}`,
			strings.NewReplacer(`https://h/a`, `https://H/b`, `,"gitAuth":{"accessToken":{"secret":"t"}}`, ``).Replace(stored),
		},
		{
			"credentials do not go unencrypted", `{"sourceContext":{"git":{"repoUrl":"http://h/a"}}}`,
			strings.NewReplacer(`https://h/a`, `http://h/a`, `,"gitAuth":{"accessToken":{"secret":"t"}}`, ``).Replace(stored),
		},
		{
			"credentials do not go to another port", `{"sourceContext":{"git":{"repoUrl":"https://h:8443/a"}}}`,
			strings.NewReplacer(`https://h/a`, `https://h:8443/a`, `,"gitAuth":{"accessToken":{"secret":"t"}}`, ``).Replace(stored),
		},
		{
			"credentials go along to the same port", `{"sourceContext":{"git":{"repoUrl":"https://h:443/a"}}}`,
			strings.Replace(stored, `https://h/a`, `https://h:443/a`, 1),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			base := settingsOf(t, stored)
			seal(t, base)
			got, err := inherit(base, []byte(tc.request))
			if err != nil {
				t.Fatal(err)
			}
			sameJSON(t, text(t, got), text(t, settingsOf(t, tc.want)))
		})
	}
}

// TestCredentialsStayWhereverTheRepositoryIsNamed checks that stored credentials do not apply to
// another repository, whichever of three members of a request names the repository.
func TestCredentialsStayWhereverTheRepositoryIsNamed(t *testing.T) {
	const auth = `"sourceContext":{"git":{"gitAuth":{"accessToken":{"secret":"t"}}}}`
	for _, tc := range []struct {
		name, stored, request string
		keeps                 bool
	}{
		{"vcs elsewhere", `{"gitHub":{"repository":"a/b"},` + auth + `}`, `{"vcs":{"provider":"custom","repository":"https://evil.example/x"}}`, false},
		{"another provider", `{"gitHub":{"repository":"a/b"},` + auth + `}`, `{"vcs":{"provider":"gitlab","repository":"a/b"}}`, false},
		{"url over vcs", `{"vcs":{"provider":"gitlab","repository":"a/b"},` + auth + `}`, `{"sourceContext":{"git":{"repoUrl":"https://evil.example/x"}}}`, false},
		{"another repository's url", `{"vcs":{"provider":"gitlab","repository":"a/b"},` + auth + `}`, `{"sourceContext":{"git":{"repoUrl":"https://gitlab.com/a/c"}}}`, false},
		{"the same repository's url", `{"vcs":{"provider":"gitlab","repository":"a/b"},` + auth + `}`, `{"sourceContext":{"git":{"repoUrl":"https://gitlab.com/a/b"}}}`, true},
		{"another repository", `{"gitHub":{"repository":"a/b"},` + auth + `}`, `{"gitHub":{"repository":"a/c"}}`, false},
		{"commit only", `{"gitHub":{"repository":"a/b"},` + auth + `}`, `{"sourceContext":{"git":{"commit":"abcdef1"}}}`, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			base := settingsOf(t, tc.stored)
			seal(t, base)
			got, err := inherit(base, []byte(tc.request))
			if err != nil {
				t.Fatal(err)
			}
			if keeps := got.SourceContext.Git.GitAuth != nil; keeps != tc.keeps {
				t.Errorf("the stored credentials went along: %t, want %t", keeps, tc.keeps)
			}
		})
	}
}

// TestCredentialsStayWithTheirRegistry checks that stored credentials do not apply to an image from
// another registry, in a patch as in a request.
func TestCredentialsStayWithTheirRegistry(t *testing.T) {
	for _, tc := range []struct {
		stored, request string
		keeps           bool
	}{
		{"registry.corp.example/a:1", "registry.corp.example/b:2", true},
		{"registry.corp.example/a:1", "evil.example/a:1", false},
		{"registry.corp.example/a:1", "registry.corp.example:8443/a:1", false},
		{"registry.corp.example/a:1", "pulumi/pulumi", false},
		{"registry:5000/a", "registry/a", false},
		{"localhost/a", "a", false},
		{"acme/private", "docker.io/acme/other", true},
		{"acme/private", "busybox", true},
		{"acme/private", "registry.corp.example/a", false},
	} {
		base := settingsOf(t, `{"executorContext":{"executorImage":{"reference":"`+tc.stored+`","credentials":{"username":"u","password":{"secret":"p"}}}}}`)
		seal(t, base)
		for kind, merge := range map[string]func(*Settings, []byte) (*Settings, error){"patch": MergeSettings, "request": inherit} {
			got, err := merge(base, []byte(`{"executorContext":{"executorImage":{"reference":"`+tc.request+`"}}}`))
			if err != nil {
				t.Fatal(err)
			}
			if keeps := got.ExecutorContext.ExecutorImage.Credentials != nil; keeps != tc.keeps {
				t.Errorf("%s of %s to %s: the credentials went along: %t, want %t", kind, tc.stored, tc.request, keeps, tc.keeps)
			}
		}
	}
}
