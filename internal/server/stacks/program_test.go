package stacks_test

import (
	"strings"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
)

// TestProgramsOfADeploymentAreBounded checks that the updates of a deployment, to which no quota applies,
// store a limited amount of configuration, and that none is refused.
func TestProgramsOfADeploymentAreBounded(t *testing.T) {
	s := newStackTest(t, storetest.SQLite(t))
	s.service.Follow(stacks.Hooks{LinkUpdate: func(*store.Tx, store.Stack, string) (string, error) { return "d1", nil }})
	program := stacks.Program{
		Name: "proj", Config: map[string]stacks.ConfigValue{"a": {String: strings.Repeat("x", 2<<20-1000)}},
		Metadata: stacks.Metadata{Message: "why", Environment: map[string]string{"ci.build.id": "1", "pulumi.version": "v3.1.2"}},
	}
	create := func() (u store.Update, size int) {
		t.Helper()
		u, err := s.service.CreateUpdate(t.Context(), s.user, s.stack, stacks.KindPreview, program)
		s.must(err)
		text, err := store.Read(t.Context(), s.db, func(tx *store.Tx) (string, error) { return tx.Program(u.ID) })
		s.must(err)
		return u, len(text)
	}
	for range 8 {
		if _, size := create(); size < 2<<20-1000 {
			t.Fatalf("a program has %d bytes", size)
		}
	}
	u, size := create()
	if size > store.LongText {
		t.Errorf("the ninth program has %d bytes", size)
	}
	d, err := s.service.Describe(t.Context(), u)
	s.must(err)
	if string(d.Message) != `"why"` || string(d.Environment) != `{"ci.build.id":"1","pulumi.version":"v3.1.2"}` || string(d.Config) != "{}" {
		t.Errorf("the ninth update is described as %s, %s, %s", d.Message, d.Environment, d.Config)
	}
	program.Config["a"] = stacks.ConfigValue{String: strings.Repeat("x", 1<<20)}
	// The longest message and environment in the most expensive characters.
	program.Metadata.Message = strings.Repeat("\x01", 50<<10)
	program.Metadata.Environment["other"] = strings.Repeat("<", 50<<10)
	for _, name := range []string{"ci.build.number", "ci.build.url", "ci.system", "pulumi.os"} {
		program.Metadata.Environment[name] = strings.Repeat("<", 80)
	}
	program.Metadata.Environment["pulumi.env.PULUMI_SKIP_CHECKPOINTS"] = "true"
	u, size = create()
	if d, err = s.service.Describe(t.Context(), u); err != nil || size > store.LongText ||
		!strings.Contains(string(d.Environment), `"pulumi.env.PULUMI_SKIP_CHECKPOINTS":"true","pulumi.os"`) ||
		!strings.Contains(string(d.Environment), `"pulumi.version":"v3.1.2"`) {
		t.Errorf("an update with long metadata has %d bytes, %v: %s", size, err, d.Environment)
	}
}
