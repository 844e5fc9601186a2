package dispatch_test

import (
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/vcs"
)

// TestPushDuringPoll processes deliveries between the forge's answer to a poll and the comparison with
// the ledger. The answer is older than the ledger then, and must neither deploy an old commit nor
// deploy a commit twice.
func TestPushDuringPoll(t *testing.T) {
	for name, test := range map[string]struct {
		first  map[string]string // refs at the time of the poll
		event  vcs.Event         // processed before the comparison
		second []string          // deployments afterwards
	}{
		"branch":        {map[string]string{"refs/heads/main": one}, push(one, two), []string{"update 2"}},
		"new branch":    {map[string]string{}, push("", two), []string{"update 2"}},
		"moved tag":     {map[string]string{"refs/tags/v1": one}, vcs.Event{Kind: vcs.KindTag, Ref: "refs/tags/v1", Before: one, After: two}, []string{"update 2"}},
		"new tag":       {map[string]string{}, vcs.Event{Kind: vcs.KindTag, Ref: "refs/tags/v1", After: two}, []string{"update 2"}},
		"deleted again": {map[string]string{"refs/heads/main": one}, vcs.Event{Kind: vcs.KindPush, Ref: "refs/heads/main", Before: one, Deleted: true}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, storetest.SQLite(t), connected())
			st := s.stack("dev", previews+","+commits+`,"deployTags":true`)
			s.forge.refs = test.first
			s.poll()
			s.forge.onPulls = func() {
				s.forge.onPulls = nil
				s.forge.set(func() {
					if s.forge.refs[test.event.Ref] = test.event.After; test.event.Deleted {
						delete(s.forge.refs, test.event.Ref)
					}
				})
				s.deliver("", test.event)
				s.process()
			}
			s.poll()
			s.poll()
			s.wantDeployed(st, test.second...)
		})
	}
}
