package workflow

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzParseJobDefinition checks that an accepted definition is valid, and that encoding and
// decoding leave it unchanged.
func FuzzParseJobDefinition(f *testing.F) {
	f.Add([]byte(`{"steps":[{"name":"Setup"},{"name":"S","run":"x","timeout":"1h"}],"env":{"A":"b"},"secretEnv":["A","B"],"timeout":"90s"}`))
	f.Add([]byte(`{"os":"linux","image":{"reference":"i","credentials":{"username":"u","password":"p"}},"steps":[{},{"run":"workflow-runner pulumi update"}],` +
		`"deployment":{"operation":"update","source":{"git":{"repoUrl":"https://u:p@h/r","auth":{"accessToken":"t"}}},"preRunCommands":["a"]}}`))
	f.Add([]byte(`{"steps":null,"env":null,"image":null,"deployment":{"source":null,"options":null}}`))
	f.Add([]byte(`{"steps":[{"timeout":-1},{"timeout":"-1s"},{"workingDir":"../.."}]}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		definition, err := ParseJobDefinition(data)
		if err != nil {
			return
		}
		if err := definition.Validate(); err != nil {
			t.Fatalf("an invalid definition was accepted: %v", err)
		}
		_ = definition.Secrets()
		passed, err := json.Marshal(definition)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseJobDefinition(passed)
		if err != nil {
			t.Fatalf("the definition cannot be passed on: %v", err)
		}
		if twice, err := json.Marshal(again); err != nil || string(twice) != string(passed) {
			t.Error(cmp.Diff(string(passed), string(twice)), err)
		}
	})
}
