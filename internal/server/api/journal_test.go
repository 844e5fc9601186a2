package api_test

import (
	"fmt"
	"strings"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/store"
)

// startJournal starts an update as a client that can send a journal.
func (f *fixture) startJournal(stack, kind string) update {
	f.t.Helper()
	var created struct{ UpdateID string }
	f.do("POST", stack+"/"+kind, program()).want(200, &created)
	u := update{f: f, path: stack + "/update/" + created.UpdateID}
	var started struct {
		Token          string
		JournalVersion int
	}
	f.do("POST", u.path, map[string]any{"journalVersion": 1}).want(200, &started)
	if want := map[bool]int{true: 0, false: 1}[kind == "preview"]; started.JournalVersion != want {
		f.t.Errorf("the start of a %s offers version %d of the journal, want %d", kind, started.JournalVersion, want)
	}
	u.token = started.Token
	return u
}

func created(sequence int, name string) string {
	return fmt.Sprintf(`{"version":1,"kind":1,"sequenceID":%d,"operationID":%d,"removeOld":null,"state":{"urn":"urn:pulumi:dev::proj::a:b:C::%s","type":"a:b:C"}}`,
		sequence, sequence, name)
}

func entries(list ...string) string { return `{"entries":[` + strings.Join(list, ",") + `]}` }

func (f *fixture) resourceCount(path string) int {
	f.t.Helper()
	var exported struct {
		Deployment struct{ Resources []any }
	}
	f.do("GET", path+"/export", nil).want(200, &exported)
	return len(exported.Deployment.Resources)
}

func TestJournal(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixtureOn(t, db, options{})
		path := f.stack("dev")
		u := f.startJournal(path, "update")
		u.send("PATCH", "/journalentries", entries(created(1, "a"))).want(204, nil)
		u.send("PATCH", "/journalentries", entries(created(1, "a"), created(2, "b"))).want(204, nil)
		if got := f.resourceCount(path); got != 2 {
			t.Errorf("the running update has %d resources, want 2", got)
		}
		u.send("PATCH", "/journalentries", entries(created(1, "x"))).want(409, nil).says("sequence id 1")
		u.send("PATCH", "/checkpoint", state(1)).want(409, nil).says("journal")
		u.send("POST", "/complete", map[string]string{"status": "succeeded"}).want(204, nil)
		u.send("PATCH", "/journalentries", entries(created(3, "c"))).want(409, nil).says("completed")
		var summary struct{ ResourceCount int }
		f.do("GET", path+"/updates/1/summary", nil).want(200, &summary)
		if got := f.resourceCount(path); got != 2 || summary.ResourceCount != 2 {
			t.Errorf("the state has %d resources, and the history says %d, want 2", got, summary.ResourceCount)
		}
		for _, kind := range []string{"destroy", "refresh"} {
			u := f.startJournal(path, kind)
			u.send("PATCH", "/journalentries", entries(`{"version":1,"kind":1,"sequenceID":1,"operationID":1,"removeOld":0}`)).want(204, nil)
			u.send("POST", "/complete", map[string]string{"status": "succeeded"}).want(204, nil)
		}
		if got := f.resourceCount(path); got != 0 {
			t.Errorf("the state has %d resources, want none", got)
		}
		preview := f.startJournal(path, "preview")
		preview.send("PATCH", "/journalentries", entries(created(1, "a"))).want(403, nil).says("preview")
		f.do("DELETE", path, nil).want(204, nil)
	})
}

// TestForeignSecretsInJournals checks that a stack cannot decrypt another stack's secrets, even if its
// own state contains them.
func TestForeignSecretsInJournals(t *testing.T) {
	f := newFixture(t, options{})
	path, other := f.stack("dev"), f.stack("other")
	var enc struct{ Ciphertext string }
	f.do("POST", path+"/encrypt", map[string][]byte{"plaintext": []byte("x")}).want(200, &enc)
	u := f.startJournal(other, "update")
	secret := `{"urn":"urn:pulumi:other::proj::a:b:C::a","type":"a:b:C","outputs":{"p":{"ciphertext":"` + enc.Ciphertext + `"}}}`
	u.send("PATCH", "/journalentries", entries(`{"version":1,"kind":1,"sequenceID":1,"operationID":1,"state":`+secret+`}`)).want(204, nil)
	u.send("POST", "/complete", map[string]string{"status": "succeeded"}).want(204, nil)
	f.do("POST", other+"/decrypt", map[string]string{"ciphertext": enc.Ciphertext}).want(400, nil).says("another stack")
	f.do("POST", path+"/decrypt", map[string]string{"ciphertext": enc.Ciphertext}).want(200, nil)
}

func TestRefusedJournals(t *testing.T) {
	f := newFixture(t, options{limits: request.Limits{Batch: 8_000, BigBody: 100_000, BigInflated: 100_000}})
	path := f.stack("dev")
	u := f.startJournal(path, "update")
	many := make([]string, 1001)
	for i := range many {
		many[i] = `{}`
	}
	long := created(1, "a"+strings.Repeat("b", 8_000))
	for _, tt := range []struct {
		name, body, text string
		status           int
	}{
		{"no body", "", "JSON", 400},
		{"no JSON", "{", "JSON", 400},
		{"no object", "[]", "must contain", 400},
		{"no entries", "{}", "must contain", 400},
		{"an empty list", entries(), "must contain", 400},
		{"an object", `{"entries":{}}`, "must contain", 400},
		{"another version", entries(strings.Replace(created(1, "a"), `"version":1`, `"version":3`, 1)), "version", 400},
		{"too many entries", entries(many...), "1001", 413},
		{"too many bytes", entries(long, created(2, "c")), "8000 bytes", 413},
		{"too many bytes at all", entries(created(1, strings.Repeat("b", 100_000))), "larger", 413},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := u.send("PATCH", "/journalentries", tt.body)
			a.t = t
			a.want(tt.status, nil).says(tt.text)
		})
	}
	if got := f.resourceCount(path); got != 0 {
		t.Errorf("%d resources are stored", got)
	}
	u.send("PATCH", "/journalentries", entries(long)).want(204, nil) // a single entry can be long
}
