package opening

import (
	"strings"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/esc/wire"
	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/store"
)

// TestFolder answers for imports with the definitions of a folder. A closed one reads nothing of the server, whatever the
// evaluator asks.
func TestFolder(t *testing.T) {
	s := newSite(t, storetest.SQLite(t))
	s.add("ann", s.acme, "stored", "planted: 1")
	s.add("ann", s.acme, "both", "planted: 2")
	e := store.Environment{ID: "e", OrgID: s.acme.ID, OrgName: "acme", Project: "app", Name: "root"}
	for _, closed := range []bool{false, true} {
		h := s.hostFor(s.p("ann"), Root{Org: s.acme, Environment: &e, Definition: "a: 1"}, store.ReadEnvironment)
		h.folder = &environments.Folder{Definitions: map[environments.Reference]string{{Project: "app", Name: "both"}: "folder: 1"}, Closed: closed}
		ask := func(name string) string {
			answer, err := h.Environment(t.Context(), wire.EnvironmentAsk{Name: name, Importer: "app/root", Root: true})
			if err != nil {
				t.Fatal(err)
			}
			if answer.Environment == nil {
				return "error"
			}
			return string(answer.Environment.Definition)
		}
		for name, want := range map[string][2]string{
			"app/both": {"folder: 1", "folder: 1"}, "app/both@latest": {"folder: 1", "folder: 1"}, "app/both@2": {"planted: 2", "error"},
			"app/stored": {"planted: 1", "error"}, "app/missing": {"error", "error"},
		} {
			if got := ask(name); closed && got != want[1] || !closed && got != want[0] {
				t.Errorf("%s in a folder that is closed (%v): %q", name, closed, got)
			}
		}
		if (len(h.outside) == 3) != closed {
			t.Errorf("outside of a folder that is closed (%v): %v", closed, h.outside)
		}
		if answer, err := h.Decrypt(t.Context(), wire.DecryptAsk{Environment: "app/both", Ciphertext: []byte("x")}); err != nil || answer.Error == "" {
			t.Errorf("a secret of the folder was decrypted: %+v, %v", answer, err)
		}
		if answer, err := h.Open(t.Context(), wire.OpenAsk{Provider: "pulumi-stacks"}); err != nil || answer.Error == "" {
			t.Errorf("a provider was opened: %+v, %v", answer, err)
		}
	}
	h := s.hostFor(s.p("ann"), Root{Org: s.acme, Environment: &e}, store.ReadEnvironment)
	h.folder = &environments.Folder{Definitions: map[environments.Reference]string{{Project: "app", Name: "a"}: strings.Repeat("x", maxImported+1)}}
	if answer, err := h.Environment(t.Context(), wire.EnvironmentAsk{Name: "app/a", Root: true}); err != nil || answer.Environment != nil {
		t.Errorf("a folder without a limit: %v", err)
	}
}
