package clients

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/must"
)

// recorder records the journals that clients send to a server.
type recorder struct {
	t      *testing.T
	server *lab.Server
	proxy  *httputil.ReverseProxy
	http   *httptest.Server

	before    func(*http.Request) // called with each request, or nil
	eachBatch bool                // export the state after each batch

	batches atomic.Int32 // received

	mu       sync.Mutex
	journals map[string]*recording // by the update's path
	order    []*recording
}

// recording is the journal of an update.
type recording struct {
	name, stack string
	base        []byte            // exported before the update
	entries     []json.RawMessage // acknowledged by the server
	batches     []batchEnd
	state       []byte      // exported after the update
	killed      atomic.Bool // the client is killed, so a request can be incomplete, or arrive after the update's end
}

// batchEnd describes a recording after one of its batches.
type batchEnd struct {
	entries int    // total number
	state   []byte // exported, if the recorder exports the states of batches
}

var (
	beginPath   = regexp.MustCompile(`^(/api/stacks/[^/]+/[^/]+/[^/]+)/begin-update$`)
	entriesPath = regexp.MustCompile(`^(.*)/journalentries$`)
)

func newRecorder(t *testing.T, server *lab.Server) *recorder {
	t.Helper()
	behind := must.Get(url.Parse(server.URL))(t)
	r := &recorder{t: t, server: server, journals: map[string]*recording{}}
	r.proxy = &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(behind); p.Out.Host = p.In.Host }}
	r.http = httptest.NewServer(http.HandlerFunc(r.serve))
	t.Cleanup(r.http.Close)
	return r
}

func (r *recorder) serve(w http.ResponseWriter, req *http.Request) {
	if r.before != nil {
		r.before(req)
	}
	if m := beginPath.FindStringSubmatch(req.URL.Path); m != nil {
		r.begin(w, req, m[1])
		return
	}
	if m := entriesPath.FindStringSubmatch(req.URL.Path); m != nil {
		r.batches.Add(1)
		r.record(w, req, m[1])
		return
	}
	r.proxy.ServeHTTP(w, req)
}

// begin forwards a request for an update, and begins its recording.
func (r *recorder) begin(w http.ResponseWriter, req *http.Request, stack string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	j := &recording{stack: stack, base: r.export(stack)}
	req.Header.Del("Accept-Encoding")
	answer := httptest.NewRecorder()
	r.proxy.ServeHTTP(answer, req)
	var begun struct {
		UpdateID string `json:"updateID"`
	}
	if err := json.Unmarshal(answer.Body.Bytes(), &begun); err != nil || begun.UpdateID == "" {
		r.t.Errorf("the server answers a request for an update with %d %s (%v)", answer.Code, answer.Body, err)
	} else {
		j.name = stack + "/update/" + begun.UpdateID
		r.journals[j.name] = j
		r.order = append(r.order, j)
	}
	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes()) // the client reports a lost response
}

// record forwards entries to the server, and records those that the server acknowledges.
func (r *recorder) record(w http.ResponseWriter, req *http.Request, update string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	j := r.journals[update]
	body, err := io.ReadAll(req.Body)
	if err != nil {
		if j == nil || !j.killed.Load() {
			r.t.Errorf("reading entries of %s: %v", update, err)
		}
		return
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	answer := httptest.NewRecorder()
	req = req.WithContext(context.WithoutCancel(req.Context())) // a cancelled CLI does not wait for the answer
	r.proxy.ServeHTTP(answer, req)
	var batch struct{ Entries []json.RawMessage }
	req.Body = io.NopCloser(bytes.NewReader(body))
	if err := json.NewDecoder(plain(req)).Decode(&batch); err != nil || j == nil || answer.Code != http.StatusNoContent {
		if j == nil || !j.killed.Load() {
			r.t.Errorf("the server answers entries of %s with %d %s (%v)", update, answer.Code, answer.Body, err)
		}
	} else {
		j.entries = append(j.entries, batch.Entries...)
		end := batchEnd{entries: len(j.entries)}
		if r.eachBatch {
			end.state = r.export(j.stack)
		}
		j.batches = append(j.batches, end)
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes()) // the client reports a lost response
}

func (r *recorder) export(stack string) []byte {
	var state json.RawMessage
	if err := r.server.Call(r.t.Context(), http.MethodGet, stack+"/export", nil, &state); err != nil {
		r.t.Errorf("exporting %s: %v", stack, err)
	}
	return state
}

// finish exports the state after the last update.
func (r *recorder) finish() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.order) > 0 {
		if j := r.order[len(r.order)-1]; j.state == nil {
			j.state = r.export(j.stack)
		}
	}
}

// plain returns the body of a request without compression.
func plain(req *http.Request) io.Reader {
	if req.Header.Get("Content-Encoding") != "gzip" {
		return req.Body
	}
	z, err := gzip.NewReader(req.Body)
	if err != nil {
		return strings.NewReader("")
	}
	return z
}

// yamlProgram returns a YAML program with the given resources.
func yamlProgram(resources string) string {
	return "name: recorded\nruntime: yaml\nresources:\n" + resources
}

// TestClientsReplayRecordedJournals records the journals of the stock CLI. It compares the server's
// state after each journal, and the server's replay of every prefix of the journal, with the CLI's
// own replay.
func TestClientsReplayRecordedJournals(t *testing.T) {
	w := harness.StartSite(t, "")
	r := newRecorder(t, w.Server)
	dir := t.TempDir()
	pulumi := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), w.Tools.Pulumi(), append(args, "--non-interactive")...)
		cmd.Dir = dir
		cmd.Env = append(w.Tools.Env(w.Home, r.http.URL, w.Server.Token), "PULUMI_CONFIG_PASSPHRASE=", "PULUMI_JOURNALING_BATCH_PERIOD=2")
		return cmd
	}
	run := func(program string, args ...string) string {
		t.Helper()
		if program != "" {
			harness.Write(t, filepath.Join(dir, "Pulumi.yaml"), []byte(yamlProgram(program)), 0o600)
		}
		out, err := pulumi(args...).CombinedOutput()
		r.finish()
		if err != nil {
			return fmt.Sprintf("%v\n%s", err, out)
		}
		return ""
	}
	succeed := func(program string, args ...string) {
		t.Helper()
		if failed := run(program, args...); failed != "" {
			t.Fatalf("pulumi %s: %s", strings.Join(args, " "), failed)
		}
	}
	fail := func(program, says string, args ...string) {
		t.Helper()
		if failed := run(program, args...); !strings.Contains(failed, says) {
			t.Fatalf("pulumi %s gives %q, want a failure with %q", strings.Join(args, " "), failed, says)
		}
	}
	up := []string{"up", "--yes", "--skip-preview"}
	ups := func(more ...string) []string { return append(append([]string{}, up...), more...) }
	harness.Write(t, filepath.Join(dir, "Pulumi.yaml"), []byte(yamlProgram("  {}\n")), 0o600)
	succeed("", "stack", "init", "dev")

	// Creation, with all kinds of references.
	first := `  a: {type: lab:Random, properties: {trigger: "1"}}
  b: {type: lab:Random, properties: {trigger: "${a.hex}"}, options: {dependsOn: ["${a}"], parent: "${a}"}}
  c: {type: lab:Random, properties: {trigger: "1"}, options: {deleteBeforeReplace: true}}
  d: {type: lab:Random, properties: {trigger: "${c.hex}"}, options: {deletedWith: "${c}"}}
  file: {type: lab:File, properties: {path: ./file, content: "1"}}
  gone: {type: lab:File, properties: {path: ./gone, content: "1"}}
  after: {type: lab:Random, options: {dependsOn: ["${gone}", "${file}"], parent: "${gone}"}}
  kept: {type: lab:File, properties: {path: ./kept, content: "1"}, options: {retainOnDelete: true}}
  safe: {type: lab:Random, options: {protect: true}}
`
	succeed(first, up...)
	succeed("", up...)
	// Update, both orders of replacement, and deletion.
	second := strings.NewReplacer(`trigger: "1"`, `trigger: "2"`, `content: "1"`, `content: "2"`).Replace(first)
	succeed(second, ups("--target", "**::file")...)
	succeed(second, up...)
	succeed(strings.Replace(second, `  kept: {type: lab:File, properties: {path: ./kept, content: "2"}, options: {retainOnDelete: true}}`+"\n", "", 1), up...)
	// A refresh finds a changed and a deleted resource, on which another one depends.
	harness.Write(t, filepath.Join(dir, "file"), []byte("drift"), 0o600)
	must.OK(t, os.Remove(filepath.Join(dir, "gone")))
	succeed("", "refresh", "--yes", "--skip-preview")
	must.OK(t, os.Remove(filepath.Join(dir, "file")))
	succeed(second, ups("--refresh")...)
	harness.Write(t, filepath.Join(dir, "file"), []byte("drift"), 0o600)
	succeed("", ups("--refresh", "--run-program")...)
	// New names and parents.
	third := `  a: {type: lab:Random, properties: {trigger: "2"}}
  b2: {type: lab:Random, properties: {trigger: "${a.hex}"}, options: {aliases: [{name: b, parent: "${a}"}]}}
  c2: {type: lab:Random, properties: {trigger: "3"}, options: {aliases: [{name: c}], deleteBeforeReplace: true}}
  d: {type: lab:Random, properties: {trigger: "${c2.hex}"}, options: {deletedWith: "${c2}", parent: "${a}", aliases: [{noParent: true}]}}
  safe: {type: lab:Random, options: {protect: true}}
`
	succeed(third, ups("--target", "**::b2", "--target", "**::a")...)
	fail(third+`  bad: {type: lab:File, properties: {path: /dev/null/x, content: "1"}, options: {dependsOn: ["${d}"]}}`+"\n", "creating the file's directory", up...)
	fail(third+`  bad: {type: lab:File, properties: {path: /dev/null/x, content: "1"}, options: {dependsOn: ["${d}"]}}`+"\n", "creating the file's directory", ups("--continue-on-error")...)
	succeed(third, up...)
	// Import, and reading without managing.
	harness.Write(t, filepath.Join(dir, "imported"), []byte("imported"), 0o600)
	succeed("", "import", "--yes", "--skip-preview", "--generate-code=false", "lab:index:File", "imported", "imported")
	third += `  imported: {type: lab:File, properties: {path: imported, content: imported}, options: {protect: true}}
  read: {type: lab:File, get: {id: imported}}
`
	succeed(third, up...)
	r.kill(t, dir, third, pulumi)
	succeed("", "refresh", "--yes", "--skip-preview", "--clear-pending-creates")
	succeed(third, up...)
	// The CLI migrates a state of an older version before it updates.
	exported := filepath.Join(dir, "state.json")
	succeed("", "stack", "export", "--file", exported)
	harness.Write(t, exported, withoutProviderOutputs(t, harness.Read(t, exported)), 0o600)
	succeed("", "stack", "import", "--file", exported)
	succeed(third, up...)
	succeed("", "stack", "init", "other", "--no-select")
	succeed("", "state", "move", "--yes", "--source", "dev", "--dest", "other", "urn:pulumi:dev::recorded::lab:index:Random::safe")
	safe := "  safe: {type: lab:Random, options: {protect: true}}\n"
	succeed(safe, ups("--stack", "other")...)
	third = strings.Replace(third, safe, "", 1)
	succeed("", "stack", "change-secrets-provider", "passphrase")
	succeed(third, up...)
	fail("", "protected", "destroy", "--yes", "--skip-preview")
	succeed("", "state", "unprotect", "--all", "--yes")
	succeed("", "destroy", "--yes", "--skip-preview", "--target", "**::d")
	succeed("", "destroy", "--yes", "--skip-preview")
	r.compare(t)
}

// withoutProviderOutputs returns a state as older clients stored it.
func withoutProviderOutputs(t *testing.T, state []byte) []byte {
	t.Helper()
	var doc struct {
		Version    int            `json:"version"`
		Features   []string       `json:"features,omitempty"`
		Deployment map[string]any `json:"deployment"`
	}
	must.OK(t, json.Unmarshal(state, &doc))
	resources, _ := doc.Deployment["resources"].([]any)
	for _, r := range resources {
		if r, ok := r.(map[string]any); ok && strings.HasPrefix(fmt.Sprint(r["type"]), "pulumi:providers:") {
			delete(r, "outputs")
		}
	}
	old := must.Get(json.Marshal(doc))(t)
	return old
}

// kill kills the CLI while it creates a resource.
func (r *recorder) kill(t *testing.T, dir, program string, pulumi func(...string) *exec.Cmd) {
	t.Helper()
	started := filepath.Join(dir, "started")
	slow := fmt.Sprintf("  slow: {type: lab:Sleep, properties: {seconds: 120, started: %q}}\n", started)
	harness.Write(t, filepath.Join(dir, "Pulumi.yaml"), []byte(yamlProgram(program+slow)), 0o600)
	victim := pulumi("up", "--yes", "--skip-preview")
	must.OK(t, victim.Start())
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	if err := harness.Until(ctx, func() (bool, error) {
		_, err := os.Stat(started)
		return err == nil, nil
	}); err != nil {
		t.Errorf("waiting for the update to begin: %v", err)
	}
	r.mu.Lock()
	r.order[len(r.order)-1].killed.Store(true)
	r.mu.Unlock()
	must.OK(t, victim.Process.Kill())
	_ = victim.Wait() // it was killed
	if out, err := pulumi("cancel", "--yes").CombinedOutput(); err != nil {
		t.Fatalf("cancel: %v\n%s", err, out)
	}
	r.finish()
}

// compare compares the server's replay of every prefix of every journal with the CLI's own replay.
func (r *recorder) compare(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var cases []harness.ReplayCase
	var names []string
	kinds := map[string]int{}
	for _, j := range r.order {
		for n := 1; n <= len(j.entries); n++ {
			entries := must.Get(json.Marshal(j.entries[:n]))(t)
			got, err := replay(j.base, entries)
			if err != nil {
				t.Fatalf("%s after %d entries: %v", j.name, n, err)
			}
			if n == len(j.entries) {
				got = j.state
			}
			cases = append(cases, harness.ReplayCase{Base: j.base, Entries: entries, Got: got})
			names = append(names, fmt.Sprintf("%s after %d of %d entries", j.name, n, len(j.entries)))
		}
		for _, e := range j.entries {
			countMembers(t, kinds, e)
		}
	}
	for i, result := range harness.ReplayOfficially(t, cases) {
		if diff := gocmp.Diff(harness.ComparableState(result.Want), harness.ComparableState(result.Got)); diff != "" || result.Error != "" {
			t.Fatalf("%s: the CLI's error is %q, its state differs (-want +got):\n%s\nentries: %s", names[i], result.Error, diff, cases[i].Entries)
		}
	}
	t.Logf("compared %d states of %d updates, with %v", len(cases), len(r.order), kinds)
	for _, kind := range []string{
		"kind 0", "kind 1", "kind 2", "kind 3", "kind 4", "kind 5", "kind 6", "kind 7",
		"removeOld", "removeNew", "deleteOld", "pendingReplacementOld", "aliases", "isRefresh",
	} {
		if kinds[kind] == 0 {
			t.Errorf("no recorded entry has %s", kind)
		}
	}
}

func countMembers(t *testing.T, kinds map[string]int, entry []byte) {
	t.Helper()
	var e map[string]any
	must.OK(t, json.Unmarshal(entry, &e))
	kinds[fmt.Sprintf("kind %v", e["kind"])]++
	for name, value := range e {
		switch name {
		case "kind", "version", "sequenceID", "operationID":
			continue
		}
		if value != nil {
			kinds[name]++
		}
	}
	if state, ok := e["state"].(map[string]any); ok && state["aliases"] != nil {
		kinds["aliases"]++
	}
}
