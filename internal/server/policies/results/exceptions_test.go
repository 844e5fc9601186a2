package results_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/policies"
	"workflowagent/internal/server/policies/exceptions"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
)

func (l *lab) except(n exceptions.New) store.PolicyException {
	l.Helper()
	e, _, err := l.exceptions.Create(l.Context(), l.admin, l.org, n)
	l.must(err)
	return e
}

func entry(policy string, names ...string) []store.ExceptionEntry {
	e := store.ExceptionEntry{Policies: []string{policy}}
	for _, name := range names {
		e.Targets = append(e.Targets, urn(name))
	}
	return []store.ExceptionEntry{e}
}

// found returns the violations of an update as "resource exceptions claimed", and the number of those that stop it.
func (l *lab) found(u store.Update) (list []string, blocking int64) {
	l.Helper()
	r, err := l.results.Of(l.Context(), u, 100)
	l.must(err)
	for _, v := range r.Violations {
		list = append(list, v.Pack+" "+v.URN[strings.LastIndex(v.URN, ":")+1:]+" "+strings.Join(v.Exceptions, ",")+" "+strings.Join(v.Claimed, ","))
	}
	return list, r.Mandatory
}

// TestExceptions tests that a client receives the exceptions of its stack's packs, and that they count only for what
// they cover: not for another pack's policy of the same name, nor another resource, nor after their end.
func TestExceptions(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		l := newLab(t, db)
		l.write(func(tx *store.Tx) error { return l.pack(tx, "gcp") })
		one := l.except(exceptions.New{Pack: "aws", Entries: entry("tags", "a"), Reason: "LOG-31", Lasts: time.Hour})
		gone := l.except(exceptions.New{Pack: "aws", Entries: entry("tags", "c"), Reason: "over"})
		l.must(l.exceptions.Remove(t.Context(), l.admin, l.org, gone.Name()))
		u, required := l.begin(stacks.KindUpdate)
		late := l.except(exceptions.New{Pack: "aws", Entries: entry("size", "a"), Reason: "after the update began"})
		sent := map[string]string{}
		for _, r := range required {
			text, err := json.Marshal(r.Exceptions)
			l.must(err)
			sent[r.PackName] = string(text)
		}
		want := map[string]string{"aws": `{"EXC-1":{"reason":"LOG-31","match":[{"policies":["tags"],"targets":["` + urn("a") + `"]}]}}`, "gcp": "null"}
		if diff := cmp.Diff(want, sent); diff != "" {
			t.Errorf("the client receives (-want +got):\n%s", diff)
		}
		l.send(u, violates("aws", "tags", "mandatory", "a", "m", one.Name()), violates("gcp", "tags", "mandatory", "a", "m", one.Name()),
			violates("aws", "tags", "mandatory", "renamed", "m", one.Name()), violates("aws", "size", "mandatory", "a", "m", one.Name(), late.Name()),
			violates("aws", "tags", "mandatory", "c", "m", gone.Name(), "EXC-99"), summary("aws"))
		l.end(u, stacks.Succeeded)
		list, blocking := l.found(u)
		if diff := cmp.Diff([]string{"gcp a  EXC-1", "aws renamed  EXC-1", "aws a  EXC-1,EXC-3", "aws c  EXC-2,EXC-99", "aws a EXC-1 "}, list); diff != "" || blocking != 4 {
			t.Errorf("%d violations stop the update, which has (-want +got):\n%s", blocking, diff)
		}
		if diff := cmp.Diff([]string{"size a m open", "tags a m by_design", "tags a m open", "tags c m open", "tags renamed m open"}, l.issues()); diff != "" {
			t.Errorf("the issues are (-want +got):\n%s", diff)
		}
		// The stack's resources have other names in a stack that was renamed.
		_, renamed, err := l.stacks.Find(t.Context(), l.admin, identity.StateRead, "acme", "proj", "dev")
		l.must(err)
		_, err = l.stacks.Rename(t.Context(), l.admin, renamed, "new", "")
		l.must(err)
		_, l.stack, err = l.stacks.Find(t.Context(), l.admin, identity.StateRead, "acme", "proj", "new")
		l.must(err)
		if _, required = l.begin(stacks.KindPreview); len(required) != 2 || len(required[0].Exceptions) > 0 {
			t.Errorf("a renamed stack receives the exceptions %s", required[0].Exceptions)
		}
		// Another stack with the name receives nothing.
		l.stack, err = l.stacks.Create(t.Context(), l.admin, stacks.NewStack{Org: l.org, Project: "proj", Name: "dev"})
		l.must(err)
		if _, required = l.begin(stacks.KindPreview); len(required[0].Exceptions) > 0 {
			t.Errorf("a new stack with an old name receives the exceptions %s", required[0].Exceptions)
		}
	})
}

// TestExceptionsEnd tests that an exception that has expired is neither sent nor applied.
func TestExceptionsEnd(t *testing.T) {
	clock := &storetest.Clock{}
	db := storetest.SQLiteAt(t, clock)
	l := newLab(t, db)
	e := l.except(exceptions.New{Pack: "aws", Entries: entry("tags", "a"), Reason: "LOG-31", Lasts: time.Hour})
	u, _ := l.begin(stacks.KindPreview)
	clock.Pass(time.Hour + time.Second)
	again, required := l.begin(stacks.KindPreview)
	if len(required[0].Exceptions) > 0 {
		t.Errorf("an expired exception is sent: %s", required[0].Exceptions)
	}
	for _, each := range []struct {
		u    store.Update
		want int64
	}{{again, 1}, {u, 0}} { // what the client has received when it began remains
		l.write(func(tx *store.Tx) error { return tx.RenewUpdate(each.u.ID, tx.Now().Add(time.Minute)) })
		l.send(each.u, violates("aws", "tags", "mandatory", "a", "m", e.Name()))
		if list, blocking := l.found(each.u); blocking != each.want {
			t.Errorf("%d violations stop the update, want %d: %q", blocking, each.want, list)
		}
	}
	if err := l.exceptions.Remove(t.Context(), l.admin, l.org, e.Name()); fault.KindOf(err) != fault.KindConflict || !strings.Contains(err.Error(), "already removed") {
		t.Errorf("removing an expired exception: %v", err)
	}
}

// TestWholeStack tests that an exception for a whole stack lowers the level that all clients receive, for its stack only.
func TestWholeStack(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		l := newLab(t, db)
		l.except(exceptions.New{Pack: "aws", Entries: entry("tags", "a"), Reason: "older clients", WholeStack: true})
		u, required := l.begin(stacks.KindUpdate)
		r := required[0]
		if got := string(r.PolicyConfig["tags"]); got != `{"enforcementLevel":"advisory"}` || r.Policies[0].Level != policies.Advisory || len(r.Exceptions) > 0 {
			t.Errorf("the client receives %s, %+v, %s", got, r.Policies, r.Exceptions)
		}
		if diff := cmp.Diff([]string{"policy tags of aws is advisory for this stack: exception EXC-1 covers the whole stack"}, exceptions.Messages(required)); diff != "" {
			t.Errorf("messages (-want +got):\n%s", diff)
		}
		l.send(u, violates("aws", "tags", "advisory", "b", "m"), violates("aws", "tags", "mandatory", "a", "m"), summary("aws"))
		l.end(u, stacks.Succeeded)
		if list, blocking := l.found(u); blocking != 1 || !cmp.Equal(list, []string{"aws a  ", "aws b EXC-1 "}) {
			t.Errorf("%d violations stop the update: %q", blocking, list)
		}
		covered := l.stack
		var err error
		l.stack, err = l.stacks.Create(t.Context(), l.admin, stacks.NewStack{Org: l.org, Project: "proj", Name: "other"})
		l.must(err)
		if _, required = l.begin(stacks.KindUpdate); required[0].Policies[0].Level != policies.Mandatory {
			t.Errorf("another stack receives %+v", required[0].Policies)
		}
		// A version that ignores levels keeps them, and nothing says that it does not.
		l.write(func(tx *store.Tx) error {
			_, err := tx.Exec("UPDATE policy_pack_versions SET configurable = 0")
			return err
		})
		l.stack = covered
		if _, required = l.begin(stacks.KindPreview); required[0].Policies[0].Level != policies.Mandatory || len(exceptions.Messages(required)) > 0 {
			t.Errorf("with a pack that cannot be configured, the client receives %+v, %q", required[0].Policies, exceptions.Messages(required))
		}
		again := exceptions.New{Pack: "aws", Entries: entry("tags", "b"), Reason: "r", WholeStack: true}
		if _, _, err := l.exceptions.Create(t.Context(), l.admin, l.org, again); fault.KindOf(err) != fault.KindInvalid {
			t.Errorf("an exception for a whole stack from a pack that cannot be configured: %v", err)
		}
	})
}

// TestRefusedExceptions tests what cannot be asked for, and that the same exception is given once.
func TestRefusedExceptions(t *testing.T) {
	db := storetest.SQLite(t)
	l := newLab(t, db)
	good := exceptions.New{Pack: "aws", Entries: entry("tags", "a"), Reason: "r"}
	first, existed, err := l.exceptions.Create(t.Context(), l.admin, l.org, good)
	if err != nil || existed || first.CreatedBy != l.admin.Name() {
		t.Fatalf("the first request: %+v, %v, %v", first, existed, err)
	}
	if again, existed, err := l.exceptions.Create(t.Context(), l.admin, l.org, good); err != nil || !existed || again.ID != first.ID {
		t.Errorf("the same request again: %+v, %v, %v", again, existed, err)
	}
	_, err = l.stacks.Create(t.Context(), l.admin, stacks.NewStack{Org: l.org, Project: "proj", Name: "other"})
	l.must(err)
	for name, change := range map[string]func(n *exceptions.New){
		"two stacks": func(n *exceptions.New) {
			n.Entries[0].Targets = append(n.Entries[0].Targets, "urn:pulumi:other::proj::t:t:T::a")
		},
		"no reason":           func(n *exceptions.New) { n.Reason = " \n" },
		"no entries":          func(n *exceptions.New) { n.Entries = nil },
		"no targets":          func(n *exceptions.New) { n.Entries = entry("tags") },
		"all policies":        func(n *exceptions.New) { n.Entries = entry("all", "a") },
		"an unknown policy":   func(n *exceptions.New) { n.Entries = entry("nothing", "a") },
		"an unknown pack":     func(n *exceptions.New) { n.Pack = "nothing" },
		"no URN":              func(n *exceptions.New) { n.Entries[0].Targets = []string{"bucket"} },
		"an unknown stack":    func(n *exceptions.New) { n.Entries[0].Targets = []string{"urn:pulumi:prod::proj::t:t:T::a"} },
		"a part of an hour":   func(n *exceptions.New) { n.Lasts = time.Hour + time.Minute },
		"more than ten years": func(n *exceptions.New) { n.Lasts = 3651 * 24 * time.Hour },
	} {
		n := exceptions.New{Pack: "aws", Entries: entry("tags", "a"), Reason: "r"}
		change(&n)
		if _, _, err := l.exceptions.Create(t.Context(), l.admin, l.org, n); fault.KindOf(err) != fault.KindInvalid && fault.KindOf(err) != fault.KindNotFound {
			t.Errorf("%s: %v", name, err)
		}
	}
	member := l.admin
	member.Roles = nil
	for name, do := range map[string]func(ctx context.Context) error{
		"give": func(ctx context.Context) error {
			_, _, err := l.exceptions.Create(ctx, member, l.org, good)
			return err
		},
		"remove": func(ctx context.Context) error { return l.exceptions.Remove(ctx, member, l.org, first.Name()) },
	} {
		if err := do(t.Context()); fault.KindOf(err) != fault.KindForbidden {
			t.Errorf("a caller who is no administrator can %s exceptions: %v", name, err)
		}
	}
}
