package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"runtime/metrics"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// fuzzTimeEnv is the environment variable with the duration of TestOddRequests. Each round has a
// new seed.
const fuzzTimeEnv = "WORKFLOW_FUZZ_TIME"

const (
	// perRoute is the number of requests per route and round.
	perRoute = 3
	// slowest bounds the duration of a request that is not a long poll.
	slowest = 20 * time.Second
	// mostMemory bounds the size of the heap while the server handles one request at a time.
	mostMemory = 512 << 20
)

// TestOddRequests sends requests that real clients and forges have sent, and every route requests that no
// real client would send, with every kind of credential. The server must respond to each request without an unexpected 5xx status, within time
// and memory bounds, and must not change another organization. A failure prints the seed and the
// request.
func TestOddRequests(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		long, err := time.ParseDuration(os.Getenv(fuzzTimeEnv))
		if os.Getenv(fuzzTimeEnv) != "" && err != nil {
			t.Fatalf("%s: %v", fuzzTimeEnv, err)
		}
		releases := t.TempDir()
		if err := os.WriteFile(filepath.Join(releases, "file"), make([]byte, 1000), 0o600); err != nil {
			t.Fatal(err)
		}
		// The long lease prevents the server from requeuing claimed jobs on slow machines.
		l := newLabWith(t, db, options{deployments: deployments.Options{Lease: time.Hour}, releases: releases})
		end := time.Now().Add(long)
		for seed := uint64(1); ; seed++ {
			if long > 0 {
				t.Logf("seed %d", seed)
			}
			o := &fuzzer{Rand: rand.New(rand.NewPCG(seed, 16)), lab: l, seed: seed, ours: l.newTenant("org", seed), theirs: l.newTenant("rival", seed)}
			before := l.visibleTo(o.theirs)
			o.sow()
			o.round()
			if after := l.visibleTo(o.theirs); after != before {
				t.Errorf("seed %d: another organization was changed:\n%s\nis now\n%s", seed, before, after)
			}
			if t.Failed() || !time.Now().Before(end) {
				return
			}
		}
	})
}

func (l *lab) newTenant(name string, seed uint64) tenant {
	l.t.Helper()
	name = fmt.Sprintf("%s%d", name, seed)
	return l.tenant(name, l.newOrganization(name))
}

// newOrganization creates an organization, and returns the Authorization header of its
// administrator.
func (l *lab) newOrganization(name string) string {
	l.t.Helper()
	now := time.Now()
	org := store.Organization{ID: identity.NewID(), Name: name, CreatedAt: now}
	user := store.User{ID: identity.NewID(), Login: name + "-admin", CreatedAt: now}
	err := l.db.Write(l.t.Context(), scope.Server(), func(tx *store.Tx) error {
		if err := tx.InsertOrganization(org); err != nil {
			return err
		}
		if err := tx.InsertUser(user); err != nil {
			return err
		}
		return tx.InsertMember(store.Member{OrgID: org.ID, UserID: user.ID, Role: identity.RoleAdmin, CreatedAt: now})
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return "token " + l.issue(store.Token{Kind: store.PersonalToken, UserID: user.ID})
}

func (l *lab) visibleTo(n tenant) string {
	l.t.Helper()
	org := "/api/orgs/" + n.names["org"]
	stack := "/api/stacks/" + n.names["org"] + "/proj/dev"
	var out strings.Builder
	for _, path := range []string{
		stack, stack + "/export", stack + "/updates", stack + "/update/" + n.names["updateID"] + "/events", stack + "/deployments/settings",
		stack + "/deployments/" + n.names["deploymentID"], org + "/deployments", org + "/tokens", org + "/members", org + "/deployments/metadata",
		org + "/oidc/issuers", org + "/auth/policies/oidcissuers/" + n.names["issuerID"], "/api/user/stacks",
	} {
		a := l.send(call{Method: "GET", Path: path, Auth: n.auth["administrator"]})
		fmt.Fprintf(&out, "%s %d %s\n", path, a.Status, a.Body)
	}
	var pool map[string]any
	l.send(call{Method: "GET", Path: org + "/agent-pools/" + n.names["poolID"], Auth: n.auth["administrator"]}).want(200, &pool)
	fmt.Fprintln(&out, pool["name"], pool["description"])
	return out.String()
}

type fuzzer struct {
	*rand.Rand
	lab          *lab
	seed         uint64
	ours, theirs tenant
}

// round sends requests to each route. Routes that delete objects come last.
func (o *fuzzer) round() {
	t := o.lab.t
	routes, ok := o.lab.server.Config.Handler.(chi.Routes)
	if !ok {
		t.Fatalf("the handler is a %T", o.lab.server.Config.Handler)
	}
	type target struct{ method, route string }
	var first, last []target
	err := chi.Walk(routes, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		ends := method == http.MethodDelete || slices.ContainsFunc([]string{"/complete", "/cancel", "/rename", "/result", "/status"}, func(s string) bool { return strings.HasSuffix(route, s) })
		if ends {
			last = append(last, target{method, route})
		} else {
			first = append(first, target{method, route})
		}
		return nil
	})
	if err != nil || len(first)+len(last) < 100 {
		t.Fatalf("there are %d routes, %v", len(first)+len(last), err)
	}
	for _, r := range append(first, last...) {
		for range perRoute {
			o.try(r.method, r.route)
			if t.Failed() && t.Context().Err() != nil {
				return
			}
		}
	}
}

func one[T any](o *fuzzer, of ...T) T { return of[o.IntN(len(of))] }

func (o *fuzzer) chance(n int) bool { return o.IntN(n) == 0 }

func (o *fuzzer) try(method, route string) {
	if o.chance(20) {
		method = one(o, "HEAD", "OPTIONS", "TRACE", "BREW", "PROPFIND", "GET", "PUT", "PATCH", "POST")
	}
	path := o.path(route)
	body, header := o.body(route)
	var reader io.Reader = bytes.NewReader(body)
	if o.chance(6) {
		reader = struct{ io.Reader }{reader} // chunked
	}
	names := []string{"administrator", "administrator", "agent", "runner", "deployment", "update", "update as a token", "administrator's, of the update"}
	switch who := o.IntN(2*len(names) + 4); {
	case who < len(names):
		header.Set("Authorization", o.ours.auth[names[who]])
	case who == len(names):
		header.Set("Authorization", one(o, "token pul-0", "Basic eA==", "token \xff", "update-token x", "token "+strings.Repeat("a", 9000)))
	case who == len(names)+1:
	default:
		header.Set("Authorization", o.fitting(route))
	}
	o.send(method, path, reader, body, header, 0)
}

// send sends a request, and checks the response. want is its status, or 0 for any without an error of
// the server.
func (o *fuzzer) send(method, path string, reader io.Reader, body []byte, header http.Header, want int) {
	t := o.lab.t
	ctx, cancel := context.WithTimeout(t.Context(), slowest)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, o.lab.server.URL+path, reader)
	if err != nil {
		return // no client can send this request
	}
	req.Header = header
	sent := func() string {
		return fmt.Sprintf("seed %d: %s %.300q as %.30q with %.60v and a body of %d bytes %.200q", o.seed, method, path, header.Get("Authorization"), header, len(body), body)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "write") {
			t.Errorf("%s: %v", sent(), err) // a response before the end of the body closes the connection
		}
		return
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Errorf("%s: reading the response: %v", sent(), err)
	}
	if want != 0 && res.StatusCode != want {
		t.Errorf("%s: status %d, want %d, body %.300s", sent(), res.StatusCode, want, data)
	}
	deliberate := res.StatusCode == http.StatusServiceUnavailable && res.Header.Get("Retry-After") != ""
	if res.StatusCode >= 500 && !deliberate {
		t.Errorf("%s: status %d, body %.300s", sent(), res.StatusCode, data)
	}
	if res.Header.Get("Content-Encoding") == "" && strings.HasPrefix(res.Header.Get("Content-Type"), "application/json") && method != http.MethodHead && !json.Valid(data) {
		t.Errorf("%s: status %d, and the body is not JSON: %.300s", sent(), res.StatusCode, data)
	}
	if used := heap(); used > mostMemory {
		t.Errorf("%s: afterwards the server uses %d MiB", sent(), used>>20)
	}
}

// heap returns the size of the heap in bytes, including garbage.
func heap() uint64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

func (o *fuzzer) fitting(route string) string { return authorizations(o.ours, route)[1] }

var oddSegments = []string{
	"%00", "%00", "%ff", "%ff", "a%2fb", "..%2f..", "%2e%2e", "-1", "0", "1e400", "99999999999999999999", "9223372036854775807", "%F0%9F%98%80", "%20", "%25", "%0d%0a",
	"{org}", "'%3b--", "%22", "latest", "null", "none", "#", strings.Repeat("a", 3000), strings.Repeat("%e2%82%ac", 1000),
}

func (o *fuzzer) path(route string) string {
	spoiled := o.IntN(12) // the index of the invalid parameter, often none
	path := pathParameter.ReplaceAllStringFunc(route, func(p string) string {
		name := strings.Trim(p, "{}")
		spoiled--
		switch {
		case spoiled != -1:
			return o.ours.names[name]
		case o.chance(3):
			return o.theirs.names[name]
		default:
			return one(o, oddSegments...)
		}
	})
	path = strings.ReplaceAll(path, "*", one(o, "file", ".", "..", "a/../b", one(o, oddSegments...)))
	if o.chance(3) {
		return path
	}
	values := []string{"", "0", "1", "-1", "true", "x", "1e400", "%00", "%ff", "%zz", "9223372036854775807", "99999999999999999999", "bmlj", "AAAA", "%2f", "1.1048576.9223372036854775807.3.", "1.1.7.0.1-2-3", "9.0.0.0.", strings.Repeat("z", 4000)}
	var query []string
	if strings.HasSuffix(route, "/logs") {
		query = append(query, "wait=0")
	}
	for range o.IntN(4) {
		name := one(o, "page", "pageSize", "continuationToken", "maxResults", "tagName", "tagValue", "project", "organization", "sort", "asc", "force",
			"offset", "count", "job", "step", "type", "output-type", "forceDestroy", "x", "%00", "%ff")
		query = append(query, name+"="+one(o, values...))
	}
	if strings.HasSuffix(route, "/log") && o.chance(2) {
		query = append(query, "offset=0")
	}
	return path + "?" + strings.Join(query, "&")
}
