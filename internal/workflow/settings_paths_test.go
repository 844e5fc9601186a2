package workflow

import (
	"slices"
	"strings"
	"testing"
)

// TestEachSecretNamesMembers requires the path of every member that can be secret, so that errors
// say which one they mean.
func TestEachSecretNamesMembers(t *testing.T) {
	const doc = `{"sourceContext":{"git":{"gitAuth":AUTH},"hg":{"hgAuth":AUTH},"template":{"gitAuth":AUTH}},
		"executorContext":{"executorImage":{"reference":"a.example/b","credentials":{"username":"u","password":{"secret":"IMAGE"}}}},
		"operationContext":{"environmentVariables":{"TOKEN":{"secret":"VARIABLE"}}}}`
	const auth = `{"accessToken":{"secret":"1"},"sshAuth":{"sshPrivateKey":{"secret":"2"},"password":{"secret":"3"}},
		"basicAuth":{"userName":{"secret":"4"},"password":{"secret":"5"}}}`
	set, err := ParseSettings([]byte(strings.ReplaceAll(doc, "AUTH", auth)))
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, parent := range []string{"sourceContext.git.gitAuth", "sourceContext.hg.hgAuth", "sourceContext.template.gitAuth"} {
		for i, name := range strings.Fields("accessToken sshAuth.sshPrivateKey sshAuth.password basicAuth.userName basicAuth.password") {
			want = append(want, parent+"."+name+"="+string(rune('1'+i)))
		}
	}
	want = append(want, "executorContext.executorImage.credentials.password=IMAGE", "operationContext.environmentVariables.TOKEN=VARIABLE")
	err = set.EachSecret(func(member string, v *Secret) error {
		plain, _ := v.Value()
		got = append(got, member+"="+plain)
		return nil
	})
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("EachSecret: got %q, %v, want %q", got, err, want)
	}
}
