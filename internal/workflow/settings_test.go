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
	err := s.EachSecret(func(_ string, v *Secret) error {
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
		for _, merge := range []func(*Settings, []byte) (*Settings, error){MergeSettings, inherit} {
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
