package vcs_test

import (
	"math/rand/v2"
	"testing"

	"workflowagent/internal/server/vcs"
)

func moved(before, after string) vcs.Event {
	return vcs.Event{Kind: vcs.KindPush, Ref: "refs/heads/main", Before: before, After: after, Files: []string{"a"}, Complete: true}
}

func TestLedgerRows(t *testing.T) {
	gone := func(before string) vcs.Event {
		return vcs.Event{Kind: vcs.KindPush, Ref: "refs/heads/main", Before: before, Deleted: true}
	}
	at := func(commit string) vcs.Seen { return vcs.Seen{Known: true, Commit: commit} }
	recorded := vcs.Seen{Known: true, Commit: two, Recorded: true}
	for _, row := range []struct {
		name     string
		seen     vcs.Seen
		event    vcs.Event
		repeated bool
		head     string // what the forge answers
		asks     bool
		reason   vcs.Reason
		after    string // the commit to process
		whole    bool   // the event's own files still apply
	}{
		{"row 1: fast-forward", at(one), moved(one, two), false, "", false, "", two, true},
		{"row 16: first push creates the branch", vcs.Seen{}, moved("", two), false, two, true, "", two, true},
		{"row 16: the branch was known to be absent", at(""), moved("", two), false, "", false, "", two, true},
		{"row 17: force push whose predecessor was lost", at(three), moved(one, two), false, two, true, "", two, false},
		{"row 18: force push back", at(two), moved(two, one), false, "", false, "", one, true},
		{"row 19: deleted", at(one), gone(one), false, "", false, vcs.ReasonDeleted, "", true},
		{"row 19: late deletion of a branch that exists again", at(two), gone(one), false, two, true, vcs.ReasonStale, "", true},
		{"row 19: deletion whose push was lost", at(one), gone(two), false, "", true, vcs.ReasonDeleted, "", true},
		{"row 20: re-created", at(""), moved("", one), false, "", false, "", one, true},
		{"row 21: duplicate", at(two), moved(one, two), false, "", false, vcs.ReasonDuplicate, "", true},
		{"row 22: old push delivered again", at(three), moved(one, two), false, three, true, vcs.ReasonStale, "", true},
		{"row 22: replay after a force push back", at(one), moved(one, two), true, one, true, vcs.ReasonStale, "", true},
		{"the same push again, in truth", at(one), moved(one, two), true, two, true, "", two, true},
		{"row 24: A after B", at(three), moved(one, two), false, three, true, vcs.ReasonStale, "", true},
		{"row 24: B before A", at(one), moved(two, three), false, three, true, "", three, false},
		{"row 20: re-created, and its creation was lost", at(""), moved(one, two), false, two, true, "", two, false},
		{"row 20: re-created, and its deletion was lost", at(one), moved("", two), false, two, true, "", two, false},
		{"row 26: test delivery", at(one), moved(one, one), false, "", false, vcs.ReasonTest, "", true},
		{"row 26: test delivery of an unknown branch", vcs.Seen{}, moved(one, one), false, "", false, vcs.ReasonTest, "", true},
		{"row 28: a push while the head was recorded", recorded, moved(one, two), false, "", false, "", two, true},
		{"superseded by a newer push", at(one), moved(three, two), false, "4444444444444444444444444444444444444444", true, "", "4444444444444444444444444444444444444444", false},
		{"the commit is unknown", at(one), moved(one, ""), false, two, true, "", two, false},
		{"row 43: tag moved", vcs.Seen{Known: true, Commit: one}, vcs.Event{Kind: vcs.KindTag, Ref: "refs/tags/v1", Before: one, After: two}, false, "", false, "", two, false},
		{"the ref is gone since", at(one), moved(three, two), false, "", true, vcs.ReasonDeleted, "", true},
	} {
		t.Run(row.name, func(t *testing.T) {
			reason, asks := vcs.Compare(row.seen, row.event, row.repeated)
			if asks != row.asks {
				t.Fatalf("asks the forge: %v", asks)
			}
			e := row.event
			if asks {
				e, reason = vcs.Resolve(row.seen, e, row.head)
			}
			if reason != row.reason {
				t.Fatalf("got reason %q, want %q", reason, row.reason)
			}
			if reason == "" && e.After != row.after {
				t.Errorf("processes commit %s, want %s", e.After, row.after)
			}
			if reason == "" && e.Complete != row.whole {
				t.Errorf("uses the event's files: %v", e.Complete)
			}
		})
	}
}

// TestLedgerConverges delivers the pushes of a branch in random order, some several times and some
// never, and polls at the end. The branch must end at the head, must be deployed there once, and no
// commit may be deployed that was not the head when the forge was asked.
func TestLedgerConverges(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		history := []string{one}
		var deliveries []vcs.Event
		for range 1 + r.IntN(6) {
			next := []string{one, two, three}[r.IntN(3)]
			if last := history[len(history)-1]; next != last {
				for range r.IntN(3) {
					deliveries = append(deliveries, moved(last, next))
				}
				history = append(history, next)
			}
		}
		r.Shuffle(len(deliveries), func(i, j int) { deliveries[i], deliveries[j] = deliveries[j], deliveries[i] })
		head := history[len(history)-1]
		seen := vcs.Seen{Known: true, Commit: one}
		done := map[[2]string]bool{}
		deployed := one
		process := func(e vcs.Event) {
			reason, ask := vcs.Compare(seen, e, done[[2]string{e.Before, e.After}])
			if ask {
				e, reason = vcs.Resolve(seen, e, head)
			}
			if reason != "" {
				return
			}
			if e.After == deployed {
				t.Fatalf("seed %d: deployed %s twice in a row", seed, e.After)
			}
			done[[2]string{e.Before, e.After}] = true
			seen, deployed = vcs.Seen{Known: true, Commit: e.After}, e.After
		}
		for _, e := range deliveries {
			process(e)
		}
		if seen.Commit != head { // a poll
			process(moved(seen.Commit, head))
		}
		if seen.Commit != head || deployed != head {
			t.Fatalf("seed %d: ended at %s, deployed %s, head %s", seed, seen.Commit, deployed, head)
		}
	}
}
