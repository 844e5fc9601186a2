package store_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/workflow"
)

// lives makes the runs of stacks, one after another, with the methods that the services use.
type lives struct {
	t  *testing.T
	db *store.DB
	at int64
}

func (l *lives) now() time.Time {
	l.at += 60
	return instant(l.at)
}

func (l *lives) estate(stack string) store.Estate {
	l.t.Helper()
	return must.Get(store.Read(l.t.Context(), l.db, func(tx *store.Tx) (store.Estate, error) { return tx.Estate("id-" + stack) }))(l.t)
}

// begin starts an update, and end ends it.
func (l *lives) begin(u store.Update) store.Update {
	l.t.Helper()
	u.StackID = "id-" + u.StackID
	u.Program = fmt.Sprintf(`{"metadata":{"message":%q}}`, u.Message)
	write(l.t, l.db, func(tx *store.Tx) error {
		u.Status, u.CreatedAt = "not started", l.now()
		if err := tx.InsertUpdate(u); err != nil {
			return err
		}
		u.Status, u.StartedAt = "running", l.now()
		if u.Preview {
			return tx.StartUpdate(u)
		}
		st, err := tx.Stack(u.StackID)
		if err != nil {
			return err
		}
		st.Version++
		u.Version, st.ActiveUpdate = st.Version, u.ID
		return errors.Join(tx.UpdateStack(st), tx.StartUpdate(u))
	})
	return u
}

func (l *lives) end(u store.Update, status, changes string) {
	l.t.Helper()
	write(l.t, l.db, func(tx *store.Tx) error {
		if err := tx.SetResourceChanges(u.ID, changes); err != nil {
			return err
		}
		st, err := tx.Stack(u.StackID)
		if err != nil {
			return err
		}
		if st.ActiveUpdate == u.ID {
			st.ActiveUpdate, st.ResourceCount = "", st.ResourceCount+3
		}
		u.Status, u.FinishedAt, u.ResourceChanges = status, l.now(), changes
		return errors.Join(tx.UpdateStack(st), tx.FinishUpdate(u))
	})
}

func (l *lives) update(u store.Update, status, changes string) {
	l.t.Helper()
	l.end(l.begin(u), status, changes)
}

// queue adds a deployment.
func (l *lives) queue(stack string, version int64, op workflow.Operation) store.Job {
	l.t.Helper()
	id := fmt.Sprint(stack, version)
	job := store.Job{ID: "job-" + id, DeploymentID: id, OrgID: "id-acme", StackID: "id-" + stack, Operation: op, Version: version, Status: workflow.StatusNotStarted}
	write(l.t, l.db, func(tx *store.Tx) error {
		job.QueuedAt = l.now()
		return errors.Join(
			tx.SaveStackQueue(store.StackQueue{StackID: job.StackID, LastVersion: version}),
			tx.InsertDeployment(store.Deployment{ID: id, OrgID: "id-acme", StackID: job.StackID, Version: version, Operation: op, RequestedBy: "ada", Requester: "ada", Configuration: "{}", CreatedAt: job.QueuedAt}),
			tx.InsertJob(job),
		)
	})
	return job
}

func (l *lives) become(job *store.Job, status workflow.Status, reason workflow.Reason) {
	l.t.Helper()
	job.Status, job.Reason = status, reason
	switch now := l.now(); status {
	case workflow.StatusAccepted:
		job.ClaimedAt = now
	case workflow.StatusRunning:
		job.StartedAt = now
	default:
		job.EndedAt = now
	}
	write(l.t, l.db, func(tx *store.Tx) error { return tx.SaveJob(*job) })
}

// run makes a deployment whose update has an end.
func (l *lives) run(job store.Job, u store.Update, updated, changes string, status workflow.Status, reason workflow.Reason) store.Job {
	l.t.Helper()
	l.become(&job, workflow.StatusAccepted, "")
	l.become(&job, workflow.StatusRunning, "")
	u.StackID, u.DeploymentID, u.RequestedBy = strings.TrimPrefix(job.StackID, "id-"), job.DeploymentID, "ada"
	if u.ID != "" {
		l.update(u, updated, changes)
	}
	l.become(&job, status, reason)
	return job
}

func newLives(t *testing.T, db *store.DB) *lives {
	t.Helper()
	stackFixture(t, db, "a", "b", "c", "d")
	write(t, db, func(tx *store.Tx) error {
		return errors.Join(tx.InsertUser(store.User{ID: "ada", Login: "ada", Name: "Ada"}), tx.InsertUser(store.User{ID: "bo", Login: "bo"}))
	})
	return &lives{t: t, db: db}
}

// fill gives the stacks of the fixture runs of all kinds.
func (l *lives) fill() {
	l.update(store.Update{ID: "a1", StackID: "a", Kind: "update", RequestedBy: "bo", Message: "first"}, "succeeded", `{"create":3}`)
	l.run(l.queue("a", 1, workflow.OperationUpdate), store.Update{ID: "a2", Kind: "update", Message: "second"}, "failed", `{}`, workflow.StatusFailed, workflow.ReasonExitCode)
	l.update(store.Update{ID: "ap", StackID: "a", Kind: "update", Preview: true, Message: "a preview"}, "failed", "")
	l.run(l.queue("a", 2, workflow.OperationPreview), store.Update{ID: "ap2", Kind: "preview", Preview: true}, "failed", "", workflow.StatusFailed, workflow.ReasonExitCode)
	cancelled := l.queue("a", 3, workflow.OperationUpdate)
	l.become(&cancelled, workflow.StatusAccepted, "")
	l.become(&cancelled, workflow.StatusFailed, workflow.ReasonCancelled) // before its start
	skipped := l.queue("a", 4, workflow.OperationDestroy)
	l.become(&skipped, workflow.StatusSkipped, workflow.ReasonCancelled)
	l.queue("a", 5, workflow.OperationUpdate) // waits

	l.update(store.Update{ID: "b1", StackID: "b", Kind: "update", RequestedBy: "bo", Message: "ok"}, "succeeded", `{"create":3}`)
	found := l.queue("b", 1, workflow.OperationDetectDrift)
	found.DriftFound = true
	l.run(found, store.Update{ID: "b2", Kind: "refresh", Preview: true}, "succeeded", `{"same":2,"update":1}`, workflow.StatusFailed, workflow.ReasonExitCode)

	found = l.queue("c", 1, workflow.OperationDetectDrift)
	found.DriftFound = true
	l.run(found, store.Update{ID: "c1", Kind: "refresh", Preview: true}, "succeeded", `{"delete":1}`, workflow.StatusFailed, workflow.ReasonExitCode)
	l.run(l.queue("c", 2, workflow.OperationRemediateDrift), store.Update{ID: "c2", Kind: "update", Message: "put back"}, "succeeded", `{"create":1}`, workflow.StatusSucceeded, "")
	l.run(l.queue("c", 3, workflow.OperationUpdate), store.Update{}, "", "", workflow.StatusFailed, workflow.ReasonImage) // without an update
	l.begin(store.Update{ID: "c3", StackID: "c", Kind: "destroy", Message: "still running"})
	write(l.t, l.db, func(tx *store.Tx) error {
		return errors.Join(
			tx.SaveStackQueue(store.StackQueue{StackID: "id-c", LastVersion: 3, Paused: true}),
			tx.SetStackTags("id-b", map[string]string{"owner": "Team A", "vcs:owner": "acme", "vcs:repo": "web", "pulumi:project": "p", "Env": "Prod"}),
			tx.SetStackTag("id-c", "gitHub:repo", "solo"), tx.RenameStack("id-d", "q", "other"), tx.DeleteStack("id-a", "ada"),
		)
	})
}

// TestEstate follows stacks through runs of all kinds.
func TestEstate(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		l := newLives(t, db)
		l.fill()
		a := l.estate("a")
		if a.OrgID == "id-acme" || a.LastDeployment != 1 || a.LastVersion != 2 || a.LastResult != store.RunFailed || a.LastMessage != "second" || a.LastWho != "ada" ||
			a.Queued != 1 || a.Active != 0 || a.Deployments != 5 || a.Runs != "s60u1 f240d1" || a.Tags != "all:yes\nname:a" {
			t.Errorf("after a failed deployment, previews and skipped ones: %+v", a)
		}
		b := l.estate("b")
		if b.LastVersion != 1 || b.LastDeployment != 0 || b.LastResult != store.RunSucceeded || b.LastBy != "bo" || b.Drift != store.DriftFound || b.Runs != "s60u1 d240d1" ||
			b.Resources != 3 || b.Owner != "Team A" || b.Repository != "acme/web" || b.Tags != "env:prod\nowner:team a" {
			t.Errorf("after drift was found: %+v", b)
		}
		c := l.estate("c")
		if c.HeldBy != "c3" || c.LastResult != store.RunRunning || c.LastMessage != "still running" || !c.LastEndedAt.IsZero() || c.Drift != store.NoDrift || !c.Paused ||
			c.Runs != "d240d1 s240d2 f60d3" || c.Repository != "solo" {
			t.Errorf("during an update, after drift was remediated: %+v", c)
		}
		if d := l.estate("d"); d.Project != "q" || d.Name != "other" || d.LastKind != "" || d.Drift != "" {
			t.Errorf("without a run: %+v", d)
		}
		write(t, db, func(tx *store.Tx) error {
			deleted, err := tx.DeletedStack("id-a")
			if err != nil {
				return err
			}
			return errors.Join(tx.RestoreStack(deleted, "back"), tx.InsertOrganization(org("other")), tx.MoveStack("id-b", "id-other"))
		})
		if a, b := l.estate("a"), l.estate("b"); a.OrgID != "id-acme" || a.Name != "back" || b.OrgID != "id-other" {
			t.Errorf("a restored and a transferred stack: %s %s, %s", a.OrgID, a.Name, b.OrgID)
		}
	})
}

// TestEstateCorrectsLostRuns replaces the result of a run that was lost.
func TestEstateCorrectsLostRuns(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		l := newLives(t, db)
		job := l.run(l.queue("a", 1, workflow.OperationUpdate), store.Update{ID: "u1", Kind: "update"}, "succeeded", "{}", workflow.StatusFailed, workflow.ReasonLost)
		if e := l.estate("a"); e.LastResult != store.RunFailed || e.Runs != "f240d1" {
			t.Errorf("lost: %+v", e)
		}
		l.become(&job, workflow.StatusSucceeded, "")
		if e := l.estate("a"); e.LastResult != store.RunSucceeded || e.Runs != "s300d1" {
			t.Errorf("after its result: %+v", e)
		}
		for i := range 30 {
			l.update(store.Update{ID: fmt.Sprint("v", i), StackID: "a", Kind: "update"}, "succeeded", "{}")
		}
		list := l.estate("a").Runs.List()
		if len(list) != store.MaxRuns || list[0].Number != 12 || list[19] != (store.Run{Result: store.RunSucceeded, Took: time.Minute, Number: 31}) {
			t.Errorf("the last runs are %v", list)
		}
	})
}

// TestEstateOfEarlierVersions compares the rows that an upgrade and a repair add with those that the runs have written.
func TestEstateOfEarlierVersions(t *testing.T) {
	onBoth(t, func(t *testing.T, dsn string) {
		dir := t.TempDir()
		open := func() *store.DB {
			return must.Get(store.Open(t.Context(), dsn, store.Options{Log: storetest.Log(), BlobDir: dir}))(t)
		}
		db := open()
		l := newLives(t, db)
		l.fill()
		l.update(store.Update{ID: "d1", StackID: "d", Kind: "refresh", Preview: true}, "succeeded", `{"update":1}`)
		if l.estate("d").Drift != store.DriftFound {
			t.Error("the preview of a refresh found no drift")
		}
		l.update(store.Update{ID: "d2", StackID: "d", Kind: "refresh"}, "failed", `{"update":1}`)
		if l.estate("d").Drift != store.DriftFound {
			t.Error("a refresh that failed ended the drift")
		}
		l.update(store.Update{ID: "d3", StackID: "d", Kind: "refresh"}, "succeeded", `{"update":1}`)
		names := []string{"a", "b", "c", "d"}
		read := func() (list []store.Estate) {
			for _, name := range names {
				list = append(list, l.estate(name))
			}
			return list
		}
		want := read()
		if want[3].Drift != store.NoDrift {
			t.Errorf("after a refresh that stored what it found: %+v", want[3])
		}
		write(t, db, func(tx *store.Tx) error {
			for _, statement := range []string{
				"DELETE FROM estate", "UPDATE updates SET message = ''", "UPDATE jobs SET drift_found = 0", "DELETE FROM goose_db_version WHERE version_id = 670",
			} {
				if _, err := tx.Exec(statement); err != nil {
					return err
				}
			}
			return nil
		})
		must.OK(t, db.Close())
		db = open()
		t.Cleanup(func() { must.OK(t, db.Close()) })
		l.db = db
		if diff := cmp.Diff(want, read()); diff != "" {
			t.Errorf("after the upgrade (-want +got):\n%s", diff)
		}
		if n := must.Get(db.RepairEstate(t.Context()))(t); n != 0 {
			t.Errorf("%d rows of current stacks are repaired", n)
		}
		// An older server runs on the same database.
		write(t, db, func(tx *store.Tx) error {
			for _, statement := range []string{
				"DELETE FROM estate WHERE stack_id = 'id-a'", "UPDATE estate SET version = 0, runs = '' WHERE stack_id = 'id-b'",
				"UPDATE estate SET held_by = '', last_kind = 'x' WHERE stack_id = 'id-c'", "UPDATE estate SET name = 'd' WHERE stack_id = 'id-d'",
			} {
				if _, err := tx.Exec(statement); err != nil {
					return err
				}
			}
			return nil
		})
		if n := must.Get(db.RepairEstate(t.Context()))(t); n != 4 {
			t.Errorf("%d rows are repaired, want 4", n)
		}
		if diff := cmp.Diff(want, read()); diff != "" {
			t.Errorf("after the repair (-want +got):\n%s", diff)
		}
	})
}

// TestEstateRows filters, groups and sorts lists, within the reach of the caller.
func TestEstateRows(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		l := newLives(t, db)
		l.fill()
		write(t, db, func(tx *store.Tx) error {
			return errors.Join(tx.Star("ada", "id-b"), tx.Star("ada", "id-b"), tx.Star("bo", "id-c"), tx.SetStackPermission("id-acme", store.ReadPermission),
				tx.SetStackTag("id-d", "odd%_name", "100%"), tx.SaveCollaborator(store.Collaborator{StackID: "id-d", UserID: "bo", Permission: store.ReadPermission}))
		})
		all := store.EstateFilter{OrgID: "id-acme", Reach: store.Reach{All: []string{"id-acme"}}, UserID: "ada", Limit: 10}
		names := func(change func(*store.EstateFilter)) string {
			t.Helper()
			f := all
			change(&f)
			if f.Group != "" {
				for _, c := range must.Get(store.Read(t.Context(), db, func(tx *store.Tx) ([]store.EstateCount, error) { return tx.CountEstateGroups(f, 1000) }))(t) {
					f.Groups = append([]string{c.Group}, f.Groups...)
				}
			}
			rows := must.Get(store.Read(t.Context(), db, func(tx *store.Tx) ([]store.EstateRow, error) { return tx.EstateRows(f) }))(t)
			var list []string
			for _, r := range rows {
				name := r.Name
				if f.Group != "" {
					name = r.Group + "=" + name
				}
				if r.Starred {
					name += "*"
				}
				list = append(list, name)
			}
			return strings.Join(list, " ")
		}
		found, never := store.DriftFound, store.Drift("")
		for want, change := range map[string]func(*store.EstateFilter){
			"b* c other ":               func(*store.EstateFilter) {},
			"b* c other":                func(f *store.EstateFilter) { f.Sort = store.SortByName },
			"c b* other":                func(f *store.EstateFilter) { f.Sort = store.SortByChange },
			"b* c other   ":             func(f *store.EstateFilter) { f.Sort = store.SortByResources },
			"b* other c":                func(f *store.EstateFilter) { f.Sort = store.SortByDrift },
			"solo=c acme/web=b* =other": func(f *store.EstateFilter) { f.Group = store.GroupByRepository },
			"Prod=b* =c =other":         func(f *store.EstateFilter) { f.Group = store.GroupByTag + "Env" },
			"q=other p=b* p=c":          func(f *store.EstateFilter) { f.Group = store.GroupByProject },
			"Team A=b* =c =other":       func(f *store.EstateFilter) { f.Group = store.GroupByOwner },
			"b*":                        func(f *store.EstateFilter) { f.Starred = true },
			"b* ":                       func(f *store.EstateFilter) { f.Words = []string{"TEAM", "p/b", "acme/"} },
			"other":                     func(f *store.EstateFilter) { f.Words = []string{"0%"} },
			"":                          func(f *store.EstateFilter) { f.Words = []string{"p_b"} },
			"b* other":                  func(f *store.EstateFilter) { f.Ranks = []store.EstateRank{store.RankDrift, store.RankNever} },
			"c":                         func(f *store.EstateFilter) { f.Ranks = []store.EstateRank{store.RankRunning} },
			"b*  ":                      func(f *store.EstateFilter) { f.Drift = &found },
			"other ":                    func(f *store.EstateFilter) { f.Drift = &never },
			"b*   ":                     func(f *store.EstateFilter) { f.TagName, f.TagValue = "Env", "Prod" },
			"c ":                        func(f *store.EstateFilter) { f.TagName, f.Words = "name", []string{"p/c"} },
			"b*    ":                    func(f *store.EstateFilter) { f.Owner = "Team A" },
			"other  ":                   func(f *store.EstateFilter) { f.Project = "q" },
			"c  ":                       func(f *store.EstateFilter) { f.Limit, f.Offset = 1, 1 },
			"b* c other  ":              func(f *store.EstateFilter) { f.Reach = store.Reach{ByDefault: []string{"id-acme"}, UserID: "bo"} },
			"other   ":                  func(f *store.EstateFilter) { f.Reach = store.Reach{Granted: []string{"id-acme"}, UserID: "bo"} },
			" ":                         func(f *store.EstateFilter) { f.Reach = store.Reach{All: []string{"id-other"}} },
			"  ":                        func(f *store.EstateFilter) { f.OrgID = "id-other" },
		} {
			if got := names(change); got != strings.TrimSpace(want) {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		counts := must.Get(store.Read(t.Context(), db, func(tx *store.Tx) (counts []store.EstateCount, err error) {
			err = tx.CountEstate(all, func(c store.EstateCount) { counts = append(counts, c) })
			return counts, err
		}))(t)
		if diff := cmp.Diff([]store.EstateCount{
			{Rank: store.RankRunning, Stacks: 1, Resources: 3}, {Rank: store.RankNever, Stacks: 1}, {Group: "Team A", Rank: store.RankDrift, Stacks: 1, Resources: 3},
		}, counts); diff != "" {
			t.Errorf("counts (-want +got):\n%s", diff)
		}
		if n := must.Get(store.Read(t.Context(), db, func(tx *store.Tx) (int64, error) { return tx.CountStarred(all) }))(t); n != 1 {
			t.Errorf("%d stacks are starred, want 1", n)
		}
		all.Group = store.GroupByProject
		groups := must.Get(store.Read(t.Context(), db, func(tx *store.Tx) ([]store.EstateCount, error) { return tx.CountEstateGroups(all, 1000) }))(t)
		if diff := cmp.Diff([]store.EstateCount{
			{Group: "p", Rank: store.RankDrift, Stacks: 1, Resources: 3}, {Group: "p", Rank: store.RankRunning, Stacks: 1, Resources: 3}, {Group: "q", Rank: store.RankNever, Stacks: 1},
		}, groups); diff != "" {
			t.Errorf("groups (-want +got):\n%s", diff)
		}
		owners := must.Get(store.Read(t.Context(), db, func(tx *store.Tx) ([]string, error) { return tx.EstateOwners(all, 5) }))(t)
		if !slices.Equal(owners, []string{"Team A"}) {
			t.Errorf("owners: %v", owners)
		}
		must.OK(t, db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error { return tx.Unstar("ada", "id-b") }))
		if got := names(func(f *store.EstateFilter) { f.Starred = true }); got != "" {
			t.Errorf("starred after the star was removed: %q", got)
		}
	})
}
