package workflow

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestStoreRequest stores a request with secrets in all places. The stored form must contain no
// plaintext, and must have the effect of the request.
func TestStoreRequest(t *testing.T) {
	const request = `{"operation":"update","agentPoolID":null,"future":{"secret":"hunter2"},
		"sourceContext":{"Git":{"repoURL":"https://example.com/a.git","branch":"","commit":"abc","gitAuth":{
			"accessToken":"hunter2-a","sshAuth":{"sshPrivateKey":"hunter2-b","password":{"secret":"hunter2-c"}},"basicAuth":{"userName":"me","password":"hunter2-d"}}}},
		"executorContext":{"workingDirectory":"","executorImage":{"reference":"img:1","credentials":{"username":"u","password":"hunter2-e"}}},
		"operationContext":{"preRunCommands":[],"environmentVariables":{"A":"plain","B":{"secret":"hunter2-f"},"C":{"isSecret":true,"value":"hunter2-g"}},
			"options":{"skipIntermediateDeployments":false,"deleteAfterDestroy":true}}}`
	encrypt := func(s *Settings) error {
		return s.EachSecret(func(_ string, v *Secret) error {
			if v.IsSecret() {
				*v = EncryptedValue([]byte("sealed"))
			}
			return nil
		})
	}
	encrypted, err := RequestSettings([]byte(request))
	if err == nil {
		err = encrypt(encrypted)
	}
	if err != nil {
		t.Fatal(err)
	}
	parts, err := StoreRequest([]byte(request), encrypted)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := json.Marshal(parts)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(stored), "hunter2") || strings.Count(string(stored), "ciphertext") != 7 || parts["agentPoolID"] != nil {
		t.Errorf("the stored form is %s", stored)
	}
	base, err := ParseSettings([]byte(`{"agentPoolID":"p","operationContext":{"options":{"skipIntermediateDeployments":true,"shell":"zsh"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	want, err := InheritSettings(base, []byte(request))
	if err == nil {
		err = encrypt(want)
	}
	if err != nil {
		t.Fatal(err)
	}
	got, err := InheritSettings(base, stored)
	if err != nil {
		t.Fatal(err)
	}
	wantText, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	gotText, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if string(gotText) != string(wantText) || got.Option().SkipIntermediateDeployments {
		t.Errorf("the stored form results in\n%s, want\n%s", gotText, wantText)
	}
}
