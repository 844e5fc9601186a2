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
	r, err := ParseRequest([]byte(request))
	if err != nil {
		t.Fatal(err)
	}
	encrypted, err := r.Own()
	if err == nil {
		err = encrypt(encrypted)
	}
	if err != nil {
		t.Fatal(err)
	}
	stored, err := r.Store(encrypted)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(stored), "hunter2") || strings.Count(string(stored), "ciphertext") != 7 || strings.Contains(string(stored), "agentPoolID") {
		t.Errorf("the stored form is %s", stored)
	}
	base, err := ParseSettings([]byte(`{"agentPoolID":"p","operationContext":{"options":{"skipIntermediateDeployments":true,"shell":"zsh"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	want, err := r.Over(base)
	if err == nil {
		err = encrypt(want)
	}
	if err != nil {
		t.Fatal(err)
	}
	got, err := inherit(base, stored)
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

// inherit merges the settings of a request into base.
func inherit(base *Settings, settings []byte) (*Settings, error) {
	given, err := givenIn(settings)
	if err != nil {
		return nil, err
	}
	return Request{given: given}.Over(base)
}

// TestRequestOfGo checks that a request that the server makes has the effect of the same request of a
// client, also after it was stored.
func TestRequestOfGo(t *testing.T) {
	const body = `{"operation":"destroy","agentPoolID":"q","sourceContext":{"git":{"commit":"abcdef1"}},
		"operationContext":{"options":{"deleteAfterDestroy":false}}}`
	parsed, err := ParseRequest([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	made := Request{Operation: OperationDestroy, Inherit: true, Settings: &Settings{
		AgentPoolID: "q", SourceContext: &SourceContext{Git: &SourceContextGit{Commit: "abcdef1"}},
		OperationContext: &OperationContext{Options: &OptionsSettings{DeleteAfterDestroy: new(bool)}},
	}}
	base := settingsOf(t, `{"agentPoolID":"p","sourceContext":{"git":{"repoUrl":"https://h/a","branch":"main"}},
		"operationContext":{"options":{"deleteAfterDestroy":true}}}`)
	for _, r := range []Request{parsed, made} {
		set, err := r.Over(base)
		if err != nil {
			t.Fatal(err)
		}
		sameJSON(t, text(t, set), `{"agentPoolID":"q","sourceContext":{"git":{"repoUrl":"https://h/a","commit":"abcdef1"}},
			"operationContext":{"options":{"deleteAfterDestroy":false}}}`)
		stored, err := r.Store(set)
		if err != nil {
			t.Fatal(err)
		}
		sameJSON(t, string(stored), strings.Replace(body, `{"operation":`, `{"inheritSettings":true,"operation":`, 1))
	}
}
