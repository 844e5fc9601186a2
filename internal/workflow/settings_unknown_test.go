package workflow

import (
	"fmt"
	"strings"
	"testing"
)

func TestIgnored(t *testing.T) {
	for body, want := range map[string]string{
		`{"executorContext":{"executorImage":{"image":"a"}}}`:                 `"executorContext.executorImage.image" does not exist and was ignored: the members here are credentials, isDefault, reference`,
		`{"sourceContext":{"Git":{"repoURL":"https://h/x","brunch":"main"}}}`: `"sourceContext.git.brunch" does not exist`,
		`{"OperationContext":{"prerunCommands":[],"preRunCommand":["a"]}}`:    `"operationContext.preRunCommand" does not exist`,
		`{"nope":1}`: `"nope" does not exist`,
	} {
		if got := Ignored([]byte(body)); len(got) != 1 || !strings.HasPrefix(got[0], want) {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
	}
	for _, body := range []string{
		`{"operation":"update","inheritSettings":true,"version":3,"source":"api","warnings":["a"]}`,
		`{"operationContext":{"environmentVariables":{"ANY":{"secret":"a","other":1}},"operation":"update"}}`,
		`{"sourceContext":{"git":{"gitAuth":{"basicAuth":{"userName":"a","password":{"ciphertext":"AA=="}}}}}}`,
		`{"executorContext":{"executorImage":"a"}}`,
		`{"vcs":{"provider":"custom","repository":"a/b","deployCommits":true,"paths":["a"]},"gitHub":{"repository":"a/b"}}`,
		`{"nope":null}`, `[]`, `{`, ``,
	} {
		if got := Ignored([]byte(body)); len(got) > 0 {
			t.Errorf("%s: %q", body, got)
		}
	}
	var many []string
	for i := range 500 {
		many = append(many, fmt.Sprintf("%q:1", strings.Repeat("x", 200)+fmt.Sprint(i)))
	}
	got := Ignored([]byte("{" + strings.Join(many, ",") + "}"))
	if len(got) != maxWarnings+1 || got[maxWarnings] != "490 more members do not exist and were ignored" || len(strings.Join(got, "")) > 5000 {
		t.Errorf("of 500 unknown members: %q", got)
	}
}

func TestWrongSecretsAreNamed(t *testing.T) {
	for body, want := range map[string]string{
		`{"operationContext":{"environmentVariables":{"A":"x","B":7}}}`:                        `the member "operationContext.environmentVariables.B": a value must be`,
		`{"operationContext":{"environmentVariables":{"A":"x","B":{"secret":7}}}}`:             `the member "operationContext.environmentVariables.B": a value must be`,
		`{"operationContext":{"environmentVariables":{"A":"x","B":{}}}}`:                       `the member "operationContext.environmentVariables.B": an object given`,
		`{"operationContext":{"environmentVariables":{"A":"x","B":{"ciphertext":"!!"}}}}`:      `the member "operationContext.environmentVariables.B": a value must be`,
		`{"SourceContext":{"git":{"gitAuth":{"basicAuth":{"userName":7}}}}}`:                   `the member "sourceContext.git.gitAuth.basicAuth.userName": a value must be`,
		`{"executorContext":{"executorImage":{"reference":"a","credentials":{"password":7}}}}`: `the member "executorContext.executorImage.credentials.password": a value must be`,
		`{"operationContext":{"preRunCommands":["a",7]}}`:                                      `the member "operationContext.preRunCommands" cannot be a JSON number`,
	} {
		if _, err := ParseSettings([]byte(body)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %q", body, err, want)
		}
	}
}
