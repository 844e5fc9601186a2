package dispatch_test

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/vcs"
)

// TestEventsOfOthers checks that accounts that cannot cause a deployment cannot fill the database with
// deliveries.
func TestEventsOfOthers(t *testing.T) {
	s := newSite(t, storetest.SQLite(t), connected())
	st := s.stack("dev", commits+","+previews)
	s.poll()
	stored := func() int {
		all, err := s.dispatch.OfIntegration(t.Context(), s.org, s.id)
		s.must(err)
		return len(all)
	}
	before := stored()
	for n := range 20 {
		e := push("", two)
		e.Ref = fmt.Sprintf("refs/heads/user-%d", n)
		if out := s.deliver("", e); out.Accepted != 0 || out.Ignored != vcs.ReasonOtherBranch {
			t.Fatalf("a push to another branch: %+v", out)
		}
		e.Kind, e.Ref = vcs.KindTag, fmt.Sprintf("refs/tags/user-%d", n)
		if out := s.deliver("", e); out.Accepted != 0 || out.Ignored != vcs.ReasonTriggerOff {
			t.Fatalf("a tag: %+v", out)
		}
	}
	if n := stored() - before; n != 0 {
		t.Errorf("%d events about refs that no stack deploys are stored", n)
	}
	s.forge.pulls[7] = open(7, two)
	for range 20 {
		s.deliver("", pullEvent(7))
	}
	if n := stored() - before; n != 2 {
		t.Errorf("%d events about one pull request wait, want 2", n)
	}
	s.process()
	s.wantDeployed(st, "preview 2")
	s.put(open(7, three))
	s.wantDeployed(st, "preview 2 skipped", "preview 3")
}

// TestLongTexts checks that what the author of a pull request or a tag chooses is stored only up to a
// limit, and that too long names do not keep others from being deployed.
func TestLongTexts(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newSite(t, db, connected())
		st := s.stack("dev", previews+`,"deployTags":true`)
		s.poll()
		random := make([]byte, 4000) // text that a database cannot compress
		rand.Read(random)
		long := hex.EncodeToString(random)
		s.forge.refs["refs/tags/"+long], s.forge.refs["refs/tags/v1"] = two, two
		s.poll()
		s.wantDeployed(st, "update 2")
		s.deliver("", vcs.Event{Kind: vcs.KindTag, Ref: "refs/tags/" + long + "2", After: two})
		p := open(7, three)
		p.Title, p.URL, p.Source, p.Author.Name, p.Labels = long, "https://git.example/"+long, long, long, []string{"good", long}
		for n := range 200 {
			p.Labels = append(p.Labels, fmt.Sprint(n))
		}
		s.put(p)
		s.wantDeployed(st, "update 2", "preview 3")
		s.must(db.Read(t.Context(), func(tx *store.Tx) error {
			r, err := tx.RepoByRemoteID(s.id, "17")
			s.must(err)
			row, err := tx.PullByNumber(r.ID, 7)
			text, encoded := json.Marshal(row)
			s.must(encoded)
			if len(text) > 5000 || len(row.Labels) != 100 || row.Labels[0] != "good" || !strings.HasPrefix(row.Title, long[:100]) {
				t.Errorf("the stored pull request has %d bytes: %.300s", len(text), text)
			}
			return err
		}))
	})
}

// TestReplayedRerun sends the signed body of a request for another run again, with another id, which is
// not signed.
func TestReplayedRerun(t *testing.T) {
	s := newSite(t, storetest.SQLite(t), connected())
	st := s.stack("dev", previews)
	s.put(open(7, two))
	s.forge.writers = []string{"5"}
	send := func(id, check string) {
		e := vcs.Event{Kind: vcs.KindRerun, Repo: vcs.RepoID{ID: "17", Name: "o/r"}, Pull: 7, After: two, Check: check, Sender: vcs.Account{ID: "5", Name: "alice"}}
		body, err := json.Marshal(vcs.Parsed{Events: []vcs.Event{e}})
		s.must(err)
		_, err = s.dispatch.Receive(t.Context(), vcs.ProviderGitHub, s.id, vcs.Delivery{Header: map[string]string{"secret": s.secret, "id": id}, Body: body})
		s.must(err)
		s.process()
	}
	send("first", "pulumi")
	s.wantDeployed(st, "preview 2 skipped", "preview 2")
	send("replay", "pulumi")
	s.wantDeployed(st, "preview 2 skipped", "preview 2")
	s.wantReason(st, vcs.ReasonUnchanged)
	send("second", "proj/dev - preview deployment")
	s.wantDeployed(st, "preview 2 skipped", "preview 2 skipped", "preview 2")
}

// TestManyPulls checks that a list of pull requests that is too long neither keeps the first poll from
// ending, nor hides what happened to the pull requests that it does not contain.
func TestManyPulls(t *testing.T) {
	s := newSite(t, storetest.SQLite(t), connected())
	st := s.stack("dev", previews)
	s.forge.pulls[7], s.forge.pulls[8] = open(7, two), open(8, three)
	s.forge.unlisted = map[int]bool{9: true}
	s.poll()
	s.wantDeployed(st)
	s.put(open(7, three))
	s.wantDeployed(st, "preview 3")
	closed := open(7, three)
	closed.State = vcs.PullClosed
	s.forge.pulls[7] = closed
	s.forge.unlisted = map[int]bool{7: true}
	s.poll()
	s.wantDeployed(st, "preview 3 skipped")
}
