package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/server/outbound"
	"workflowagent/internal/server/vcs"
)

func serve(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	peer, err := outbound.NewPeer(s.URL, "", outbound.Reach{Anywhere: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(peer.Close)
	return &Client{Peer: peer, Base: s.URL + "/api", Header: func(context.Context) (map[string]string, error) {
		return map[string]string{"Authorization": "token secret"}, nil
	}}
}

func TestGetRetries(t *testing.T) {
	for status, want := range map[int]int{200: 1, 304: 1, 400: 1, 404: 1, 429: 1, 500: 3, 501: 1, 503: 3} {
		calls := 0
		c := serve(t, func(w http.ResponseWriter, r *http.Request) {
			calls++
			if r.Header.Get("Authorization") != "token secret" || r.URL.Path != "/api/x" {
				t.Errorf("%s with %v", r.URL, r.Header)
			}
			w.WriteHeader(status)
			io.WriteString(w, "{}")
		})
		var into struct{}
		_, err := c.Get(t.Context(), "/x", &into)
		if calls != want || (err == nil) != (status < 400) {
			t.Errorf("status %d: %d calls, %v", status, calls, err)
		}
	}
}

func TestSendDoesNotRetry(t *testing.T) {
	calls := 0
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) { calls++; w.WriteHeader(http.StatusBadGateway) })
	if _, err := c.Send(t.Context(), "POST", "/x", nil, nil); !IsStatus(err, 502) || calls != 1 {
		t.Errorf("%d calls, %v", calls, err)
	}
}

// TestRenamedChange checks that a change follows the redirect of a renamed repository, with its
// method and body, but to no other origin.
func TestRenamedChange(t *testing.T) {
	stranger := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the request left the origin") }))
	defer stranger.Close()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api/old":
			http.Redirect(w, r, "/api/new", http.StatusMovedPermanently)
		case "/api/away":
			http.Redirect(w, r, stranger.URL, http.StatusMovedPermanently)
		default:
			body, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, `{"got":%q}`, r.Method+string(body))
		}
	})
	var into struct{ Got string }
	if _, err := c.Send(t.Context(), "PATCH", "/old", map[string]int{"a": 1}, &into); err != nil || into.Got != `PATCH{"a":1}` {
		t.Errorf("%+v, %v", into, err)
	}
	if _, err := c.Send(t.Context(), "PATCH", "/away", nil, nil); err == nil {
		t.Error("a redirect to another origin succeeded")
	}
}

// TestPagesUnderAnotherAddress checks that lists are read to their end if the forge names the next
// page by an address for users, and that the credential stays on the integration's own address.
func TestPagesUnderAnotherAddress(t *testing.T) {
	stranger := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the request left the origin") }))
	defer stranger.Close()
	for _, users := range []string{stranger.URL + "/api/list", stranger.URL + "/sub/api/list", "https://git.example.com/api/list"} {
		c := serve(t, func(w http.ResponseWriter, r *http.Request) {
			page := r.URL.Query().Get("page")
			if r.URL.Path != "/api/list" || r.URL.Query().Get("limit") != "1" {
				t.Errorf("the forge got %s", r.URL)
			}
			if page != "3" {
				n, _ := strconv.Atoi(page)
				w.Header().Set("Link", fmt.Sprintf(`<%s?limit=1&page=%d>; rel="next",<%s?limit=1&page=3>; rel="last"`, users, max(n, 1)+1, users))
			}
			fmt.Fprintf(w, `["%s"]`, page)
		})
		var got []string
		err := Pages(t.Context(), c, "/list?limit=1", func(page []string) (bool, error) {
			got = append(got, page...)
			return true, nil
		})
		if err != nil || strings.Join(got, ",") != ",2,3" {
			t.Errorf("with pages at %s: %q, %v", users, got, err)
		}
	}
}

func TestStatusError(t *testing.T) {
	now := time.Now()
	in := func(d time.Duration) string { return strconv.FormatInt(now.Add(d).Unix(), 10) }
	for name, tt := range map[string]struct {
		status int
		header map[string][]string
		want   error
		pause  time.Duration // for a limit
	}{
		"success":              {204, nil, nil, 0},
		"unauthorized":         {401, nil, vcs.ErrRefused, 0},
		"forbidden":            {403, nil, vcs.ErrRefused, 0},
		"missing":              {404, nil, vcs.ErrNotFound, 0},
		"gone":                 {410, nil, vcs.ErrNotFound, 0},
		"gone for ever":        {410, nil, vcs.ErrGone, 0},
		"blocked by law":       {451, nil, vcs.ErrGone, 0},
		"rejected":             {422, nil, vcs.ErrRejected, 0},
		"primary limit":        {403, map[string][]string{"X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {in(20 * time.Minute)}}, nil, 20 * time.Minute},
		"secondary limit":      {403, map[string][]string{"Retry-After": {"90"}}, nil, 90 * time.Second},
		"limit without time":   {429, nil, nil, fallbackLimit},
		"GitLab's limit":       {429, map[string][]string{"Ratelimit-Reset": {in(5 * time.Minute)}}, nil, 5 * time.Minute},
		"limit of a week":      {429, map[string][]string{"Retry-After": {"604800"}}, nil, time.Hour},
		"a date far away":      {429, map[string][]string{"X-Ratelimit-Reset": {"99999999999999"}}, nil, time.Hour},
		"nonsense":             {429, map[string][]string{"Retry-After": {"soon"}, "X-Ratelimit-Reset": {"-1"}}, nil, fallbackLimit},
		"a refusal with quota": {403, map[string][]string{"X-Ratelimit-Remaining": {"17"}}, vcs.ErrRefused, 0},
	} {
		err := StatusError(outbound.Answer{Status: tt.status, Header: tt.header})
		limited, isLimit := errors.AsType[*vcs.RateLimited](err)
		switch {
		case tt.pause > 0:
			if !isLimit || time.Until(limited.Until) > tt.pause+time.Second || time.Until(limited.Until) < tt.pause-3*time.Second {
				t.Errorf("%s: %v, want a limit for %s", name, err, tt.pause)
			}
		case isLimit, !errors.Is(err, tt.want), tt.status < 300 && err != nil:
			t.Errorf("%s: %v", name, err)
		}
	}
	for body, want := range map[string]string{
		`{"message":"no\u001b[2J right"}`: `"no\x1b[2J right"`, `{"error":{"message":"bad"}}`: `"bad"`, `{"error":"worse"}`: `"worse"`,
		`{"message":{"base":["x"]}}`: `"{\"base\":[\"x\"]}"`, "<html>": "(status 400)", `{"message":null}`: "(status 400)", `{"message":"` + strings.Repeat("x", 5000) + `"}`: "xx…\"",
	} {
		if err := StatusError(outbound.Answer{Status: 400, Body: []byte(body)}); !strings.HasSuffix(err.Error(), want) || len(err.Error()) > 300 {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestPages(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		page, _ := strconv.Atoi(r.URL.Query().Get("page"))
		w.Header().Set("Link", fmt.Sprintf(`<http://%s/api/x>; rel="first", <http://%s/api/x?page=%d>; rel="next"`, r.Host, r.Host, page+1))
		json.NewEncoder(w).Encode([]int{page})
	})
	var got []int
	err := Pages(t.Context(), c, "/x", func(page []int) (bool, error) {
		got = append(got, page...)
		return len(got) < 3, nil
	})
	if err != nil || len(got) != 3 || got[2] != 2 {
		t.Errorf("%v, %v", got, err)
	}
	err = Pages(t.Context(), c, "/x", func([]int) (bool, error) { return true, nil })
	if !errors.Is(err, ErrManyPages) {
		t.Errorf("an endless list: %v", err)
	}
}

func TestNames(t *testing.T) {
	for name, ok := range map[string]bool{
		"a/b": true, "group/sub group/b.c": true, "a": false, "": false, "a/": false, "/a": false, "a/../b": false, "a/b?x": false, "a/b%2e": false, "a/b#": false, "a/b\n": false,
	} {
		if err := CheckName(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
	if got := Path("a b", "x/y"); got != "/a%20b/x%2Fy" {
		t.Errorf("path %s", got)
	}
}

type thread struct {
	comments map[string]string
	found    string
}

func (th *thread) Create(_ context.Context, body string) (string, error) {
	th.comments["new"] = body
	return "new", nil
}

func (th *thread) Replace(_ context.Context, id, body string) error {
	if _, ok := th.comments[id]; !ok {
		return vcs.ErrNotFound
	}
	th.comments[id] = body
	return nil
}

func (th *thread) Find(context.Context, string) (string, error) { return th.found, nil }

func TestUpsert(t *testing.T) {
	for name, tt := range map[string]struct {
		id, found, want string
	}{
		"first":               {"", "", "new"},
		"known":               {"a", "b", "a"},
		"deleted":             {"gone", "", "new"},
		"deleted, but marked": {"gone", "b", "b"},
		"forgotten":           {"", "b", "b"},
	} {
		th := &thread{comments: map[string]string{"a": "", "b": ""}, found: tt.found}
		id, err := Upsert(t.Context(), th, 1, vcs.Comment{ID: tt.id, Body: "text"})
		if err != nil || id != tt.want || th.comments[id] != "text" {
			t.Errorf("%s: %q, %v", name, id, err)
		}
	}
}

func TestUpdates(t *testing.T) {
	at := func(minute int) time.Time { return time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC) }
	list := NewUpdates("")
	for _, minute := range []int{9, 5, 1} {
		if !list.Add(vcs.Pull{Number: minute, UpdatedAt: at(minute)}) {
			t.Error("the first list ended early")
		}
	}
	pulls, cursor, _ := list.Result(nil)
	if len(pulls) != 3 || pulls[0].Number != 1 || pulls[2].Number != 9 {
		t.Errorf("%v", pulls)
	}
	list = NewUpdates(cursor)
	if !list.Add(vcs.Pull{Number: 10, UpdatedAt: at(10)}) || !list.Add(vcs.Pull{Number: 9, UpdatedAt: at(9)}) || list.Add(vcs.Pull{Number: 5, UpdatedAt: at(5)}) {
		t.Error("the cursor did not end the list")
	}
	if _, cursor, _ = NewUpdates("").Result(nil); cursor == "" {
		t.Error("the cursor of an empty list is zero")
	}
	list.Add(vcs.Pull{Number: 11, UpdatedAt: at(11)})
	pulls, next, err := list.Result(ErrManyPages)
	if !errors.Is(err, vcs.ErrPartial) || len(pulls) != 3 || next == "" {
		t.Errorf("of a list that is too long: %v, %q, %v", pulls, next, err)
	}
	if pulls, _, err := list.Result(vcs.ErrRefused); !errors.Is(err, vcs.ErrRefused) || pulls != nil {
		t.Errorf("of a list that was refused: %v, %v", pulls, err)
	}
}

// A forge can send half a million names in one answer.
func TestManyNames(t *testing.T) {
	var list []string
	for i := range 2_000_000 {
		list = AddNames(list, strconv.Itoa(i))
	}
	if len(list) > 11_000 || list[0] != "0" || len(AddNames(list[:1], "0", "", "1")) != 2 {
		t.Errorf("got %d names", len(list))
	}
}

// A page of 10 MiB can contain 100 000 pull requests, and each costs rows of the database.
func TestManyPullsAreCut(t *testing.T) {
	u := NewUpdates("")
	page := make([]*int, 4000)
	for i := range page {
		page[i] = new(i)
	}
	more, err := AddPage(u, page, func(n *int) (vcs.Pull, error) {
		return vcs.Pull{Number: *n, UpdatedAt: time.Unix(9999-int64(*n), 0)}, nil
	})
	pulls, next, err2 := u.Result(err)
	if more || len(pulls) != 3000 || pulls[2999].Number != 0 || next != "1970-01-01T02:46:39Z" || !errors.Is(err2, vcs.ErrPartial) {
		t.Errorf("got more %v, %d, %s, %v", more, len(pulls), next, err2)
	}
}
