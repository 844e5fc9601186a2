package rest

import (
	"errors"
	"net/http"
	"testing"

	"workflowagent/internal/server/vcs"
)

func TestResource(t *testing.T) {
	var got []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Method+" "+r.URL.RequestURI())
		_, _ = w.Write([]byte(`["a","b"]`))
	})
	repo := c.Repository("/repos", "acme/app").Query("v=1")
	pulls := repo.At("pulls", "a/b")
	if err := pulls.Query("x=2&y=3").Get(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if err := pulls.Send(t.Context(), "PUT", nil, nil); err != nil {
		t.Error(err)
	}
	found, err := First(t.Context(), c.At("users"), func(page []string) string { return page[1] })
	if err != nil || found != "b" {
		t.Errorf("found %q, %v", found, err)
	}
	want := []string{"GET /api/repos/acme/app/pulls/a%2Fb?v=1&x=2&y=3", "PUT /api/repos/acme/app/pulls/a%2Fb?v=1", "GET /api/users"}
	for i := range want {
		if i >= len(got) || got[i] != want[i] {
			t.Fatalf("got requests %q, want %q", got, want)
		}
	}
}

// TestForeignResource checks that a name that no repository has causes no request.
func TestForeignResource(t *testing.T) {
	c := serve(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("the forge got %s", r.URL) })
	for _, name := range []string{"", "app", "../app", "a/../b", "a/b?x=1"} {
		repo := c.Repository("/repos", name).At("pulls")
		_, first := First(t.Context(), repo, func([]string) string { return "" })
		for request, err := range map[string]error{
			"get": repo.Get(t.Context(), nil), "send": repo.Send(t.Context(), "POST", nil, nil), "list": first,
			"hook":    EnsureHook(t.Context(), repo, "", func([]string) string { return "" }, "PUT", nil),
			"nowhere": Nowhere(vcs.ErrForeign).At("pulls").Query("x=1").Get(t.Context(), nil),
		} {
			if !errors.Is(err, vcs.ErrForeign) {
				t.Errorf("%s of %q: %v", request, name, err)
			}
		}
	}
}
