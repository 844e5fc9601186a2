package policies

import (
	"encoding/json"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

func write(t *testing.T, db *store.DB, fn func(tx *store.Tx) error) {
	t.Helper()
	if err := db.Write(t.Context(), scope.Server(), fn); err != nil {
		t.Fatal(err)
	}
}

// TestRequired tests that several groups with one pack require its newest version once, with the configuration that was
// changed last, that a stack which has left the default group does not need its packs, and that every policy has a level.
func TestRequired(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		at := time.Unix(1_700_000_000, 0).UTC()
		s := New(db, Options{Log: storetest.Log()})
		st := store.Stack{ID: "s1", OrgID: "o1", Project: "p", Name: "dev"}
		left := store.Stack{ID: "s2", OrgID: "o1", Project: "p", Name: "left"}
		write(t, db, func(tx *store.Tx) error {
			steps := []error{
				tx.InsertOrganization(store.Organization{ID: "o1", Name: "acme"}),
				tx.InsertStack(st), tx.InsertStack(left),
				tx.InsertPolicyPack(store.PolicyPack{ID: "p1", OrgID: "o1", Name: "aws"}),
			}
			for i, tag := range []string{"1.0.0", "2.0.0"} {
				steps = append(steps, tx.InsertPackVersion(store.PolicyPackVersion{
					ID: "v" + tag, PackID: "p1", Number: int64(i + 1), Tag: tag, Status: store.PackComplete, Blob: "policy-packs/" + tag,
					Levels: []store.PolicyLevel{{Name: "a", Level: Mandatory}, {Name: "b", Level: Advisory}, {Name: "c", Level: Disabled}},
				}))
			}
			for i, g := range []struct {
				name, version, config string
				mode                  string
				all                   bool
			}{
				{"old", "v1.0.0", `{"all":{"enforcementLevel":"disabled"}}`, Preventative, false},
				{DefaultGroup, "v2.0.0", `{"a":{"max":3}}`, Preventative, true},
				{"newer", "v2.0.0", `{"all":{"enforcementLevel":"mandatory"},"b":{"enforcementLevel":"advisory","x":[1]},"c":{"EnforcementLevel":"disabled"}}`, Preventative, false},
				{"audit", "v1.0.0", ``, Audit, false},
			} {
				group := store.PolicyGroup{ID: g.name, OrgID: "o1", Name: g.name, EntityType: Stacks, Mode: g.mode, AllStacks: g.all}
				steps = append(steps, tx.InsertPolicyGroup(group),
					tx.SaveEnabledPack(store.EnabledPack{GroupID: g.name, PackID: "p1", VersionID: g.version, Config: g.config, ModifiedAt: at.Add(time.Duration(i) * time.Second)}))
				if g.all {
					steps = append(steps, tx.SaveGroupStack(store.GroupStack{GroupID: g.name, StackID: "s2"}))
				} else {
					steps = append(steps, tx.SaveGroupStack(store.GroupStack{GroupID: g.name, StackID: "s1", Member: true}))
				}
			}
			for _, err := range steps {
				if err != nil {
					return err
				}
			}
			return nil
		})
		got, err := s.packsOf(t.Context(), st, Preventative)
		if err != nil || len(got) != 1 {
			t.Fatalf("required policies %+v, %v", got, err)
		}
		r := got[0]
		if r.Tag != "2.0.0" || r.GroupName != "newer" || r.PackName != "aws" {
			t.Errorf("required is %s of group %s, want 2.0.0 of newer", r.Tag, r.GroupName)
		}
		config, err := json.Marshal(r.PolicyConfig)
		if err != nil {
			t.Fatal(err)
		}
		const want = `{"a":{"enforcementLevel":"mandatory"},"all":{"enforcementLevel":"mandatory"},"b":{"enforcementLevel":"advisory","x":[1]},"c":{"EnforcementLevel":"disabled","enforcementLevel":"mandatory"}}`
		if string(config) != want {
			t.Errorf("config\n%s, want\n%s", config, want)
		}
		if got, err := s.packsOf(t.Context(), left, Preventative); err != nil || len(got) != 0 {
			t.Errorf("a stack that has left requires %+v, %v", got, err)
		}
		if got, err := s.packsOf(t.Context(), st, Audit); err != nil || len(got) != 1 || got[0].Tag != "1.0.0" || got[0].Policies[1].Level != Advisory {
			t.Errorf("audit %+v, %v", got, err)
		}
		rows, err := store.Read(t.Context(), db, func(tx *store.Tx) ([]store.EnabledPack, error) { return tx.PacksOfStack("o1", "s1", Preventative) })
		if err != nil || len(rows) != 1 || rows[0].GroupName != "newer" {
			t.Errorf("the database reads %d rows for one pack, %v", len(rows), err)
		}
		for name, n := range map[string]int{"old": 1, DefaultGroup: 1} {
			members, err := store.Read(t.Context(), db, func(tx *store.Tx) ([]store.Stack, error) {
				return tx.GroupMembers(store.PolicyGroup{ID: name, OrgID: "o1", AllStacks: name == DefaultGroup}, "", 10)
			})
			if err != nil || len(members) != n || members[0].Name != "dev" {
				t.Errorf("members of %s: %+v, %v", name, members, err)
			}
		}
	})
}
