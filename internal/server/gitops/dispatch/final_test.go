package dispatch_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/vcs"
)

// TestAnswersOfForges checks that each kind of answer has its true reason, and that an event whose
// answer cannot change ends.
func TestAnswersOfForges(t *testing.T) {
	for name, row := range map[string]struct {
		err   error
		want  vcs.Reason
		tries int // after which the event ends; 0 means never
	}{
		"not the integration's": {vcs.ErrForeign, vcs.ReasonUnknownRepo, 1},
		"gone":                  {vcs.ErrGone, vcs.ReasonMissing, 1},
		"not found":             {vcs.ErrNotFound, vcs.ReasonMissing, 11},
		"rejected":              {vcs.ErrRejected, vcs.ReasonRejected, 11},
		"refused":               {vcs.ErrRefused, vcs.ReasonNoAccess, 0},
		"not installed":         {vcs.ErrNotInstalled, vcs.ReasonNoAccess, 0},
		"limited":               {&vcs.RateLimited{Until: time.Now().Add(-time.Hour)}, vcs.ReasonLimited, 0},
		"no network":            {errors.New("no route to host"), vcs.ReasonWaiting, 0},
	} {
		for kind, e := range map[string]vcs.Event{"push": push(two, three), "tag": {Kind: vcs.KindTag, Ref: "refs/tags/v1"}, "pull": pullEvent(7)} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				s := newSite(t, storetest.SQLite(t), connected())
				st := s.stack("dev", previews+","+commits+`,"deployTags":true`)
				s.poll()
				s.forge.set(func() { s.forge.pulls[7], s.forge.err = open(7, two), fmt.Errorf("asking: %w", row.err) })
				s.deliver("", e)
				s.process()
				for n := 1; n <= max(row.tries, 2); n++ {
					ended := s.waiting() == 0
					if s.reason(st) != row.want || ended != (row.tries > 0 && n >= row.tries) {
						t.Fatalf("after %d attempts: reason %s, want %s; ended %t", n, s.reason(st), row.want, ended)
					}
					s.retry()
				}
			})
		}
	}
}

// TestFilesThatAreNeverShown checks that a forge that never shows the changed files does not keep a
// push from being deployed.
func TestFilesThatAreNeverShown(t *testing.T) {
	for _, answer := range []error{vcs.ErrRejected, vcs.ErrGone} {
		s := newSite(t, storetest.SQLite(t), connected())
		st := s.stack("dev", previews+","+commits+`,"paths":["infra/**"]`)
		s.poll()
		s.forge.filesErr = answer
		s.forge.refs["refs/heads/main"] = two
		s.deliver("", push(one, two))
		s.put(open(7, three))
		s.wantDeployed(st, "update 2", "preview 3")
	}
}

// TestNameThatIsNotTheIntegrations sends the id of a known repository with a name that the forge does
// not have, or does not let the integration see. The id counts.
func TestNameThatIsNotTheIntegrations(t *testing.T) {
	for _, answer := range []error{vcs.ErrForeign, vcs.ErrNotFound, vcs.ErrGone, vcs.ErrRefused, vcs.ErrRejected} {
		s := newSite(t, storetest.SQLite(t), connected())
		st, send := s.azure(commits)
		s.poll()
		s.forge.refs["refs/heads/main"], s.forge.findErr = two, map[string]error{"DefaultCollection/p/r": answer}
		e := push(one, two)
		e.Repo.Name = "DefaultCollection/p/r"
		send("old address", e)
		s.wantDeployed(st, "update 2")
	}
}
