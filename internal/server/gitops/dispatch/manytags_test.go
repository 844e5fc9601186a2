package dispatch_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/server/vcs"
)

// TestManyTagsInPieces polls a repository with so many tags that recording them at once would keep all
// other writers waiting, and stops such a poll before its end. No tag of an import is deployed, and the
// next new tag is.
func TestManyTagsInPieces(t *testing.T) {
	const piece = 1000
	db := storetest.SQLite(t)
	s := newSite(t, db, connected())
	st := s.stack("dev", `"deployTags":true`)
	add := func(prefix string, n int) {
		for n := range n {
			s.forge.refs[fmt.Sprintf("refs/tags/%s%05d", prefix, n)] = one
		}
	}
	ledger := func() (tags string, all []store.VCSRef) {
		s.must(db.Read(t.Context(), func(tx *store.Tx) error {
			r, err := tx.RepoByRemoteID(s.id, "17")
			s.must(err)
			all, err = tx.Refs(r.ID)
			return err
		}))
		count := map[string]int{}
		for _, row := range all {
			count[strings.TrimPrefix(row.Ref, vcs.TagPrefix)[:1]]++
		}
		return fmt.Sprint(count), all
	}
	want := func(tags string) {
		t.Helper()
		got, all := ledger()
		if got != tags {
			t.Errorf("the ledger has %s, want %s", got, tags)
		}
		// The time is constant within a transaction.
		written := map[time.Time]int{}
		for _, row := range all {
			if written[row.SeenAt]++; written[row.SeenAt] == piece+1 {
				t.Errorf("a transaction records more than %d tags", piece)
			}
		}
	}
	exec := func(statement string) {
		s.must(db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			_, err := tx.Exec(statement)
			return err
		}))
	}
	add("a", 2*piece)
	s.poll()
	want("map[a:2000]")
	s.wantDeployed(st)

	// The last piece has no more tags than are deployed at one poll.
	clear(s.forge.refs)
	add("b", 2*piece+2)
	exec("CREATE TRIGGER stop BEFORE INSERT ON vcs_refs WHEN NEW.ref = 'refs/tags/b02001' BEGIN SELECT RAISE(ABORT, 'stopped'); END")
	s.must(db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error { return tx.PollReposNow("", tx.Now()) }))
	s.work(s.dispatch.Poll, "the recording of all pieces but the last", func() bool {
		tags, _ := ledger()
		return tags == "map[b:2000]"
	})
	exec("DROP TRIGGER stop")
	s.wantReason(st, vcs.ReasonManyTags)
	s.poll()
	want("map[b:2002]")
	s.wantDeployed(st)

	s.forge.refs["refs/tags/c"] = two
	s.poll()
	s.poll()
	s.wantDeployed(st, "update 2")
	want("map[b:2002 c:1]")
}
