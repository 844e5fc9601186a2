package organizations_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/joblog"
	"workflowagent/internal/server/organizations"
	"workflowagent/internal/server/stacks/states"
	"workflowagent/internal/server/storage/quota"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/database"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/workflow"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// world is a database with the organizations acme and rival, which have one administrator each. Ann is a member of both.
type world struct {
	t           *testing.T
	db          *store.DB
	ids         *identity.Service
	orgs        *organizations.Service
	acme, rival store.Organization
}

func newWorld(t *testing.T, db *store.DB) *world {
	t.Helper()
	w := &world{t: t, db: db, ids: identity.New(db, storetest.Log())}
	w.orgs = organizations.New(db, storetest.Log(), quota.New(db, storetest.Log(), 1000), 150)
	must.OK(t, w.ids.Bootstrap(t.Context(), "acme", func(string) error { return nil }))
	must.Get(w.ids.CreateUser(t.Context(), identity.NewUser{Login: "bob"}))(t)
	w.rival = must.Get(w.ids.CreateOrganization(t.Context(), "rival", "bob"))(t)
	w.acme = must.Get(w.orgs.Get(t.Context(), "acme"))(t).Organization
	must.Get(w.ids.CreateUser(t.Context(), identity.NewUser{Login: "ann", Org: "acme", Role: identity.RoleMember}))(t)
	must.Get(w.ids.AddMember(t.Context(), w.rival, "ann", identity.RoleAdmin))(t)
	return w
}

func (w *world) write(change func(tx *store.Tx) error) {
	w.t.Helper()
	must.OK(w.t, w.db.Write(w.t.Context(), scope.Server(), change))
}

// fill adds stacks with updates, deployments and what belongs to them to an organization.
func (w *world) fill(o store.Organization) {
	w.t.Helper()
	now := time.Now()
	for i := range 3 {
		id := fmt.Sprintf("%s-%d", o.Name, i)
		w.write(func(tx *store.Tx) error {
			return errors.Join(
				tx.InsertStack(store.Stack{ID: "s-" + id, OrgID: o.ID, Project: "p", Name: id, StateBlob: "state-" + id}),
				tx.InsertState(store.State{Key: "state-" + id, StackID: "s-" + id, Form: store.Full, Blob: states.StackBlobs("s-"+id) + "/1", Size: 100}),
				tx.InsertUpdate(store.Update{ID: "u-" + id, StackID: "s-" + id, Status: "succeeded", Version: 1, CreatedAt: now, StartedAt: now, FinishedAt: now, ResourceCount: 5}),
				tx.UpdateStack(store.Stack{ID: "s-" + id, OrgID: o.ID, Project: "p", Name: id, StateBlob: "state-" + id, Version: 1, ResourceCount: 5}),
				tx.InsertDeployment(store.Deployment{ID: "d-" + id, OrgID: o.ID, StackID: "s-" + id, Version: 1}),
				tx.InsertJob(store.Job{ID: "j-" + id, DeploymentID: "d-" + id, OrgID: o.ID, StackID: "s-" + id, Status: workflow.StatusSucceeded, Epoch: 1, EndedAt: now}),
				tx.InsertDeployment(store.Deployment{ID: "q-" + id, OrgID: o.ID, StackID: "s-" + id, Version: 2}),
				tx.InsertJob(store.Job{ID: "k-" + id, DeploymentID: "q-" + id, OrgID: o.ID, StackID: "s-" + id, Status: workflow.StatusNotStarted, Epoch: 1}),
				tx.InsertWebhook(store.Webhook{ID: "h-" + id, OrgID: o.ID, Name: id}),
				tx.SaveAnnotation(store.Annotation{StackID: "s-" + id, Kind: "note", Version: 1, Document: "{}"}),
			)
		})
		must.OK(w.t, w.db.Blobs().Put(w.t.Context(), states.StackBlobs("s-"+id)+"/1", strings.NewReader("a state")))
		must.OK(w.t, w.db.Blobs().Put(w.t.Context(), joblog.Key("j-"+id, 1, 0), strings.NewReader("a log")))
	}
	w.write(func(tx *store.Tx) error {
		return errors.Join(
			tx.InsertStack(store.Stack{ID: "s-" + o.Name + "-gone", OrgID: o.ID, Project: "p", Name: "gone"}),
			tx.InsertUpdate(store.Update{ID: "u-" + o.Name + "-gone", StackID: "s-" + o.Name + "-gone", Status: "succeeded", Version: 1, CreatedAt: now}),
			tx.DeleteStack("s-"+o.Name+"-gone", "ann"),
		)
	})
	w.write(func(tx *store.Tx) error {
		g := store.PolicyGroup{ID: "g-" + o.Name, OrgID: o.ID, Name: "g"}
		return errors.Join(
			tx.InsertPolicyPack(store.PolicyPack{ID: "pack-" + o.Name, OrgID: o.ID, Name: "aws"}),
			tx.InsertPackVersion(store.PolicyPackVersion{ID: "v-" + o.Name, PackID: "pack-" + o.Name, Status: store.PackComplete, Blob: "policy-packs/v-" + o.Name + "/1"}),
			tx.InsertEnvironment(store.Environment{ID: "e-" + o.Name, OrgID: o.ID, Project: "app", Name: "prod", SealedKey: []byte{1}, LastNumber: 1}),
			tx.InsertRevision(store.EnvironmentRevision{EnvironmentID: "e-" + o.Name, Number: 1, Definition: "a: 1"}),
			tx.InsertPolicyGroup(g), tx.SaveGroupStack(store.GroupStack{GroupID: g.ID, StackID: "s-" + o.Name + "-0", Member: true}),
			tx.SaveEnabledPack(store.EnabledPack{GroupID: g.ID, PackID: "pack-" + o.Name, VersionID: "v-" + o.Name}),
		)
	})
	must.OK(w.t, w.db.Blobs().Put(w.t.Context(), "policy-packs/v-"+o.Name+"/1", strings.NewReader("a pack")))
	w.write(func(tx *store.Tx) error {
		pool := store.AgentPool{ID: "pool-" + o.Name, OrgID: o.ID, Name: "p", CreatedAt: now}
		return errors.Join(tx.InsertPool(pool), tx.SaveOrgQueue(store.OrgQueue{OrgID: o.ID, DefaultPool: pool.ID}), tx.AddImport(o.ID, 300))
	})
}

// stored returns the number of bytes of the organization's blobs.
func (w *world) stored(o store.Organization) (n int64) {
	w.t.Helper()
	for i := range 3 {
		id := fmt.Sprintf("%s-%d", o.Name, i)
		n += must.Get(w.db.Blobs().Total(w.t.Context(), states.StackBlobs("s-"+id)))(w.t)
		n += must.Get(w.db.Blobs().Total(w.t.Context(), joblog.Blobs("j-"+id)))(w.t)
	}
	return n + must.Get(w.db.Blobs().Total(w.t.Context(), "policy-packs/v-"+o.Name))(w.t)
}

// rows returns the rows outside of the audit log that name an organization, as JSON.
func (w *world) rows(o store.Organization) []string {
	w.t.Helper()
	var found []string
	if w.db.Shared() {
		for _, table := range []string{"members", "agent_pools", "org_queues", "stacks", "deleted_stacks", "deployments", "jobs", "webhooks", "resource_changes", "organization_storage", "former_names", "policy_packs", "policy_groups", "environments"} {
			n := must.Get(store.Read(w.t.Context(), w.db, func(tx *store.Tx) (int64, error) {
				return database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM "+table+" WHERE org_id = $1", o.ID)
			}))(w.t)
			for range n {
				found = append(found, table)
			}
		}
		if _, err := store.Read(w.t.Context(), w.db, func(tx *store.Tx) (store.Organization, error) { return tx.Organization(o.ID) }); !errors.Is(err, store.ErrNotFound) {
			found = append(found, "organizations")
		}
		return found
	}
	for table, rows := range storetest.Contents(w.t, w.db, "audit_entries") {
		for _, row := range rows {
			if strings.Contains(row, o.ID) || strings.Contains(row, "-"+o.Name) {
				found = append(found, table+": "+row)
			}
		}
	}
	return found
}

func (w *world) delete(o store.Organization, typed string, want fault.Kind) {
	w.t.Helper()
	if _, _, err := w.orgs.Delete(w.t.Context(), o.ID, typed); fault.KindOf(err) != want || err != nil && want == "" {
		w.t.Fatalf("deleting %s by the name %q: %v, want an error of kind %q", o.Name, typed, err, want)
	}
}

func TestDelete(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		w := newWorld(t, db)
		w.fill(w.acme)
		w.fill(w.rival)
		must.Get(w.ids.RenameOrganization(t.Context(), identity.Operator(), w.acme.ID, "umbrella"))(t)
		kept := w.rows(w.rival)

		w.delete(w.acme, "acme", fault.KindInvalid) // a former name
		job := func(status workflow.Status) {
			w.write(func(tx *store.Tx) error {
				j, err := tx.Job("j-acme-0")
				j.Status = status
				return errors.Join(err, tx.SaveJob(j))
			})
		}
		job(workflow.StatusRunning)
		w.delete(w.acme, "umbrella", fault.KindConflict)
		job(workflow.StatusSucceeded)
		w.write(func(tx *store.Tx) error {
			return tx.InsertUpdate(store.Update{ID: "running", StackID: "s-acme-1", Status: "running", Version: 2, CreatedAt: tx.Now(), StartedAt: tx.Now()})
		})
		w.delete(w.acme, "umbrella", fault.KindConflict)
		w.write(func(tx *store.Tx) error {
			_, err := tx.Exec("UPDATE updates SET status = 'failed' WHERE id = 'running'")
			return err
		})

		if got := must.Get(w.orgs.Get(t.Context(), "acme"))(t).Content; got.Stacks != 3 || got.DeletedStacks != 1 || got.Resources != 15 || got.Updates != 5 || got.Deployments != 6 ||
			got.Queued != 3 || got.Pools != 1 || got.Webhooks != 3 || got.PolicyPacks != 1 || got.Environments != 1 || got.Members != 2 || got.StoredBytes != 300 {
			t.Errorf("acme contains %+v", got)
		}
		w.delete(w.acme, "umbrella", "")
		w.delete(w.acme, "umbrella", fault.KindNotFound)
		for _, name := range []string{"acme", "umbrella", "/deleted-" + w.acme.ID} {
			if _, err := w.orgs.Get(t.Context(), name); fault.KindOf(err) != fault.KindNotFound {
				t.Errorf("the name %q finds the deleted organization: %v", name, err)
			}
		}
		admin := must.Get(w.ids.UserByLogin(t.Context(), identity.AdminLogin))(t)
		if p := must.Get(store.Read(t.Context(), db, func(tx *store.Tx) (identity.Principal, error) { return identity.OfUser(tx, admin.ID) }))(t); len(p.Roles) > 0 || p.User.DefaultOrg != "" {
			t.Errorf("the administrator still has %+v", p)
		}
		// Identity tokens of another organization with its names would be trusted in its place. Only the operator uses one again.
		for _, name := range []string{"acme", "Umbrella"} {
			if _, err := w.ids.CreateOrganization(t.Context(), name, "bob"); fault.KindOf(err) != fault.KindConflict || !strings.Contains(err.Error(), "a deleted organization had the name") {
				t.Errorf("creating %s: %v", name, err)
			}
			if _, err := w.ids.RenameOrganization(t.Context(), identity.Operator(), w.rival.ID, name); fault.KindOf(err) != fault.KindConflict || !strings.Contains(err.Error(), "a deleted organization had the name") {
				t.Errorf("renaming to %s: %v", name, err)
			}
		}
		must.Get(w.ids.CreateWithRetiredName(t.Context(), "umbrella", "bob"))(t)
		if _, err := w.ids.CreateWithRetiredName(t.Context(), "umbrella", "bob"); fault.KindOf(err) != fault.KindConflict {
			t.Errorf("creating umbrella twice: %v", err)
		}

		must.OK(t, w.orgs.Purge(t.Context()))
		if rows := w.rows(w.acme); len(rows) > 0 {
			t.Errorf("the deleted organization left\n%s", strings.Join(rows, "\n"))
		}
		if n := w.stored(w.acme); n > 0 {
			t.Errorf("the deleted organization left blobs of %d bytes", n)
		}
		if got := w.rows(w.rival); len(got) < len(kept) || w.stored(w.rival) == 0 {
			t.Errorf("of the other organization, %d of %d rows remain", len(got), len(kept))
		}
		last := must.Get(store.Read(t.Context(), db, func(tx *store.Tx) ([]store.AuditEntry, error) {
			return tx.AuditEntries(store.AuditFilter{Action: "organization.deleted", Limit: 5})
		}))(t)
		if len(last) != 1 || last[0].OrgID != "" || last[0].Subject != "umbrella" || !strings.Contains(last[0].Detail, `"stacks":3`) {
			t.Errorf("the audit log contains %+v", last)
		}
	})
}

func TestTheLastOrganizationRemains(t *testing.T) {
	w := newWorld(t, storetest.SQLite(t))
	w.delete(w.rival, "rival", "")
	w.delete(w.acme, "acme", fault.KindConflict)
}

// TestPurgeAgain stops the removal in between.
func TestPurgeAgain(t *testing.T) {
	w := newWorld(t, storetest.SQLite(t))
	w.fill(w.acme)
	w.delete(w.acme, "acme", "")
	must.OK(t, w.db.Blobs().Delete(t.Context(), states.StackBlobs("s-acme-0")))
	w.write(func(tx *store.Tx) error {
		// A request that had begun before.
		return errors.Join(tx.RemoveStack("s-acme-1"), tx.InsertToken(store.Token{ID: "late", Hash: []byte{1}, Kind: store.OrgToken, OrgID: w.acme.ID}))
	})
	must.OK(t, w.orgs.Purge(t.Context()))
	must.OK(t, w.orgs.Purge(t.Context()))
	if rows := w.rows(w.acme); len(rows) > 0 {
		t.Errorf("the deleted organization left\n%s", strings.Join(rows, "\n"))
	}
}

func TestQuotas(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		w := newWorld(t, db)
		limit := quota.New(db, storetest.Log(), 1000)
		must.OK(t, limit.Measure(t.Context()))
		set := func(storage, deployments *int64, want fault.Kind) organizations.Summary {
			t.Helper()
			o, err := w.orgs.SetQuotas(t.Context(), "acme", organizations.Quotas{Storage: storage, Deployments: deployments})
			if fault.KindOf(err) != want || err != nil && want == "" {
				t.Fatalf("setting the quotas: %v, want an error of kind %q", err, want)
			}
			return o
		}
		admit := func(when string, o store.Organization, bytes int64, want string) {
			t.Helper()
			err := db.Write(t.Context(), scope.Organization(o.ID), func(tx *store.Tx) error {
				return errors.Join(limit.AdmitImport(tx, o.ID, bytes), fault.Invalid("not stored"))
			})
			if got := err.Error(); !strings.Contains(got, want) || want == "" && strings.Contains(got, "quota") {
				t.Errorf("%s, %d bytes: %v, want %q", when, bytes, err, want)
			}
		}
		admit("with the server's limit", w.acme, 2000, "may store 1000 B")
		admit("with the server's limit", w.acme, 2000, "raise organization_quota")
		if o := set(new(int64(3000)), new(int64(7)), ""); o.StorageLimit != 3000 || o.DeploymentLimit != 7 {
			t.Errorf("the limits are %+v", o)
		}
		admit("with a larger limit", w.acme, 2000, "")
		admit("with a larger limit", w.acme, 4000, "raise the quota of the organization")
		admit("with a larger limit of another organization", w.rival, 2000, "may store 1000 B")
		if o := set(new(int64(store.NoQuota)), nil, ""); o.StorageLimit != 0 || o.DeploymentLimit != 7 {
			t.Errorf("the limits are %+v", o)
		}
		admit("without a limit", w.acme, 1<<40, "")
		if o := set(new(int64), new(int64), ""); o.StorageLimit != 1000 || o.DeploymentLimit != 150 {
			t.Errorf("the limits are %+v", o)
		}
		admit("with the server's limit again", w.acme, 2000, "may store 1000 B")
		set(new(int64(-2)), nil, fault.KindInvalid)
		set(nil, new(int64(-1)), fault.KindInvalid)

		entries := must.Get(store.Read(t.Context(), db, func(tx *store.Tx) ([]store.AuditEntry, error) {
			return tx.AuditEntries(store.AuditFilter{OrgID: w.acme.ID, Action: "organization.quotas-changed", Limit: 5})
		}))(t)
		var detail map[string]int64
		if len(entries) != 3 || json.Unmarshal([]byte(entries[2].Detail), &detail) != nil || detail["storage"] != 3000 || detail["deployments"] != 7 {
			t.Errorf("the audit log contains %+v", entries)
		}
	})
}
