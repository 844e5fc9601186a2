package server

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/config"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// TestNetworksOfOutgoingCalls gives this machine's address to everything that the server calls for an
// organization.
func TestNetworksOfOutgoingCalls(t *testing.T) {
	target := httptest.NewServer(http.NotFoundHandler())
	defer target.Close()
	for _, setting := range []string{"", "outbound_networks", "webhook_networks"} {
		dir := t.TempDir()
		c := testConfig(t, dir)
		if setting != "" {
			var err error
			if c, err = config.Load(config.LoadOptions{Flags: map[string]string{"listen": c.Listen, "data_dir": dir, "organization": "acme", setting: "127.0.0.0/8"}, Cwd: dir}); err != nil {
				t.Fatal(err)
			}
		}
		s, err := New(t.Context(), c, "v1", storetest.Log(), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		stop := run(t, s)
		token, err := os.ReadFile(filepath.Join(dir, "admin-token"))
		if err != nil {
			t.Fatal(err)
		}
		for path, body := range map[string]string{
			"/api/orgs/acme/oidc/issuers":                      `{"name": "x", "url": "%s"}`,
			"/api/orgs/acme/hooks":                             `{"name": "x", "displayName": "x", "payloadUrl": "%s", "active": false}`,
			"/api/console/orgs/acme/integrations/custom":       `{"name": "x", "baseUrl": "%s"}`,
			"/api/console/orgs/acme/integrations/gitlab":       `{"name": "x", "owner": "x", "accessToken": "x", "baseUrl": "%s"}`,
			"/api/console/orgs/acme/integrations/azure-devops": `{"name": "x", "organizationName": "x", "projectId": "x", "accessToken": "x", "baseUrl": "%s"}`,
		} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL()+path, strings.NewReader(fmt.Sprintf(body, target.URL)))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "token "+strings.TrimSpace(string(token)))
			req.Header.Set("Content-Type", "application/json")
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(res.Body)
			res.Body.Close()
			if refused := bytes.Contains(text, []byte("is not in the server's setting outbound_networks")); refused != (setting == "") {
				t.Errorf("%q: %s responded %s %s", setting, path, res.Status, text)
			}
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
}

// TestOlderHostsAreListed starts a server with an integration and an issuer that are older than the rule
// for outgoing calls, and with others.
func TestOlderHostsAreListed(t *testing.T) {
	dir := t.TempDir()
	logger, logged := logtest.NewNullLogger()
	start := func() *Server {
		s, err := New(t.Context(), testConfig(t, dir), "v1", logrus.NewEntry(logger), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := start()
	err := s.db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		orgs, err := tx.Organizations()
		if err != nil {
			return err
		}
		for i, kept := range []bool{true, false} {
			id, address := fmt.Sprint(i), fmt.Sprintf("https://10.1.2.%d", i)
			integration := store.VCSIntegration{ID: "v" + id, OrgID: orgs[0].ID, Provider: "gitlab", Name: id, BaseURL: address, Options: "{}", KeepsHost: kept}
			if err := tx.InsertIntegration(integration); err != nil {
				return err
			}
			if err := tx.InsertOIDCIssuer(store.OIDCIssuer{ID: "i" + id, OrgID: orgs[0].ID, URL: address, Issuer: address, KeepsHost: kept}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	s.closeAll()
	logged.Reset()
	start().closeAll()
	var got []string
	for _, e := range logged.AllEntries() {
		if strings.Contains(e.Message, "outbound_networks") {
			got = append(got, fmt.Sprint(e.Level, " ", e.Data["integration"], e.Data["issuer"], " ", e.Data["url"]))
		}
	}
	want := []string{"warning v0<nil> https://10.1.2.0", "warning <nil>i0 https://10.1.2.0"}
	if !slices.Equal(got, want) {
		t.Errorf("the server logged %q, want %q", got, want)
	}
}
