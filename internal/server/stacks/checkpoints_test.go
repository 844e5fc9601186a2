package stacks_test

import (
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
)

// TestUpdatesWithoutCheckpointsNeedAJournal checks that a deployment's update that skips checkpoints
// does not start without a journal, and that it leaves the stack free. Other clients decide for
// themselves.
func TestUpdatesWithoutCheckpointsNeedAJournal(t *testing.T) {
	s := newStackTest(t, storetest.SQLite(t))
	deployment := ""
	s.service.Follow(stacks.Hooks{LinkUpdate: func(*store.Tx, store.Stack, string) (string, error) { return deployment, nil }})
	for _, c := range []struct {
		name       string
		kind       stacks.Kind
		deployment string
		skip       string
		journal    int64
		refused    bool
	}{
		{"neither journal nor checkpoints", stacks.KindUpdate, "d1", "true", 0, true},
		{"a destruction", stacks.KindDestroy, "d1", "true", 0, true},
		{"with a journal", stacks.KindUpdate, "d1", "true", 1, false},
		{"with checkpoints", stacks.KindUpdate, "d1", "false", 0, false},
		{"an older client", stacks.KindUpdate, "d1", "", 0, false},
		{"a preview", stacks.KindPreview, "d1", "true", 0, false},
		{"outside of a deployment", stacks.KindUpdate, "", "true", 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			deployment = c.deployment
			program := stacks.Program{Metadata: stacks.Metadata{Environment: map[string]string{"ci.build.id": "b1"}}}
			if c.skip != "" {
				program.Metadata.Environment["pulumi.env.PULUMI_SKIP_CHECKPOINTS"] = c.skip
			}
			u, err := s.service.CreateUpdate(t.Context(), s.user, s.stack, c.kind, program)
			s.must(err)
			_, err = s.service.Start(t.Context(), u, nil, c.journal)
			if c.refused {
				s.refused(fault.KindInvalid, "set the environment variable PULUMI_SKIP_CHECKPOINTS to false", err)
			} else {
				s.must(err)
				s.finish(s.reload(u))
			}
			if lock, err := s.service.Lock(t.Context(), s.user, s.stack); err != nil || lock != nil {
				t.Errorf("afterwards, the stack is held by %+v, %v", lock, err)
			}
		})
	}
}

func TestSmallStacksPrepareCheckpoints(t *testing.T) {
	for resources, want := range map[int64]bool{0: true, 1: false, 50: false, 51: true} {
		if got := stacks.SkipCheckpoints(store.Stack{ResourceCount: resources}); got != want {
			t.Errorf("with %d resources, SkipCheckpoints is %v", resources, got)
		}
	}
}
