package stacks_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/stacks/journal"
	"workflowagent/internal/server/stacks/states"
	"workflowagent/internal/server/store"
)

// stackTest is a stack, and a server that manages it.
type stackTest struct {
	t       *testing.T
	db      *store.DB
	service *stacks.Service
	user    identity.Principal
	stack   store.Stack
}

func newStackTest(t *testing.T, db *store.DB) *stackTest {
	t.Helper()
	s := &stackTest{t: t, db: db}
	ids := identity.New(db, storetest.Log())
	var token string
	s.must(ids.Bootstrap(t.Context(), "acme", func(text string) error { token = text; return nil }))
	var err error
	s.user, err = ids.Authenticate(t.Context(), token)
	s.must(err)
	s.service = s.replica(db)
	org, err := ids.Organization(t.Context(), s.user, "acme")
	s.must(err)
	s.stack, err = s.service.Create(t.Context(), s.user, stacks.NewStack{Org: org, Project: "proj", Name: "dev"})
	s.must(err)
	return s
}

// replica returns another server on a database.
func (s *stackTest) replica(db *store.DB) *stacks.Service {
	s.t.Helper()
	secrets, err := keyring.Open(s.t.Context(), db, bytes.Repeat([]byte{7}, 32))
	s.must(err)
	return stacks.New(db, stacks.Options{Log: storetest.Log(), Secrets: secrets})
}

func (s *stackTest) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// start starts an update that sends a journal of the given version, or checkpoints for version 0.
func (s *stackTest) start(kind stacks.Kind, version int64) store.Update {
	s.t.Helper()
	program := stacks.Program{Metadata: stacks.Metadata{Environment: map[string]string{"pulumi.version": "v3.1.2"}}}
	u, err := s.service.CreateUpdate(s.t.Context(), s.user, s.stack, kind, program)
	s.must(err)
	_, err = s.service.Start(s.t.Context(), u, nil, version)
	s.must(err)
	return s.reload(u)
}

func (s *stackTest) reload(u store.Update) store.Update {
	s.t.Helper()
	u, err := s.service.FindUpdate(s.t.Context(), s.stack, u.ID)
	s.must(err)
	return u
}

func (s *stackTest) finish(u store.Update) {
	s.t.Helper()
	s.must(s.service.Complete(s.t.Context(), u, stacks.Succeeded))
}

// record sends journal entries to a server.
func record(t *testing.T, service *stacks.Service, u store.Update, entries ...string) error {
	t.Helper()
	parsed, err := journal.ReadEntries([]byte("[" + strings.Join(entries, ",") + "]"))
	if err != nil {
		return err
	}
	return service.Record(t.Context(), u, parsed)
}

func (s *stackTest) record(u store.Update, entries ...string) {
	s.t.Helper()
	s.must(record(s.t, s.service, u, entries...))
}

func (s *stackTest) refused(want fault.Kind, text string, err error) {
	s.t.Helper()
	if fault.KindOf(err) != want || !strings.Contains(fmt.Sprint(err), text) {
		s.t.Errorf("the error is %v (%q), want %q with %q", err, fault.KindOf(err), want, text)
	}
}

// export returns the exported state of a version, or the current state for version 0.
func (s *stackTest) export(service *stacks.Service, version int64) (string, error) {
	s.t.Helper()
	var stored states.Stored
	var err error
	if version == 0 {
		stored, err = service.Open(s.t.Context(), identity.Principal{}, s.stack)
	} else {
		stored, err = service.OpenVersion(s.t.Context(), identity.Principal{}, s.stack, version)
	}
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	err = stored.Export(&out)
	return out.String(), err
}

func (s *stackTest) exported(version int64) string {
	s.t.Helper()
	text, err := s.export(s.service, version)
	if err != nil {
		s.t.Fatalf("exporting version %d: %v", version, err)
	}
	return text
}

// resources returns the names of the resources in an export, and its pending operations.
func (s *stackTest) resources(export string) string {
	s.t.Helper()
	var doc struct {
		Deployment struct {
			Manifest  struct{ Version string }
			Resources []struct {
				URN     string
				Outputs map[string]any
			}
			Pending []struct {
				Resource struct{ URN string }
				Type     string
			} `json:"pending_operations"`
		}
	}
	if err := json.Unmarshal([]byte(export), &doc); err != nil {
		s.t.Fatalf("decoding the export %q: %v", export, err)
	}
	name := func(urn string) string { return urn[strings.LastIndex(urn, ":")+1:] }
	var out []string
	for _, r := range doc.Deployment.Resources {
		text := name(r.URN)
		if v, ok := r.Outputs["v"]; ok {
			text += fmt.Sprint("=", v)
		}
		out = append(out, text)
	}
	for _, p := range doc.Deployment.Pending {
		out = append(out, p.Type+" "+name(p.Resource.URN))
	}
	return strings.Join(out, " ")
}

func (s *stackTest) shows(version int64, want string) {
	s.t.Helper()
	if got := s.resources(s.exported(version)); got != want {
		s.t.Errorf("version %d has the resources %q, want %q", version, got, want)
	}
}

func resource(name string) string {
	name, value, _ := strings.Cut(name, "=")
	return `{"urn":"urn:pulumi:dev::proj::a:b:C::` + name + `","type":"a:b:C","outputs":{"v":"` + value + `"}}`
}

func entry(kind journal.Kind, sequence, operation int64, members string) string {
	if members != "" {
		members = "," + members
	}
	return fmt.Sprintf(`{"version":1,"kind":%d,"sequenceID":%d,"operationID":%d%s}`, kind, sequence, operation, members)
}

func begins(sequence, operation int64, name string) string {
	return entry(journal.Begin, sequence, operation, `"operation":{"resource":`+resource(name)+`,"type":"creating"}`)
}

// creates returns the entry for the success of an operation that creates a resource.
func creates(sequence, operation int64, name string) string {
	return entry(journal.Success, sequence, operation, `"state":`+resource(name))
}

// replaces returns the entry for the success of an operation that replaces a resource of the base.
func replaces(sequence, operation, old int64, name string) string {
	return entry(journal.Success, sequence, operation, fmt.Sprintf(`"removeOld":%d,"state":%s`, old, resource(name)))
}

// stored returns the row of the stack's current state, and the number of its stored batches.
func (s *stackTest) stored() (store.State, int64) {
	s.t.Helper()
	var row store.State
	var batches int64
	s.must(s.db.Read(s.t.Context(), func(tx *store.Tx) error {
		st, err := tx.Stack(s.stack.ID)
		if err != nil {
			return err
		}
		if row, err = tx.State(st.StateBlob); err != nil {
			return err
		}
		batches, err = tx.LastBatch(st.StateBlob)
		return err
	}))
	return row, batches
}

func (s *stackTest) importState(names ...string) {
	s.t.Helper()
	var list []string
	for _, name := range names {
		list = append(list, resource(name))
	}
	state, err := states.Parse([]byte(`{"version":3,"deployment":{"resources":[`+strings.Join(list, ",")+`]}}`), nil)
	s.must(err)
	_, err = s.service.Import(s.t.Context(), s.user, s.stack, state)
	s.must(err)
}

func (s *stackTest) fold() {
	s.t.Helper()
	s.must(s.service.FoldFinished(s.t.Context()))
}
