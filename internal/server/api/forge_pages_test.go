package api_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
)

// TestPagesOfRepositories lists the pages of a forge's repositories. With a page that the server did not
// issue for the integration, a caller could read anything that the integration's credential may.
func TestPagesOfRepositories(t *testing.T) {
	f := newFixture(t, options{})
	var asked []string
	forge := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RequestURI())
		page := r.URL.Query().Get("page")
		if page == "" {
			w.Header().Set("Link", fmt.Sprintf(`<http://%s/api/v4/projects?page=2>; rel="next"`, r.Host))
			page = "1"
		}
		_, _ = fmt.Fprintf(w, `[{"id":%s,"path_with_namespace":"team/repo%s","http_url_to_repo":"http://%s/team/repo.git"}]`, page, page, r.Host)
	}))
	defer forge.Close()
	add := func(name string) string {
		var made integration
		f.do("POST", integrationsPath+"/gitlab", map[string]any{"name": name, "baseUrl": forge.URL, "accessToken": "token"}).want(http.StatusCreated, &made)
		return integrationsPath + "/gitlab/" + made.ID + "/repos"
	}
	one, other := add("one"), add("other")
	type answer struct {
		Repos         []struct{ ID string }
		NextPageToken string
	}
	var first, foreign, second answer
	f.do("GET", one, nil).want(http.StatusOK, &first)
	f.do("GET", other, nil).want(http.StatusOK, &foreign)
	f.do("GET", one+"?page="+url.QueryEscape(first.NextPageToken), nil).want(http.StatusOK, &second)
	if len(second.Repos) != 1 || second.Repos[0].ID != "team/repo2" || second.NextPageToken != "" {
		t.Errorf("the second page is %+v", second)
	}
	asked = nil
	for _, page := range []string{"/user", "/api/v4/user", forge.URL + "/api/v4/user", foreign.NextPageToken, first.NextPageToken + "A"} {
		f.do("GET", one+"?page="+url.QueryEscape(page), nil).want(http.StatusBadRequest, nil)
	}
	if len(asked) > 0 {
		t.Errorf("the forge got the requests %q", asked)
	}
}
