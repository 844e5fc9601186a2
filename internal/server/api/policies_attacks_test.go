package api_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/api"
	"workflowagent/internal/server/api/system"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// TestTagPublishedTwice publishes two packs with one tag at the same time. Afterwards, one of them has the tag, with its
// own archive and policies, and no call changes it.
func TestTagPublishedTwice(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixtureOn(t, db, options{})
		const one = packsPath + "/aws/versions/1.0.0"
		uploads := make([]string, 2)
		for i := range uploads {
			draft := packDraft("aws", "1.0.0")
			draft["displayName"] = fmt.Sprintf("pack %d", i)
			uploads[i] = f.draft("acme", draft)
		}
		f.put(uploads[0], "of pack 0").want(404, nil).says("published again")
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				draft := packDraft("aws", "1.0.0")
				draft["displayName"] = fmt.Sprintf("pack %d", i)
				made := f.do("POST", packsPath, draft)
				if made.Status != http.StatusCreated {
					return // a conflict with a completed version
				}
				var upload struct{ UploadURI string }
				made.want(201, &upload)
				f.put(f.address(upload.UploadURI), fmt.Sprintf("of pack %d", i))
				f.do("POST", one+"/complete", nil)
			})
		}
		all.Wait()
		var v struct{ DisplayName string }
		f.do("GET", one, nil).want(200, &v)
		f.do("PATCH", groupsPath+"/default-policy-group", map[string]any{"addPolicyPack": map[string]any{"name": "aws"}}).want(204, nil)
		f.do("POST", packsPath, packDraft("aws", "1.0.0")).want(409, nil).says("never change")
		list := f.required(f.stack("dev"), "update")
		if got := f.send(call{Method: "GET", Path: f.address(list[0].PackLocation), Auth: "none"}).want(200, nil); string(got.Body) != "of "+v.DisplayName {
			t.Errorf("%s has the archive %q", v.DisplayName, got.Body)
		}
	})
}

// TestReplacedArchives tries to replace the archive of a version after it was published and enabled.
func TestReplacedArchives(t *testing.T) {
	f := newFixture(t, options{})
	upload := f.draft("acme", packDraft("aws", "1.0.0"))
	f.put(upload, "a first attempt").want(204, nil)
	f.put(upload, "the archive").want(204, nil)
	f.do("POST", packsPath+"/aws/versions/1.0.0/complete", nil).want(204, nil)
	f.do("PATCH", groupsPath+"/default-policy-group", map[string]any{"addPolicyPack": map[string]any{"name": "aws"}}).want(204, nil)
	f.put(upload, "another archive").want(409, nil).says("never change")
	location := f.address(f.required(f.stack("dev"), "update")[0].PackLocation)
	get := func(path string) answer {
		t.Helper()
		return f.send(call{Method: "GET", Path: path, Auth: "none"})
	}
	if got := get(location).want(200, nil); string(got.Body) != "the archive" {
		t.Errorf("downloaded %q", got.Body)
	}
	// An address permits one use of one version.
	other := f.draft("acme", packDraft("aws", "1.1.0"))
	_, signed, _ := strings.Cut(upload, "?")
	path, _, _ := strings.Cut(other, "?")
	f.put(path+"?"+signed, "x").want(401, nil)
	f.put(path, "x").want(401, nil)
	f.put(with(other, "expires", "99999999999"), "x").want(401, nil)
	f.put(location, "x").want(401, nil)
	get(upload).want(401, nil)
	get(with(location, "signature", "AAAA")).want(401, nil)
	get("/api/blobs/policy-packs/none?"+signed).want(401, nil)
	f.send(call{Method: "DELETE", Path: location, Auth: "none"}).want(405, nil)

	// Who changes the stored archive breaks it.
	var blob string
	if err := f.db.Read(t.Context(), func(tx *store.Tx) (err error) {
		keys, err := tx.PackBlobs("", 1)
		blob = keys[0]
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := f.db.Blobs().Put(t.Context(), blob, strings.NewReader("an ARCHIVE!")); err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(must200(t, f.server.URL+location)); err == nil {
		t.Errorf("downloaded %q", body)
	}
	if err := f.db.Blobs().Delete(t.Context(), blob); err != nil {
		t.Fatal(err)
	}
	get(location).want(500, nil).says("missing or damaged")
}

func must200(t *testing.T, url string) io.Reader {
	t.Helper()
	res, err := http.Get(url)
	if err != nil || res.StatusCode != http.StatusOK {
		return errReader{err}
	}
	t.Cleanup(func() { res.Body.Close() })
	return res.Body
}

type errReader struct{ error }

func (e errReader) Read([]byte) (int, error) { return 0, fmt.Errorf("the response: %w", e.error) }

// TestUploadLimits uploads too much, too little and nothing.
func TestUploadLimits(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixtureOn(t, db, options{packSize: 3 << 20, quota: 10 << 20})
		upload := f.draft("acme", packDraft("aws", "1.0.0"))
		stored := func(want int64) {
			t.Helper()
			if n, err := db.Blobs().Total(t.Context(), "policy-packs"); n != want || err != nil {
				t.Errorf("%d bytes of archives are stored, want %d, %v", n, want, err)
			}
		}
		f.put(upload, bytes.Repeat([]byte("x"), 3<<20+1)).want(413, nil).says("policy_pack_size")
		f.put(upload, "").want(400, nil)
		send := func(body io.Reader) (int, error) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, f.server.URL+upload, body)
			if err != nil {
				return 0, err
			}
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				return 0, err
			}
			defer res.Body.Close()
			return res.StatusCode, nil
		}
		// A client that does not say how much it sends.
		if status, err := send(io.MultiReader(bytes.NewReader(bytes.Repeat([]byte("x"), 3<<20)), strings.NewReader("x"))); status != 413 && err == nil {
			t.Errorf("status %d for an upload of unknown size", status)
		}
		// A client that breaks off.
		if status, err := send(io.MultiReader(bytes.NewReader(make([]byte, 2<<20)), errReader{io.ErrUnexpectedEOF})); err == nil {
			t.Errorf("status %d for half an upload", status)
		}
		f.do("POST", packsPath+"/aws/versions/1.0.0/complete", nil).want(400, nil)
		f.put(upload, bytes.Repeat([]byte("x"), 3<<20)).want(204, nil)
		stored(3 << 20)
		f.put(upload, bytes.Repeat([]byte("y"), 3<<20)).want(204, nil)
		f.put(upload, bytes.Repeat([]byte("y"), 3<<20)).want(204, nil)
		f.put(upload, bytes.Repeat([]byte("y"), 3<<20)).want(403, nil).says("quota")
		stored(3 << 20)
	})
}

// TestPacksOfTwoOrganizations publishes packs with one name in two organizations, and tries to reach the ones of the
// other.
func TestPacksOfTwoOrganizations(t *testing.T) {
	f := newFixture(t, options{})
	boss := f.person("boss", "acme", "admin")
	f.do("POST", "/api/orgs", map[string]any{"name": "rival"}).want(201, nil)
	f.publishPack("acme", "aws", "1.0.0", "of acme")
	f.publishPack("rival", "aws", "1.0.0", "of rival")
	f.publishPack("rival", "secret", "1.0.0", "of rival")
	f.do("POST", "/api/orgs/rival/policygroups", map[string]any{"name": "theirs", "entityType": "stacks"}).want(204, nil)
	f.do("POST", "/api/stacks/rival/proj", map[string]any{"stackName": "theirs"}).want(200, nil)
	stack := f.stack("dev")
	as := func(method, path string, body any) answer {
		t.Helper()
		return f.send(call{Method: method, Path: path, Body: body, Auth: boss})
	}
	for _, path := range []string{"/policypacks", "/policypacks/aws/latest", "/policypacks/aws/versions/1", "/policygroups", "/policygroups/default-policy-group", "/policygroups/metadata"} {
		as("GET", "/api/orgs/rival"+path, nil).want(404, nil)
	}
	as("PATCH", "/api/orgs/rival/policygroups/default-policy-group", map[string]any{}).want(404, nil)
	as("POST", "/api/orgs/rival/policypacks", packDraft("aws", "2.0.0")).want(404, nil)
	as("GET", "/api/stacks/rival/proj/theirs/policypacks", nil).want(404, nil)
	const own = groupsPath + "/default-policy-group"
	as("GET", groupsPath+"/theirs", nil).want(404, nil)
	as("PATCH", groupsPath+"/theirs", map[string]any{}).want(404, nil)
	as("PATCH", own, map[string]any{"addPolicyPack": map[string]any{"name": "secret"}}).want(404, nil)
	as("PATCH", own, map[string]any{"addStack": map[string]any{"name": "theirs", "routingProject": "proj"}}).want(404, nil)
	as("PATCH", own, map[string]any{"addPolicyPack": map[string]any{"name": "aws"}}).want(204, nil)
	list := f.required(stack, "update")
	if got := f.send(call{Method: "GET", Path: f.address(list[0].PackLocation), Auth: "none"}).want(200, nil); string(got.Body) != "of acme" {
		t.Errorf("the pack of acme is %q", got.Body)
	}
	if list := f.required("/api/stacks/rival/proj/theirs", "update"); len(list) > 0 {
		t.Errorf("the other organization's stack requires %+v", list)
	}
}

// TestRightsToPolicies tests that members read packs and groups, but see only their stacks, and change nothing.
func TestRightsToPolicies(t *testing.T) {
	f := newFixture(t, options{})
	f.publishPack("acme", "aws", "1.0.0", "x")
	f.do("PATCH", "/api/orgs/acme", map[string]any{"setDefaultStackPermission": 0}).want(200, nil)
	f.stack("hidden")
	ann, out := f.person("ann", "acme", "member"), f.person("out", "acme", "stack-collaborator")
	f.send(call{Method: "POST", Path: "/api/stacks/acme/proj", Body: map[string]any{"stackName": "own"}, Auth: ann}).want(200, nil)
	get := func(auth, path string) answer {
		t.Helper()
		return f.send(call{Method: "GET", Path: path, Auth: auth})
	}
	get(ann, packsPath+"/aws/latest").want(200, nil)
	get(ann, groupsPath+"/default-policy-group").want(200, nil).says(`"stacks":[{"name":"own","routingProject":"proj"}]`)
	if body := string(get(ann, groupsPath+"/default-policy-group/stacks").want(200, nil).Body); strings.Contains(body, "hidden") || !strings.Contains(body, "own") {
		t.Errorf("a member sees the stacks %s", body)
	}
	get(ann, "/api/stacks/acme/proj/hidden/policygroups").want(404, nil)
	for _, path := range []string{packsPath, groupsPath, groupsPath + "/default-policy-group"} {
		get(out, path).want(404, nil)
	}
	for _, c := range []call{
		{Method: "POST", Path: packsPath, Body: packDraft("x", "1")},
		{Method: "POST", Path: packsPath + "/aws/versions/1/complete"},
		{Method: "DELETE", Path: packsPath + "/aws"},
		{Method: "DELETE", Path: packsPath + "/aws/versions/1"},
		{Method: "POST", Path: groupsPath, Body: map[string]any{"name": "g"}},
		{Method: "PATCH", Path: groupsPath + "/default-policy-group", Body: map[string]any{}},
		{Method: "PATCH", Path: groupsPath + "/default-policy-group/batch", Body: []any{}},
		{Method: "DELETE", Path: groupsPath + "/g"},
	} {
		c.Auth = ann
		f.send(c).want(403, nil)
	}
}

// TestNamesOfPacks publishes packs with names that are no names.
func TestNamesOfPacks(t *testing.T) {
	f := newFixture(t, options{})
	for _, name := range []string{"", ".", "..", "a/b", "<script>alert(1)</script>", "a\nb", "ä", strings.Repeat("a", 101)} {
		f.do("POST", packsPath, packDraft(name, "1")).want(400, nil)
		if name != "" {
			f.do("POST", packsPath, packDraft("aws", name+"/")).want(400, nil)
		}
	}
	policies := func(list ...any) answer {
		t.Helper()
		draft := packDraft("aws", "1")
		draft["policies"] = list
		return f.do("POST", packsPath, draft)
	}
	policy := func(name, level string) any {
		return map[string]any{"name": name, "enforcementLevel": level}
	}
	policies(policy("", "advisory")).want(400, nil)
	policies(policy("a\x1b[2J", "advisory")).want(400, nil)
	policies(policy("all", "advisory")).want(400, nil).says("rename")
	policies(policy("a", "severe")).want(400, nil)
	policies(policy("a", "advisory"), policy("a", "mandatory")).want(400, nil)
	many := make([]any, 1001)
	for i := range many {
		many[i] = policy(fmt.Sprint(i), "advisory")
	}
	policies(many...).want(400, nil)
	policies(map[string]any{"name": "a", "description": strings.Repeat("x", 5<<20)}).want(413, nil)
	// Clients print the warning.
	made := policies(policy("<b>", "")).want(201, nil)
	if w := made.Header.Get("X-Pulumi-Warning"); !strings.Contains(w, "cannot be configured") {
		t.Errorf("the warning about a pack that cannot be configured is %q", w)
	}
	if made := f.do("POST", packsPath, packDraft("other", "1")).want(201, nil); made.Header.Get("X-Pulumi-Warning") != "" {
		t.Errorf("a warning about a pack that can be configured: %v", made.Header)
	}
	draft := packDraft("aws", "2")
	draft["runtime"] = "python"
	f.do("POST", packsPath, draft).want(400, nil).says("cannot change")
}

// TestAddressesAreNotLogged tests that the log of requests contains no signature.
func TestAddressesAreNotLogged(t *testing.T) {
	f := newFixture(t, options{})
	var text bytes.Buffer
	log := logrus.New()
	log.SetOutput(&text)
	log.SetLevel(logrus.TraceLevel)
	handler := api.New(api.Deps{
		Log: logrus.NewEntry(log), Identity: identity.New(f.db, logrus.NewEntry(log)), Stacks: f.stacks, Policies: f.policies,
		Server: system.Server{Metrics: prometheus.NewRegistry()},
	})
	upload := f.draft("acme", packDraft("aws", "1.0.0"))
	for _, path := range []string{upload, with(upload, "expires", "1"), strings.Replace(upload, "policy-packs/", "policy-packs/x", 1)} {
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPut, path, strings.NewReader("archive")))
	}
	_, query, _ := strings.Cut(upload, "?")
	if strings.Count(text.String(), "/api/blobs/policy-packs/") < 3 {
		t.Errorf("the log lacks requests: %s", text.String())
	}
	for part := range strings.SplitSeq(query, "&") {
		if strings.Contains(text.String(), part) {
			t.Errorf("the log contains %q: %s", part, text.String())
		}
	}
}
