package activity_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/activity"
	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/workflow"
)

// past is a site with a history.
type past struct {
	t  *testing.T
	db *store.DB
	*activity.Service
	at      time.Time
	version int64 // of the last deployment
}

func (p *past) write(fn func(tx *store.Tx) error) {
	p.t.Helper()
	must.OK(p.t, p.db.Write(p.t.Context(), scope.Server(), fn))
}

func (p *past) tick() time.Time {
	p.at = p.at.Add(time.Minute)
	return p.at
}

func newPast(t *testing.T, db *store.DB) *past {
	p := &past{t, db, activity.New(db, storetest.Log()), time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC), 0}
	p.write(func(tx *store.Tx) error {
		var errs []error
		for _, org := range []string{"acme", "rival"} {
			errs = append(errs, tx.InsertOrganization(store.Organization{ID: org, Name: org}))
		}
		for _, s := range []string{"web/prod", "web/dev", "db/prod"} {
			project, name, _ := strings.Cut(s, "/")
			errs = append(errs, tx.InsertStack(store.Stack{ID: s, OrgID: "acme", Project: project, Name: name}))
		}
		return errors.Join(append(errs, tx.InsertStack(store.Stack{ID: "other", OrgID: "rival", Project: "web", Name: "prod"}),
			tx.SetStackTags("web/prod", map[string]string{"Env": "Prod", "x": "env:dev"}), tx.InsertUser(store.User{ID: "ada", Login: "ada", Name: "Ada L."}))...)
	})
	return p
}

// update adds an update that has ended.
func (p *past) update(u store.Update) {
	p.t.Helper()
	u.Status, u.CreatedAt = "not started", p.tick()
	p.write(func(tx *store.Tx) error { return tx.InsertUpdate(u) })
	u.Status, u.StartedAt = "running", p.tick()
	p.write(func(tx *store.Tx) error { return tx.StartUpdate(u) })
	u.Status, u.FinishedAt = "succeeded", p.tick()
	p.write(func(tx *store.Tx) error {
		return errors.Join(tx.SetResourceChanges(u.ID, u.ResourceChanges), tx.FinishUpdate(u))
	})
}

// deploy adds a deployment with an update, if u has an id.
func (p *past) deploy(id, stack string, op workflow.Operation, u store.Update, status workflow.Status, drift bool) {
	p.t.Helper()
	p.version++
	d := store.Deployment{ID: id, OrgID: "acme", StackID: stack, Version: p.version, Operation: op, Requester: "schedule", Initiator: "schedule", Configuration: "{}", CreatedAt: p.tick()}
	job := store.Job{ID: "job-" + id, DeploymentID: id, OrgID: "acme", StackID: stack, Operation: op, Version: p.version, Status: workflow.StatusNotStarted, QueuedAt: d.CreatedAt}
	p.write(func(tx *store.Tx) error {
		return errors.Join(tx.InsertDeployment(d), tx.InsertJob(job))
	})
	if u.ID != "" {
		u.StackID, u.DeploymentID = stack, id
		p.update(u)
	}
	job.Status, job.StartedAt, job.EndedAt, job.DriftFound = status, d.CreatedAt, p.tick(), drift
	p.write(func(tx *store.Tx) error { return tx.SaveJob(job) })
}

func (p *past) audited(id string, e store.AuditEntry) {
	p.t.Helper()
	e.ID, e.At, e.Detail = id, p.tick(), "{}"
	if e.OrgID == "" {
		e.OrgID = "acme"
	}
	p.write(func(tx *store.Tx) error { return tx.InsertAuditEntry(e) })
}

// fill adds one entry of each kind, and what has none.
func (p *past) fill() {
	p.update(store.Update{ID: "u-cli", StackID: "web/prod", Kind: "update", RequestedBy: "ada", Message: "Move Checkout", ResourceChanges: `{"update":2,"delete":1}`})
	p.update(store.Update{ID: "u-preview", StackID: "web/prod", Kind: "update", Preview: true})
	p.update(store.Update{ID: "u-other", StackID: "other", Kind: "update"})
	p.deploy("d-up", "web/dev", workflow.OperationUpdate, store.Update{ID: "u-up", Kind: "update", Message: "100% sure", ResourceChanges: `{"replace":1}`}, workflow.StatusFailed, false)
	p.deploy("d-preview", "web/dev", workflow.OperationPreview, store.Update{ID: "u-pre", Kind: "update", Preview: true}, workflow.StatusSucceeded, false)
	p.deploy("d-clean", "db/prod", workflow.OperationDetectDrift, store.Update{ID: "u-clean", Kind: "refresh", Preview: true, ResourceChanges: `{"same":1}`}, workflow.StatusSucceeded, false)
	p.deploy("d-drift", "db/prod", workflow.OperationDetectDrift, store.Update{ID: "u-drift", Kind: "refresh", Preview: true, ResourceChanges: `{"update":4}`}, workflow.StatusFailed, true)
	p.deploy("d-fix", "db/prod", workflow.OperationDetectDrift, store.Update{ID: "u-fix", Kind: "update", ResourceChanges: `{"update":4}`}, workflow.StatusSucceeded, false)
	p.audited("a-role", store.AuditEntry{ActorKind: "user", ActorID: "ada", Actor: "ada", Action: string(audit.MemberRoleChanged), SubjectKind: "user", Subject: "bob", Way: audit.WayConsole})
	p.audited("a-tags", store.AuditEntry{ActorKind: "user", Actor: "eve", Action: string(audit.StackTagsChanged), SubjectKind: "stack", SubjectID: "web/prod", Subject: "acme/web/prod", Way: audit.WayAPI})
	p.audited("a-deploy", store.AuditEntry{ActorKind: "user", Actor: "eve", Action: string(audit.DeploymentCreated), SubjectKind: "stack", Subject: "acme/web/dev", Way: audit.WayAPI})
	p.audited("a-read", store.AuditEntry{ActorKind: "user", Actor: "eve", Action: string(audit.StateExported), SubjectKind: "stack", Subject: "acme/web/dev", Way: audit.WayAPI, Reads: 3})
	p.audited("a-other", store.AuditEntry{OrgID: "rival", ActorKind: "user", Actor: "eve", Action: string(audit.MemberAdded), SubjectKind: "user", Subject: "bob"})
}

func ids(l activity.List) string {
	var out []string
	for _, e := range l.Entries {
		out = append(out, e.ID)
	}
	return strings.Join(out, " ")
}

func caller(role string) identity.Principal {
	return identity.Principal{Kind: identity.KindUser, User: store.User{ID: "ada", Login: "ada"}, Roles: map[string]string{"acme": role}}
}

func (p *past) list(who identity.Principal, q activity.Query) activity.List {
	p.t.Helper()
	return must.Get(p.List(p.t.Context(), who, "acme", q))(p.t)
}

// TestEntries lists what changed, and selects some of it.
func TestEntries(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPast(t, db)
		admin := caller(identity.RoleAdmin)
		if l := p.list(admin, activity.Query{}); len(l.Entries) != 0 || !l.All || l.Newest == "" {
			t.Errorf("an organization without changes: %+v", l)
		}
		p.fill()
		for name, test := range map[string]struct {
			query activity.Query
			want  string
		}{
			"everything":             {activity.Query{}, "a-tags a-role u-fix d-drift d-up u-cli"},
			"deletes and replaces":   {activity.Query{Part: activity.Deletes}, "d-up u-cli"},
			"production":             {activity.Query{Part: activity.Production}, "u-cli"},
			"settings and access":    {activity.Query{Part: activity.Access}, "a-read a-deploy a-tags a-role"},
			"an action":              {activity.Query{Part: activity.Access, Action: string(audit.StateExported)}, "a-read"},
			"a way":                  {activity.Query{Part: activity.Access, Way: audit.WayConsole}, "a-role"},
			"an actor":               {activity.Query{Part: activity.Access, Who: "ada"}, "a-role"},
			"mine":                   {activity.Query{Part: activity.Mine}, "a-role u-cli"},
			"a user":                 {activity.Query{Who: "eve"}, "a-tags"},
			"updates":                {activity.Query{What: activity.Updates}, "d-up u-cli"},
			"drift":                  {activity.Query{What: activity.FoundDrift}, "u-fix d-drift"},
			"from the CLI":           {activity.Query{What: activity.ByCLI}, "u-cli"},
			"deployments":            {activity.Query{What: activity.ByDeployment}, "u-fix d-drift d-up"},
			"words in any order":     {activity.Query{Text: "checkout MOVE ada"}, "u-cli"},
			"no pattern":             {activity.Query{Text: "100%"}, "d-up"},
			"a stack":                {activity.Query{Stack: "web/prod"}, "a-tags u-cli"},
			"a project":              {activity.Query{Stack: "db"}, "u-fix d-drift"},
			"a project with changes": {activity.Query{Stack: "web", Part: activity.Deletes}, "d-up u-cli"},
			"no stack":               {activity.Query{Stack: "web/nemo"}, ""},
			"since":                  {activity.Query{Since: p.at.Add(-4 * time.Minute)}, "a-tags a-role"},
			"before":                 {activity.Query{Before: time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)}, "u-cli"},
		} {
			if got := ids(p.list(admin, test.query)); got != test.want {
				t.Errorf("%s: %q, want %q", name, got, test.want)
			}
		}
		for _, e := range p.list(admin, activity.Query{}).Entries {
			switch e.ID {
			case "u-cli":
				if e.By() != "Ada L." || e.Changes()["update"] != 2 || !e.Run.Production || e.Result() != store.RunSucceeded {
					t.Errorf("the update: %+v", e.Run)
				}
			case "d-up":
				if e.Run.Message != "100% sure" || e.Result() != store.RunFailed || e.Run.Production {
					t.Errorf("the deployment: %+v", e.Run)
				}
			case "d-drift":
				if e.Result() != store.RunDrift || e.Changes()["update"] != 4 || e.Deletes() {
					t.Errorf("the drift: %+v", e.Run)
				}
			}
		}
	})
}

// TestRights lists what callers with other rights see.
func TestRights(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPast(t, db)
		p.fill()
		grant := func(user string) {
			p.write(func(tx *store.Tx) error {
				_, err := tx.Exec("INSERT INTO collaborators (stack_id, user_id, permission) VALUES ('web/prod', $1, 101)", user)
				return err
			})
		}
		member, guest := caller(identity.RoleMember), caller(identity.RoleCollaborator)
		if got := ids(p.list(member, activity.Query{})) + ids(p.list(guest, activity.Query{})); got != "" {
			t.Errorf("users without permissions see %q", got)
		}
		grant("ada")
		for _, who := range []identity.Principal{member, guest} {
			l := p.list(who, activity.Query{})
			if ids(l) != "u-cli" || len(l.Whole) != 1 || l.Audit {
				t.Errorf("a user with a permission on a stack sees %q of %d", ids(l), len(l.Whole))
			}
			for _, q := range []activity.Query{{Stack: "web/dev"}, {Text: "sure"}, {Part: activity.Production, Stack: "db"}} {
				if got := ids(p.list(who, q)); got != "" {
					t.Errorf("%+v shows a user without permission %q", q, got)
				}
			}
			if _, err := p.List(t.Context(), who, "acme", activity.Query{Part: activity.Access}); fault.KindOf(err) != fault.KindForbidden {
				t.Errorf("a user who is no administrator reads the audit log: %v", err)
			}
		}
		// A query that begins with the time, as for callers who see many stacks, finds the same.
		f := store.FeedFilter{OrgID: "acme", Reach: member.Reach("acme"), Runs: true, Limit: 10}
		keys := must.Get(store.Read(t.Context(), db, func(tx *store.Tx) ([]store.FeedKey, error) { return tx.FeedKeys(f) }))(t)
		if len(keys) != 1 || keys[0].ID != "u-cli" {
			t.Errorf("a user with a permission on a stack finds %v", keys)
		}
		p.write(func(tx *store.Tx) error {
			_, err := tx.Exec("UPDATE organizations SET stack_permission = 101 WHERE id = 'acme'")
			return err
		})
		if got := ids(p.list(member, activity.Query{})); got != "u-fix d-drift d-up u-cli" {
			t.Errorf("a member who may read all stacks sees %q", got)
		}
		if got := ids(p.list(guest, activity.Query{})); got != "u-cli" {
			t.Errorf("a guest sees %q", got)
		}
		if _, err := p.List(t.Context(), member, "rival", activity.Query{}); fault.KindOf(err) != fault.KindForbidden {
			t.Errorf("a stranger lists activity: %v", err)
		}
		// A stack that moves takes its entries with it.
		p.write(func(tx *store.Tx) error { return tx.MoveStack("web/dev", "rival") })
		p.write(func(tx *store.Tx) error {
			_, err := tx.Exec("UPDATE stacks SET project = 'moved' WHERE id = 'web/prod'")
			return errors.Join(err, tx.MoveStack("web/prod", "rival"))
		})
		if got := ids(p.list(member, activity.Query{})); got != "u-fix d-drift" {
			t.Errorf("after transfers: %q", got)
		}
		rival := identity.Principal{Kind: identity.KindUser, User: store.User{ID: "eve"}, Roles: map[string]string{"rival": identity.RoleAdmin}}
		if got := ids(must.Get(p.List(t.Context(), rival, "rival", activity.Query{}))(t)); got != "a-other d-up u-other u-cli" {
			t.Errorf("the new organization lists %q", got)
		}
	})
}

// TestRepair lists the updates of programs that do not know the list.
func TestRepair(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPast(t, db)
		p.fill()
		p.write(func(tx *store.Tx) error {
			_, err := tx.Exec("UPDATE updates SET listed_in = ''")
			if err == nil {
				_, err = tx.Exec("UPDATE estate SET version = 99")
			}
			return err
		})
		admin := caller(identity.RoleAdmin)
		if got := ids(p.list(admin, activity.Query{What: activity.ByCLI})); got != "" {
			t.Fatalf("before the repair: %q", got)
		}
		_ = must.Get(db.RepairEstate(t.Context()))(t)
		if got := ids(p.list(admin, activity.Query{What: activity.ByCLI})); got != "u-cli" {
			t.Errorf("after the repair: %q", got)
		}
	})
}

// TestPages reads pages while entries are added: none is missing or repeated.
func TestPages(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPast(t, db)
		const all = activity.PageSize + 10
		p.write(func(tx *store.Tx) error {
			for i := range all {
				if i%2 == 0 { // two have the same time
					p.tick()
				}
				e := store.AuditEntry{ID: fmt.Sprintf("a-%03d", i), OrgID: "acme", At: p.at, Actor: "eve", Action: string(audit.MemberAdded), Detail: "{}"}
				if err := tx.InsertAuditEntry(e); err != nil {
					return err
				}
			}
			return nil
		})
		admin := caller(identity.RoleAdmin)
		first := p.list(admin, activity.Query{})
		p.audited("new", store.AuditEntry{Actor: "eve", Action: string(audit.MemberAdded)})
		p.audited("quiet", store.AuditEntry{Actor: "eve", Action: string(audit.DeploymentCreated)})
		seen := map[string]bool{}
		second := p.list(admin, activity.Query{After: first.Next, UpTo: first.Newest})
		for _, e := range append(first.Entries, second.Entries...) {
			if seen[e.ID] {
				t.Errorf("%s is on both pages", e.ID)
			}
			seen[e.ID] = true
		}
		if len(seen) != all || len(first.Entries) != activity.PageSize || second.Next != "" {
			t.Errorf("the pages have %d and %d entries, want %d; next %q", len(first.Entries), len(second.Entries), all, second.Next)
		}
		again := p.list(admin, activity.Query{UpTo: first.Newest})
		if ids(again) != ids(first) {
			t.Error("new entries move the others")
		}
		for q, want := range map[activity.Query]int{{UpTo: first.Newest}: 1, {UpTo: first.Newest, Part: activity.Access}: 2, {UpTo: first.Newest, Text: "nemo"}: 0} {
			if n := must.Get(p.New(t.Context(), admin, "acme", q))(t); n != want {
				t.Errorf("%+v: %d new entries, want %d", q, n, want)
			}
		}
		for _, q := range []activity.Query{{After: "x"}, {UpTo: "1-"}, {Part: "x"}, {What: "x"}, {Text: strings.Repeat("x ", 9)}, {Text: strings.Repeat("x", 201)}} {
			if _, err := p.List(t.Context(), admin, "acme", q); fault.KindOf(err) != fault.KindInvalid {
				t.Errorf("%+v: %v, want an invalid query", q, err)
			}
		}
	})
}

// TestSearchOlder searches entries that are older than those of one search.
func TestSearchOlder(t *testing.T) {
	storetest.OnSQLite(t)
	p := newPast(t, storetest.SQLite(t))
	p.audited("old", store.AuditEntry{Actor: "nemo", Action: string(audit.MemberAdded)})
	p.write(func(tx *store.Tx) error {
		for i := range 4 * activity.Window {
			if err := tx.InsertAuditEntry(store.AuditEntry{ID: fmt.Sprint("a-", i), OrgID: "acme", At: p.tick(), Actor: "eve", Action: string(audit.MemberAdded), Detail: "{}"}); err != nil {
				return err
			}
		}
		return nil
	})
	admin := caller(identity.RoleAdmin)
	l := p.list(admin, activity.Query{Text: "nemo"})
	if len(l.Entries) != 0 || l.Next == "" || l.All || len(l.Whole) != activity.Window || l.WholeAll {
		t.Fatalf("the first search: %q, next %q, %d", ids(l), l.Next, len(l.Whole))
	}
	for range 5 {
		if l.Next != "" {
			l = p.list(admin, activity.Query{Text: "nemo", After: l.Next})
		}
	}
	if ids(l) != "old" || !l.All {
		t.Errorf("the older entries: %q", ids(l))
	}
}

// TestVisits moves the time of the last visit only when a visit has ended.
func TestVisits(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPast(t, db)
		ada := caller(identity.RoleMember)
		open := func() time.Time {
			t.Helper()
			return must.Get(p.Open(t.Context(), ada, "acme"))(t)
		}
		age := func(by time.Duration) {
			p.write(func(tx *store.Tx) error {
				v, err := tx.ActivityVisit("ada", "acme")
				v.OpenedAt = v.OpenedAt.Add(-by)
				return errors.Join(err, tx.SaveActivityVisit(v))
			})
		}
		if at := open(); !at.IsZero() {
			t.Errorf("the first visit has one before: %v", at)
		}
		age(2 * time.Minute)
		if at := open(); !at.IsZero() {
			t.Errorf("a page that is opened again is another visit: %v", at)
		}
		age(20 * time.Minute)
		before := open()
		if ago := time.Since(before); ago < 19*time.Minute || ago > 30*time.Minute {
			t.Errorf("the last visit was %v ago", ago)
		}
		age(2 * time.Minute)
		if at := open(); !at.Equal(before) {
			t.Errorf("the last visit moved from %v to %v while the visit lasts", before, at)
		}
		if at := must.Get(p.Since(t.Context(), ada, "acme"))(t); !at.Equal(before) {
			t.Errorf("an open page shows %v, want %v", at, before)
		}
		eve := ada
		eve.User.ID = "eve"
		if at := must.Get(p.Since(t.Context(), eve, "acme"))(t); !at.IsZero() {
			t.Errorf("another user's last visit is %v", at)
		}
	})
}
