package api_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/database"
)

// begin sends a request except for the end of its body, which the returned function sends. The body is padded to size
// bytes.
func (f *fixture) begin(c call, size int) (end func() answer) {
	f.t.Helper()
	conn := must.Get((&net.Dialer{}).DialContext(f.t.Context(), "tcp", f.server.Listener.Addr().String()))(f.t)
	f.t.Cleanup(func() { _ = conn.Close() })
	must.OK(f.t, conn.SetDeadline(time.Now().Add(time.Minute)))
	body := string(must.Get(json.Marshal(c.Body))(f.t))
	body = strings.Repeat(" ", max(0, size-len(body))) + body
	_, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: server\r\nAuthorization: %s\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s",
		c.Method, c.Path, c.Auth, len(body), body[:len(body)-1])
	must.OK(f.t, err)
	return func() answer {
		f.t.Helper()
		_, _ = io.WriteString(conn, body[len(body)-1:])
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil { // the server has refused the beginning of a large body, and has closed the connection
			return answer{t: f.t, call: c.Method + " " + c.Path, Status: http.StatusUnauthorized}
		}
		defer res.Body.Close()
		return answer{t: f.t, call: c.Method + " " + c.Path, Status: res.StatusCode, Header: res.Header, Body: must.Get(io.ReadAll(res.Body))(f.t)}
	}
}

// access returns who and what has access to organizations, and their number.
func (f *fixture) access() string {
	f.t.Helper()
	rows, err := store.Read(f.t.Context(), f.db, func(tx *store.Tx) ([]string, error) {
		return database.Scalars[string](tx.Tx, `SELECT 'member ' || user_id || org_id || role FROM members
			UNION ALL SELECT 'token ' || id FROM tokens UNION ALL SELECT 'pool ' || id FROM agent_pools
			UNION ALL SELECT 'organization ' || name || storage_quota FROM organizations
			UNION ALL SELECT 'stack ' || name || version FROM stacks UNION ALL SELECT 'tag ' || name FROM stack_tags
			UNION ALL SELECT 'disabled ' || id FROM users WHERE disabled_at > 0 ORDER BY 1`)
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return strings.Join(rows, "\n")
}

// TestSlowBodies takes rights away from callers whose requests have begun.
func TestSlowBodies(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		dev := l.stack("dev")
		l.newOrganization("rival")
		mal, dis, col, eve := l.person("mal", "acme", "admin"), l.person("dis", "acme", "admin"), l.person("col", "acme", "stack-collaborator"), l.person("eve", "rival", "admin")
		site := "token " + must.Get(l.identity.CreateUser(t.Context(), identity.NewUser{Login: "site", SiteAdmin: true}))(t)
		l.person("ann", "acme", "member")
		l.do("PUT", dev+"/collaborators/col", map[string]any{"permission": 103}).want(204, nil)
		state := map[string]any{"version": 3, "deployment": map[string]any{"resources": []any{}}}
		var ends []func() answer
		for _, size := range []int{0, 20_000} {
			for _, c := range []call{
				{Method: "POST", Path: "/api/orgs/acme/members/mal", Body: map[string]any{"role": "admin"}, Auth: mal},
				{Method: "PATCH", Path: "/api/orgs/acme/members/ann", Body: map[string]any{"role": "admin"}, Auth: mal},
				{Method: "POST", Path: "/api/orgs/acme/tokens", Body: map[string]any{"name": "late", "admin": true}, Auth: mal},
				{Method: "POST", Path: "/api/orgs/acme/agent-pools", Body: map[string]any{"name": "late"}, Auth: mal},
				{Method: "POST", Path: "/api/orgs/acme/rename", Body: map[string]any{"newName": "late"}, Auth: mal},
				{Method: "POST", Path: "/api/stacks/acme/proj", Body: map[string]any{"stackName": "late"}, Auth: mal},
				{Method: "POST", Path: dev + "/tags", Body: map[string]any{"name": "late", "value": "x"}, Auth: col},
				{Method: "POST", Path: dev + "/import", Body: state, Auth: col},
				{Method: "POST", Path: "/api/orgs/acme/tokens", Body: map[string]any{"name": "late", "admin": true}, Auth: dis},
				{Method: "POST", Path: "/api/user/tokens", Body: map[string]any{"description": "late"}, Auth: dis},
				{Method: "POST", Path: "/api/orgs", Body: map[string]any{"name": "late", "admin": "ann"}, Auth: site},
				{Method: "POST", Path: "/api/server/users/ann/disable", Body: map[string]any{}, Auth: site},
				{Method: "PATCH", Path: "/api/organizations/acme/quota", Body: map[string]any{"storageQuota": 1}, Auth: site},
				{Method: "POST", Path: "/api/orgs/rival/rename", Body: map[string]any{"newName": "late"}, Auth: eve},
				{Method: "POST", Path: "/api/orgs/rival/tokens", Body: map[string]any{"name": "late", "admin": true}, Auth: eve},
			} {
				ends = append(ends, l.begin(c, size))
			}
		}

		l.do("DELETE", "/api/orgs/acme/members/mal", nil).want(204, nil)
		l.do("DELETE", dev+"/collaborators/col", nil).want(204, nil)
		for _, login := range []string{"dis", "site"} {
			must.Get(l.identity.DisableUser(t.Context(), identity.Operator(), login, ""))(t)
		}
		l.do("DELETE", "/api/orgs/rival", map[string]any{"name": "rival"}).want(204, nil)
		must.Get(l.identity.CreateWithRetiredName(t.Context(), "rival", "ann"))(t)
		before := l.access()
		for _, end := range ends {
			if a := end(); !slices.Contains([]int{401, 403, 404, 409}, a.Status) {
				t.Errorf("%s: status %d, body %s", a.call, a.Status, a.Body)
			}
		}
		if after := l.access(); after != before {
			t.Errorf("the organizations, members, tokens, pools, stacks and tags are %s, and were %s", after, before)
		}
	})
}
