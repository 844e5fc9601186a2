package signin

import (
	"os"
	"strings"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// house is a service with the organization acme, its administrator, and the member ada.
type house struct {
	*Service
	db         *store.DB
	org        store.Organization
	admin, ada store.User
	adaToken   string
}

func newHouse(t *testing.T, db *store.DB) house {
	t.Helper()
	ids := identity.New(db, storetest.Log())
	if err := ids.Bootstrap(t.Context(), "acme", func(string) error { return nil }); err != nil {
		t.Fatal(err)
	}
	h := house{Service: New(db, Options{Log: storetest.Log(), Identity: ids}), db: db}
	var err error
	if h.adaToken, err = ids.CreateUser(t.Context(), identity.NewUser{Login: "ada", Name: "Ada", Org: "acme", Role: identity.RoleMember}); err != nil {
		t.Fatal(err)
	}
	if h.ada, err = ids.UserByLogin(t.Context(), "ada"); err != nil {
		t.Fatal(err)
	}
	if h.admin, err = ids.UserByLogin(t.Context(), identity.AdminLogin); err != nil {
		t.Fatal(err)
	}
	if h.org, err = store.Read(t.Context(), db, func(tx *store.Tx) (store.Organization, error) { return tx.OrganizationByName("acme") }); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h house) open(t *testing.T, u store.User) (string, Session) {
	t.Helper()
	cookie, s, err := h.Open(t.Context(), Proof{User: u, Way: WayToken}, "192.0.2.1", "browser\nof "+strings.Repeat("x", 1000))
	if err != nil {
		t.Fatal(err)
	}
	return cookie, s
}

func (h house) resumes(t *testing.T, cookie string) bool {
	t.Helper()
	_, _, err := h.Resume(t.Context(), cookie, true)
	if err != nil && fault.KindOf(err) != fault.KindUnauthenticated {
		t.Fatal(err)
	}
	return err == nil
}
