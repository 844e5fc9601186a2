package api_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/invitations"
)

// TestInvitations makes, lists and revokes invitations.
func TestInvitations(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		const path = "/api/orgs/acme/invites"
		var made struct{ ID, AcceptInviteURL string }
		l.do("POST", path+"/link", map[string]any{"email": "bob@example.com", "role": "billing-manager", "lifetimeSeconds": 3600}).want(200, &made)
		link := must.Get(url.Parse(made.AcceptInviteURL))(t)
		secret := link.Query().Get("key")
		if link.Path != "/-/invitation" || !strings.HasPrefix(secret, "pul-") {
			t.Errorf("made %+v", made)
		}
		var list struct {
			Invites []struct {
				ID, AcceptInviteURL, Email, Role, Status string
				SentAt, ExpiresAt                        int64
				SentBy                                   struct{ GithubLogin string }
			}
		}
		a := l.do("GET", path, nil).want(200, &list)
		if len(list.Invites) != 1 || strings.Contains(string(a.Body), secret) {
			t.Fatalf("the invitations are %s", a.Body)
		}
		if i := list.Invites[0]; i.ID != made.ID || i.Email != "bob@example.com" || i.Role != "billing-manager" || i.Status != "pending" || i.SentBy.GithubLogin != "admin" || i.ExpiresAt-i.SentAt != 3600 {
			t.Errorf("the invitation is %+v", i)
		}
		l.do("DELETE", path+"/"+made.ID, nil).want(204, nil)
		l.do("DELETE", path+"/"+made.ID, nil).want(404, nil)
		for text, body := range map[string]map[string]any{
			"the role": {"role": "king"}, "the role ": {}, "must expire": {"role": "member", "lifetimeSeconds": -1},
			"within 30 d": {"role": "member", "lifetimeSeconds": 31 * 24 * 3600}, "must expire in": {"role": "member", "lifetimeSeconds": int64(1) << 62}, "the future": {"role": "member", "lifetimeSeconds": int64(-1) << 62},
		} {
			l.do("POST", path+"/link", body).want(400, nil).says(strings.TrimSpace(text))
		}
		// Members neither invite nor see invitations, also not with a higher role than theirs.
		ann := l.person("ann", "acme", "member")
		for _, c := range []call{{Method: "GET", Path: path}, {Method: "POST", Path: path + "/link", Body: map[string]any{"role": "admin"}}, {Method: "DELETE", Path: path + "/x"}} {
			c.Auth = ann
			l.send(c).want(403, nil)
		}
		for _, absent := range []string{"/invites/batch", "/invites/unverified/batch", "/invites/x/resend"} {
			l.do("POST", "/api/orgs/acme"+absent, map[string]any{}).want(404, nil).says("make a link")
		}
	})
}

// TestInvitationsOfTokens makes an invitation with a token of the organization, which is revoked then.
func TestInvitationsOfTokens(t *testing.T) {
	l := newLab(t, storetest.SQLite(t), deployments.Options{})
	var robot struct{ ID, TokenValue string }
	l.do("POST", "/api/orgs/acme/tokens", map[string]any{"name": "robot", "admin": true, "expires": time.Now().Add(time.Hour).Unix()}).want(200, &robot)
	var made struct{ AcceptInviteURL string }
	l.send(call{Method: "POST", Path: "/api/orgs/acme/invites/link", Body: map[string]any{"role": identity.RoleMember}, Auth: "token " + robot.TokenValue}).want(200, &made)
	secret := must.Get(url.Parse(made.AcceptInviteURL))(t).Query().Get("key")
	invited := invitations.New(l.db, storetest.Log())
	must.Get(invited.Find(t.Context(), secret))(t)
	l.do("DELETE", "/api/orgs/acme/tokens/"+robot.ID, nil).want(204, nil)
	if _, err := invited.Find(t.Context(), secret); err == nil {
		t.Error("the link works after its maker's token was revoked")
	}
}
