package gitea

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"workflowagent/internal/server/outbound"
	"workflowagent/internal/server/vcs"
)

// TestRecordedPulls reads what Gitea 1.26.0 answered about two pull requests, without the members that
// the client does not read: the first was made from a branch, the other by a push to refs/for of an
// account that may only read. Its head names the base repository.
func TestRecordedPulls(t *testing.T) {
	recorded, err := os.ReadFile(filepath.Join("testdata", "pulls.json"))
	if err != nil {
		t.Fatal(err)
	}
	var list []json.RawMessage
	if err := json.Unmarshal(recorded, &list); err != nil || len(list) != 2 {
		t.Fatalf("%d pull requests, %v", len(list), err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := recorded
		switch r.URL.Path {
		case "/api/v1/repos/deployer/app/pulls/2":
			body = list[0]
		case "/api/v1/repos/deployer/app/pulls/1":
			body = list[1]
		}
		_, _ = w.Write(body)
	}))
	defer server.Close()
	c, err := Forge{}.Connect(vcs.Connection{Reach: outbound.Reach{Anywhere: true}, BaseURL: server.URL, Credential: vcs.Credential{Password: "token"}})
	if err != nil {
		t.Fatal(err)
	}
	pulls, _ := c.(vcs.Pulls)
	repo := vcs.RepoID{ID: "1", Name: "deployer/app"}
	all, _, err := pulls.Pulls(t.Context(), repo, "")
	if err != nil || len(all) != 2 {
		t.Fatalf("%+v, %v", all, err)
	}
	for _, p := range all {
		one, err := pulls.Pull(t.Context(), repo, p.Number)
		if err != nil || one.Fork != p.Fork || one.Doubt != p.Doubt || one.State != vcs.PullOpen {
			t.Errorf("%+v, %v; in the list %+v", one, err, p)
		}
		want := vcs.Reason("")
		if p.Number == 1 {
			want = vcs.ReasonNoBranch
		}
		if p.Doubt != want || p.Fork != (want != "") {
			t.Errorf("pull request %d by %s from %q: fork %t, doubt %q, want %q", p.Number, p.Author.Name, p.Source, p.Fork, p.Doubt, want)
		}
	}
}
