package workflow

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// settingsOf parses settings and encrypts every secret, as for storage.
func settingsOf(t *testing.T, doc string) *Settings {
	t.Helper()
	s, err := ParseSettings([]byte(doc))
	if err != nil {
		t.Fatalf("ParseSettings(%s): %v", doc, err)
	}
	return s
}

// seal replaces each plain secret with a ciphertext that contains it readably.
func seal(t *testing.T, s *Settings) {
	t.Helper()
	err := s.EachSecret(func(v *Secret) error {
		if plain, known := v.Value(); v.IsSecret() && known {
			*v = EncryptedValue([]byte("sealed " + plain))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func text(t *testing.T, s *Settings) string {
	t.Helper()
	seal(t, s)
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatalf("marshal: %v", err)
	}
	return string(data)
}

func sameJSON(t *testing.T, got, want string) {
	t.Helper()
	var g, w any
	if err := json.Unmarshal([]byte(got), &g); err != nil {
		t.Fatalf("got is not JSON: %v\n%s", err, got)
	}
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatalf("want is not JSON: %v\n%s", err, want)
	}
	if diff := cmp.Diff(w, g); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// ct returns the JSON form of a sealed secret.
func ct(plain string) string {
	data, _ := json.Marshal(EncryptedValue([]byte("sealed " + plain)))
	return string(data)
}

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
			"credentials go along to another repository of the host", `{"sourceContext":{"git":{"repoUrl":"https://H/b"}}}`,
			strings.Replace(stored, `https://h/a`, `https://H/b`, 1),
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
			got, err := InheritSettings(base, []byte(tc.request))
			if err != nil {
				t.Fatal(err)
			}
			sameJSON(t, text(t, got), text(t, settingsOf(t, tc.want)))
		})
	}
}

// TestCredentialsStayWhereverTheRepositoryIsNamed checks that stored credentials do not apply to
// another host, whichever of three members of a request names the repository.
func TestCredentialsStayWhereverTheRepositoryIsNamed(t *testing.T) {
	const auth = `"sourceContext":{"git":{"gitAuth":{"accessToken":{"secret":"t"}}}}`
	for _, tc := range []struct {
		name, stored, request string
		keeps                 bool
	}{
		{"vcs elsewhere", `{"gitHub":{"repository":"a/b"},` + auth + `}`, `{"vcs":{"provider":"custom","repository":"https://evil.example/x"}}`, false},
		{"another provider", `{"gitHub":{"repository":"a/b"},` + auth + `}`, `{"vcs":{"provider":"gitlab","repository":"a/b"}}`, false},
		{"url over vcs", `{"vcs":{"provider":"gitlab","repository":"a/b"},` + auth + `}`, `{"sourceContext":{"git":{"repoUrl":"https://evil.example/x"}}}`, false},
		{"url of the same host", `{"vcs":{"provider":"gitlab","repository":"a/b"},` + auth + `}`, `{"sourceContext":{"git":{"repoUrl":"https://gitlab.com/a/c"}}}`, true},
		{"other repository", `{"gitHub":{"repository":"a/b"},` + auth + `}`, `{"gitHub":{"repository":"a/c"}}`, true},
		{"commit only", `{"gitHub":{"repository":"a/b"},` + auth + `}`, `{"sourceContext":{"git":{"commit":"abcdef1"}}}`, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			base := settingsOf(t, tc.stored)
			seal(t, base)
			got, err := InheritSettings(base, []byte(tc.request))
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
		for kind, merge := range map[string]func(*Settings, []byte) (*Settings, error){"patch": MergeSettings, "request": InheritSettings} {
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

func TestSecretForms(t *testing.T) {
	for _, tc := range []struct {
		in, plain string
		secret    bool
		fails     bool
	}{
		{in: `"x"`, plain: "x"},
		{in: `{"secret":"x"}`, plain: "x", secret: true},
		{in: `{"Secret":"x"}`, plain: "x", secret: true},
		{in: `{"isSecret":true,"value":"x"}`, plain: "x", secret: true},
		{in: `{"isSecret":false,"value":"x"}`, plain: "x"},
		{in: `{"value":"x"}`, plain: "x", secret: true},
		{in: `{"ciphertext":"AAEC"}`, secret: true},
		{in: `{}`, fails: true},
		{in: `{"other":1}`, fails: true},
		{in: `7`, fails: true},
		{in: `["hunter2"]`, fails: true},
		{in: `{"secret":{"a":"hunter2"}}`, fails: true},
	} {
		var s Secret
		err := json.Unmarshal([]byte(tc.in), &s)
		if (err != nil) != tc.fails {
			t.Errorf("%s: error %v, want one: %t", tc.in, err, tc.fails)
			continue
		}
		if tc.fails {
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s: the error repeats the value: %v", tc.in, err)
			}
			continue
		}
		plain, known := s.Value()
		if s.IsSecret() != tc.secret || known && plain != tc.plain {
			t.Errorf("%s: got %q, secret %t", tc.in, plain, s.IsSecret())
		}
	}
}

func TestPlainSecretsCannotBeWritten(t *testing.T) {
	// A credential is secret even if the client wrote a bare string.
	s := settingsOf(t, `{"sourceContext":{"git":{"gitAuth":{"basicAuth":{"userName":"me","password":"hunter2"}}}}}`)
	if _, err := json.Marshal(s); !errors.Is(err, errPlainSecret) {
		t.Errorf("marshal = %v, want %v", err, errPlainSecret)
	}
	if got := s.SourceContext.Git.GitAuth.BasicAuth.Password.String(); strings.Contains(got, "hunter2") {
		t.Errorf("String shows the secret: %s", got)
	}
	sameJSON(t, text(t, s), `{"sourceContext":{"git":{"gitAuth":{"basicAuth":{"userName":"me","password":`+ct("hunter2")+`}}}}}`)
}

func TestValidateSettings(t *testing.T) {
	git := func(member, value string) string {
		v, _ := json.Marshal(value)
		return `{"sourceContext":{"git":{"` + member + `":` + string(v) + `}}}`
	}
	good := []string{
		`{}`,
		git("repoUrl", "https://github.com/a/b.git"), git("repoUrl", "http://127.0.0.1:3000/x"), git("repoUrl", "ssh://git@h:22/x"),
		git("repoUrl", "git@github.com:a/b.git"), git("repoUrl", "https://me@dev.azure.com/o/p/_git/r"),
		git("branch", "main"), git("branch", "refs/heads/feature/x-1"), git("commit", "0123456789abcdef0123456789abcdef01234567"),
		git("repoDir", "infra/prod"), git("repoDir", "/infra"), git("repoDir", "."),
		`{"operationContext":{"options":{"shell":"/bin/sh"},"oidc":{"aws":{"roleArn":"r","sessionName":"session","duration":"1h"}}}}`,
		`{"vcs":{"provider":"gitlab","repository":"a/b/c"}}`,
		`{"executorContext":{"executorImage":"localhost:5000/a/b@sha256:abc","executorRootPath":"/tmp"}}`,
	}
	for _, doc := range good {
		if err := settingsOf(t, doc).Validate(); err != nil {
			t.Errorf("%s: %v", doc, err)
		}
	}
	bad := map[string]string{ // document -> text that the error must contain
		git("repoUrl", "-oProxyCommand=x"):                               "sourceContext.git.repoUrl",
		git("repoUrl", "ext::sh -c x"):                                   "sourceContext.git.repoUrl",
		git("repoUrl", "ext::x"):                                         "sourceContext.git.repoUrl",
		git("repoUrl", "file:///etc"):                                    "sourceContext.git.repoUrl",
		git("repoUrl", "/srv/repo"):                                      "sourceContext.git.repoUrl",
		git("repoUrl", "../repo"):                                        "sourceContext.git.repoUrl",
		git("repoUrl", "https://u:hunter2@h/x"):                          "password",
		git("repoUrl", "https://ghp_hunter2@github.com/a/b"):             "token",
		git("repoUrl", "https://"+strings.Repeat("k", 40)+"@h/x"):        "token",
		git("repoUrl", "https://h/x?private_token=hunter2"):              "query",
		git("repoUrl", "https://"):                                       "sourceContext.git.repoUrl",
		git("repoUrl", "https://h/a\nb"):                                 "sourceContext.git.repoUrl",
		git("repoUrl", "ssh://-oProxyCommand=x/y"):                       "sourceContext.git.repoUrl",
		git("repoUrl", "git@-h:x"):                                       "sourceContext.git.repoUrl",
		git("branch", "--upload-pack=x"):                                 "sourceContext.git.branch",
		git("branch", "a..b"):                                            "sourceContext.git.branch",
		git("branch", "a b"):                                             "sourceContext.git.branch",
		git("branch", "x.lock"):                                          "sourceContext.git.branch",
		git("branch", "a^"):                                              "sourceContext.git.branch",
		git("commit", "HEAD"):                                            "sourceContext.git.commit",
		git("commit", "-abcdef1"):                                        "sourceContext.git.commit",
		git("repoDir", "../x"):                                           "sourceContext.git.repoDir",
		git("repoDir", "-x"):                                             "sourceContext.git.repoDir",
		`{"sourceContext":{"git":{"branch":"a","commit":"abcdef1"}}}`:    "branch or commit",
		`{"sourceContext":{"git":{},"template":{"sourceUrl":"u"}}}`:      "not several",
		`{"sourceContext":{"template":{}}}`:                              "sourceUrl",
		`{"vcs":{"provider":"sourceforge"}}`:                             "vcs.provider",
		`{"gitHub":{"repository":"-x/y"}}`:                               "gitHub.repository",
		`{"operationContext":{"options":{"shell":"bash -c evil"}}}`:      "shell",
		`{"operationContext":{"options":{"shell":"-x"}}}`:                "shell",
		`{"operationContext":{"environmentVariables":{"A=B":"x"}}}`:      "environmentVariables",
		`{"operationContext":{"environmentVariables":{"A":"x\u0000y"}}}`: "NUL",
		`{"operationContext":{"oidc":{"gcp":{"projectId":"1"}}}}`:        "gcp",
		`{"executorContext":{"executorImage":"--privileged"}}`:           "executorImage",
		`{"executorContext":{"executorImage":{"credentials":{"username":"u","password":"p"}}}}`:           "reference",
		`{"executorContext":{"executorRootPath":"tmp"}}`:                                                  "executorRootPath",
		`{"sourceContext":{"git":{"gitAuth":{"sshAuth":{"password":"p"}}}}}`:                              "sshPrivateKey",
		`{"sourceContext":{"git":{"gitAuth":{"basicAuth":{"userName":"u"}}}}}`:                            "basicAuth",
		`{"operationContext":{"oidc":{"aws":{"roleArn":"r","sessionName":"session","duration":"soon"}}}}`: "duration",
	}
	for doc, name := range bad {
		err := settingsOf(t, doc).Validate()
		if err == nil {
			t.Errorf("%s: no error", doc)
			continue
		}
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%s: the message does not name %q: %v", doc, name, err)
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the message shows a password: %v", doc, err)
		}
	}
}

func TestParseSettingsNamesTheMember(t *testing.T) {
	for doc, name := range map[string]string{
		`{"operationContext":{"preRunCommands":"x"}}`:         "preRunCommands",
		`{"sourceContext":{"git":{"branch":7}}}`:              "branch",
		`{"operationContext":{"options":{"shell":true}}}`:     "shell",
		`{"operationContext":{"environmentVariables":["A"]}}`: "environmentVariables",
		`[]`:                        "array",
		`{"tag"`:                    "JSON",
		`{"vcs":{"deployTags":""}}`: "deployTags",
	} {
		_, err := ParseSettings([]byte(doc))
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v does not name %q", doc, err, name)
		}
	}
}

func TestCompleteSource(t *testing.T) {
	for _, tc := range []struct{ doc, want string }{
		{`{"gitHub":{"repository":"a/b"},"sourceContext":{"git":{"branch":"m"}}}`, "https://github.com/a/b.git"},
		{`{"gitHub":{"repository":"a/b"}}`, "https://github.com/a/b.git"},
		{`{"vcs":{"provider":"gitlab","repository":"g/s/b"}}`, "https://gitlab.com/g/s/b.git"},
		{`{"vcs":{"provider":"azure_devops","repository":"o/p/r"}}`, "https://dev.azure.com/o/p/_git/r"},
		{`{"vcs":{"provider":"custom","repository":"https://h/x"}}`, "https://h/x"},
		{`{"gitHub":{"repository":"a/b"},"sourceContext":{"git":{"repoUrl":"https://h/y"}}}`, "https://h/y"},
		{`{}`, ""},
	} {
		s := settingsOf(t, tc.doc)
		if err := s.CompleteSource(); err != nil {
			t.Errorf("%s: %v", tc.doc, err)
			continue
		}
		got := ""
		if g := s.Git(); g != nil {
			got = g.RepoURL
		}
		if got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.doc, got, tc.want)
		}
	}
	if err := settingsOf(t, `{"sourceContext":{"git":{"branch":"m"}}}`).CompleteSource(); err == nil {
		t.Error("a git source without any repository was accepted")
	}
}

func TestPlan(t *testing.T) {
	names := func(doc string, op Operation) []string {
		var out []string
		for _, s := range settingsOf(t, doc).Plan(op) {
			out = append(out, s.Name)
		}
		return out
	}
	if diff := cmp.Diff([]string{"Setup", "Get source", "Download dependencies", "Pre-run command 1", "Pre-run command 2", "pulumi update"},
		names(`{"sourceContext":{"git":{}},"operationContext":{"preRunCommands":["a"," ","b"]}}`, OperationUpdate)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"Setup", "Fetch cloud provider credentials via OIDC", "Get source", "Download dependencies", "pulumi preview"},
		names(`{"sourceContext":{"git":{}},"operationContext":{"oidc":{"aws":{"roleArn":"r","sessionName":"session"}}}}`, OperationPreview)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"Setup", "pulumi destroy", "Remove stack"},
		names(`{"operationContext":{"oidc":{},"options":{"skipInstallDependencies":true,"deleteAfterDestroy":true}}}`, OperationDestroy)); diff != "" {
		t.Error(diff)
	}
}

func FuzzMergeSettings(f *testing.F) {
	f.Add([]byte(`{"sourceContext":{"git":{"branch":"a"}}}`), []byte(`{"sourceContext":{"Git":{"commit":null}}}`))
	f.Add([]byte(`{"executorContext":{"executorImage":"x"}}`), []byte(`{"executorContext":{"executorImage":{"reference":"y"}}}`))
	f.Add([]byte(`{"vcs":{"provider":"github"}}`), []byte(`{"vcs":[],"operationContext":7}`))
	f.Fuzz(func(t *testing.T, base, patch []byte) {
		b, err := ParseSettings(base)
		if err != nil {
			return
		}
		seal(t, b)
		for _, merge := range []func(*Settings, []byte) (*Settings, error){MergeSettings, InheritSettings} {
			got, err := merge(b, patch)
			if err != nil {
				continue
			}
			_ = got.Validate()
			seal(t, got)
			data, err := json.Marshal(got)
			if err != nil {
				t.Fatalf("the result of a merge cannot be stored: %v", err)
			}
			again, err := ParseSettings(data)
			if err != nil {
				t.Fatalf("the result of a merge cannot be read back: %v\n%s", err, data)
			}
			twice, err := json.Marshal(again)
			if err != nil || string(twice) != string(data) {
				t.Fatalf("not stable: %v\n%s\n%s", err, data, twice)
			}
		}
	})
}

// TestSettingsAreBounded checks that settings are rejected if they are too large for a program to
// start.
func TestSettingsAreBounded(t *testing.T) {
	vars := func(n, size int) string {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf(`"V%d":{"secret":%q}`, i, strings.Repeat("x", size)))
		}
		return `{"operationContext":{"environmentVariables":{` + strings.Join(list, ",") + `}}}`
	}
	for _, tt := range []struct{ name, text, want string }{
		{"many variables", vars(2000, 10), ""},
		{"too many variables", vars(2001, 10), "more than 2000"},
		{"large variables", vars(7, 128<<10), ""},
		{"too large variables", vars(8, 128<<10), "at most 1 MiB"},
		{"key", `{"sourceContext":{"git":{"gitAuth":{"sshAuth":{"sshPrivateKey":"` + strings.Repeat("x", 64<<10+1) + `"}}}}}`, "sshPrivateKey"},
	} {
		set, err := ParseSettings([]byte(tt.text))
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if err := set.Validate(); tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}
