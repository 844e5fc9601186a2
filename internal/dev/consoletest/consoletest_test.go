package consoletest

import (
	"net/http"
	"testing"
)

func TestServer(t *testing.T) {
	s := New(t)
	if p := s.Browser().Get("/user/settings"); p.Status != http.StatusSeeOther {
		t.Errorf("a visitor who is not signed in: status %d, want a redirect", p.Status)
	}
	if p := s.SignIn().Get("/user/settings"); p.Status != http.StatusOK || !p.Contains(AgentText) {
		t.Errorf("the settings of the administrator: status %d: %s", p.Status, p.Body)
	}
	if p := s.SignInWith(s.AddUser("ada", "member")).Get("/user/settings"); p.Status != http.StatusOK || !p.Contains("ada") {
		t.Errorf("the settings of a member: status %d: %s", p.Status, p.Body)
	}
	var user struct {
		Login string `json:"githubLogin"`
	}
	if s.API(http.MethodGet, "/api/user", nil, &user); user.Login == "" {
		t.Error("the API did not return the user")
	}
}
