package results_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/policies"
	"workflowagent/internal/server/policies/exceptions"
	"workflowagent/internal/server/policies/results"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// lab is an organization with a stack that must obey the pack "aws" with the mandatory policy "tags", the advisory policy
// "size" and the disabled policy "off".
type lab struct {
	*testing.T
	db         *store.DB
	stacks     *stacks.Service
	results    *results.Service
	exceptions *exceptions.Service
	admin      identity.Principal
	org        store.Organization
	stack      store.Stack
	sequence   int
}

func newLab(t *testing.T, db *store.DB) *lab {
	t.Helper()
	l := &lab{T: t, db: db, results: results.New(db, results.Options{Log: storetest.Log(), Console: "https://app.example.com"}), exceptions: exceptions.NewService(db, nil)}
	ids := identity.New(db, storetest.Log())
	var token string
	l.must(ids.Bootstrap(t.Context(), "acme", func(text string) error { token = text; return nil }))
	var err error
	l.admin, err = ids.Authenticate(t.Context(), token)
	l.must(err)
	l.org, err = ids.Organization(t.Context(), l.admin, "acme")
	l.must(err)
	secrets, err := keyring.Open(t.Context(), db, bytes.Repeat([]byte{7}, 32))
	l.must(err)
	l.stacks = stacks.New(db, stacks.Options{Log: storetest.Log(), Secrets: secrets})
	l.stacks.Follow(stacks.Hooks{Recorded: l.results.Recorded, Ended: l.results.Ended})
	l.stack, err = l.stacks.Create(t.Context(), l.admin, stacks.NewStack{Org: l.org, Project: "proj", Name: "dev"})
	l.must(err)
	l.write(func(tx *store.Tx) error {
		if err := tx.InsertPolicyGroup(store.PolicyGroup{ID: "g", OrgID: l.org.ID, Name: "prod", EntityType: policies.Stacks, Mode: policies.Preventative, AllStacks: true}); err != nil {
			return err
		}
		return l.pack(tx, "aws")
	})
	return l
}

func (l *lab) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

func (l *lab) write(fn func(tx *store.Tx) error) {
	l.Helper()
	l.must(l.db.Write(l.Context(), scope.Server(), fn))
}

// pack adds a pack to the group.
func (l *lab) pack(tx *store.Tx, name string) error {
	list := []policies.Policy{{Name: "tags", Severity: "high"}, {Name: "size", Severity: "low"}, {Name: "off"}}
	text, err := json.Marshal(list)
	if err != nil {
		return err
	}
	levels := []store.PolicyLevel{{Name: "tags", Level: "mandatory"}, {Name: "size", Level: "advisory"}, {Name: "off", Level: "disabled"}}
	if err := tx.InsertPolicyPack(store.PolicyPack{ID: "p-" + name, OrgID: l.org.ID, Name: name}); err != nil {
		return err
	}
	v := store.PolicyPackVersion{ID: "v-" + name, PackID: "p-" + name, Number: 1, Tag: "1.0.0", Status: store.PackComplete, Configurable: true, Levels: levels, Policies: string(text), Blob: "policy-packs/" + name}
	if err := tx.InsertPackVersion(v); err != nil {
		return err
	}
	return tx.SaveEnabledPack(store.EnabledPack{GroupID: "g", PackID: "p-" + name, VersionID: "v-" + name})
}

// begin starts an update, and returns the packs that its client receives.
func (l *lab) begin(kind stacks.Kind) (store.Update, []policies.Required) {
	l.Helper()
	var required []policies.Required
	u, err := l.stacks.CreateUpdate(l.Context(), l.admin, l.stack, kind, stacks.Program{}, func(tx *store.Tx, u store.Update) (err error) {
		required, err = l.results.Begin(tx, l.stack, u)
		return err
	})
	l.must(err)
	_, err = l.stacks.Start(l.Context(), u, nil, 0)
	l.must(err)
	l.sequence = 0
	return l.reload(u), required
}

func (l *lab) reload(u store.Update) store.Update {
	l.Helper()
	u, err := l.stacks.FindUpdate(l.Context(), l.stack, u.ID)
	l.must(err)
	return u
}

// send records events: each is an object without a sequence number.
func (l *lab) send(u store.Update, events ...string) {
	l.Helper()
	var raw []json.RawMessage
	for _, e := range events {
		raw = append(raw, json.RawMessage(fmt.Sprintf(`{"sequence":%d,%s`, l.sequence, e[1:])))
		l.sequence++
	}
	l.must(l.stacks.RecordEvents(l.Context(), u, raw))
	// Clients repeat a batch whose answer they have lost.
	l.must(l.stacks.RecordEvents(l.Context(), u, raw))
}

func (l *lab) end(u store.Update, status stacks.Status) store.Update {
	l.Helper()
	l.must(l.stacks.Complete(l.Context(), u, status))
	return l.reload(u)
}

// run runs a succeeding update with events, and ends it with the summary of the pack "aws".
func (l *lab) run(kind stacks.Kind, events ...string) store.Update {
	l.Helper()
	u, _ := l.begin(kind)
	l.send(u, append(events, summary("aws"))...)
	return l.end(u, stacks.Succeeded)
}

// issues returns the issues of the stack as "policy resource message status".
func (l *lab) issues() []string {
	l.Helper()
	page, err := l.results.Issues(l.Context(), l.admin, l.org, results.Query{All: true, Size: 100})
	l.must(err)
	out := []string{}
	for _, i := range page.List {
		out = append(out, fmt.Sprintf("%s %s %s %s", i.Policy, i.ResourceName, i.Message, i.Status))
	}
	slices.Sort(out)
	return out
}

func urn(name string) string { return "urn:pulumi:dev::proj::aws:s3:Bucket::" + name }

func violates(pack, policy, level, name, message string, exceptions ...string) string {
	list := ""
	for i, e := range exceptions {
		if i > 0 {
			list += ","
		}
		list += fmt.Sprintf(`{"id":%q,"reason":"r"}`, e)
	}
	return fmt.Sprintf(`{"policyEvent":{"resourceUrn":%q,"message":"<{%%fg 1%%}>%s<{%%reset%%}>\n","policyName":%q,"policyPackName":%q,"policyPackVersionTag":"1.0.0","enforcementLevel":%q,"exceptions":[%s]}}`,
		urn(name), message, policy, pack, level, list)
}

func evaluates(name, passed, failed string) string {
	return fmt.Sprintf(`{"policyAnalyzeSummaryEvent":{"resourceUrn":%q,"policyPackName":"aws","policyPackVersion":"1.0.0","passed":[%s],"failed":[%s]}}`, urn(name), passed, failed)
}

func deletes(name string) string {
	return fmt.Sprintf(`{"resOutputsEvent":{"metadata":{"op":"delete","urn":%q}}}`, urn(name))
}

func summary(packs string) string {
	if packs != "" {
		packs = fmt.Sprintf("%q:%q", packs, "1.0.0")
	}
	return `{"summaryEvent":{"resourceChanges":{"same":1},"PolicyPacks":{` + packs + `}}}`
}
