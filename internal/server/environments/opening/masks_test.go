package opening

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/esc/wire"
	"workflowagent/internal/redact"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// TestOpenedSecretsOfAJob opens environments as a job, whose runner learns the secrets.
func TestOpenedSecretsOfAJob(t *testing.T) {
	s := newSite(t, storetest.SQLite(t))
	s.write(func(tx *store.Tx) error {
		if err := tx.InsertStack(store.Stack{ID: "st", OrgID: s.acme.ID, Project: "shop", Name: "dev", CreatedAt: tx.Now()}); err != nil {
			return err
		}
		return tx.InsertDeployment(store.Deployment{ID: "dep", OrgID: s.acme.ID, StackID: "st", Version: 1, Operation: "update", Configuration: "{}"})
	})
	job := s.p("ann")
	job.Kind, job.Org, job.JobID, job.DeploymentID = identity.KindJob, s.acme, "job", "dep"
	values := wire.Values{
		"plain":  {Value: "visible-text"},
		"secret": {Value: "planted-secret", Secret: true},
		"nested": {Secret: true, Value: []wire.Value{{Value: "planted-nested"}, {Value: "short"}}},
	}
	open := func(v wire.Values) error {
		_, err := s.Open(t.Context(), job, s.root(s.acme, script{Values: v}), time.Hour)
		return err
	}
	must.OK(t, open(values))
	must.OK(t, open(values)) // the same secrets once
	must.OK(t, open(wire.Values{"plain": values["plain"]}))
	got := must.Get(s.OpenedSecrets(t.Context(), job, "job", 0))(t)
	slices.Sort(got.Secrets)
	if want := []string{"planted-nested", "planted-secret"}; got.Count != 1 || !slices.Equal(got.Secrets, want) {
		t.Errorf("the runner learns %+v, want %q", got, want)
	}
	if got := must.Get(s.OpenedSecrets(t.Context(), job, "job", 1))(t); got.Count != 1 || got.Secrets != nil {
		t.Errorf("the runner learns again %+v", got)
	}
	more := maps.Clone(values)
	more["other"] = wire.Value{Value: "planted-other", Secret: true}
	must.OK(t, open(more)) // of which one is new
	if got := must.Get(s.OpenedSecrets(t.Context(), job, "job", 1))(t); got.Count != 2 || len(got.Secrets) != 3 {
		t.Errorf("after another secret, the runner learns %+v", got)
	}
	if known := must.Get(s.KnownSecrets(t.Context(), "dep"))(t); len(known) != 3 {
		t.Errorf("%d secrets are known", len(known))
	}
	if _, err := s.OpenedSecrets(t.Context(), job, "other", 0); fault.KindOf(err) != fault.KindNotFound {
		t.Errorf("the runner of another job: %v", err)
	}
	// What a failing evaluation has decrypted can be in its errors.
	e := s.add("ann", s.acme, "dev", "any: text")
	failing := s.root(s.acme, script{Fails: true, Asks: []wire.Ask{{Decrypt: &wire.DecryptAsk{
		Root: true, Ciphertext: must.Get(s.envs.Key(t.Context(), e))(t).Encrypt([]byte("planted-in-error")),
	}}}})
	failing.Environment = &e
	if _, err := s.Open(t.Context(), job, failing, time.Hour); fault.KindOf(err) != fault.KindInvalid {
		t.Errorf("a failing evaluation: %v", err)
	}
	if got := must.Get(s.OpenedSecrets(t.Context(), job, "job", 2))(t); got.Count != 3 || !slices.Contains(got.Secrets, "planted-in-error") {
		t.Errorf("after a failing evaluation, the runner learns %+v", got)
	}
	if _, err := s.Decrypt(t.Context(), job, e, nil); fault.KindOf(err) != fault.KindForbidden {
		t.Errorf("decryption for a job: %v", err)
	}
	err := open(wire.Values{"huge": {Value: strings.Repeat("0123456789", redact.MaxJobBytes/10), Secret: true}})
	if fault.KindOf(err) != fault.KindInvalid || !strings.Contains(err.Error(), "can be masked") {
		t.Errorf("more than can be masked: %v", err)
	}
	for table, rows := range storetest.Contents(t, s.db) {
		if strings.Contains(strings.Join(rows, "\n"), "planted") {
			t.Errorf("the table %s contains a secret", table)
		}
	}
}

func TestProperty(t *testing.T) {
	v := wire.Value{Value: map[string]wire.Value{"a": {Value: map[string]wire.Value{
		"b.c": {Value: []wire.Value{{Value: "zero"}, {Value: map[string]wire.Value{"d": {Value: "one"}}}}},
	}}}}
	for path, want := range map[string]any{
		`a["b.c"][0]`: "zero", `a["b.c"][1].d`: "one", `a.x`: nil, `a["b.c"][7]`: nil, `a["b.c"][0].d`: nil,
	} {
		if got := must.Get(Property(v, path))(t); got.Value != want {
			t.Errorf("%s is %v, want %v", path, got.Value, want)
		}
	}
	for _, path := range []string{`.a`, `a.`, `a..b`, `a[`, `a[x]`, `a["b]`, `a[-1]`, `a.[0]`} {
		if got, err := Property(v, path); fault.KindOf(err) != fault.KindInvalid {
			t.Errorf("%s is %v (%v)", path, got, err)
		}
	}
}

func FuzzProperty(f *testing.F) {
	f.Add(`a["b"][0].c`)
	f.Fuzz(func(_ *testing.T, path string) { _, _ = Property(wire.Value{}, path) })
}

// TestEnvelope reads and breaks the form of ciphertexts in definitions.
func TestEnvelope(t *testing.T) {
	text := wrap([]byte("ciphertext"))
	if got := must.Get(unwrap(text))(t); string(got) != "ciphertext" {
		t.Errorf("got %q", got)
	}
	for i := range text {
		broken := text[:i] + "x" + text[i+1:]
		if got, err := unwrap(broken); err == nil && broken != text {
			t.Errorf("%s is read as %q", broken, got)
		}
	}
	if _, err := unwrap(""); err == nil {
		t.Error("an empty text is read")
	}
}
