package clients

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
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
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/stacks/journal"
)

// recorder is a server that keeps journals. It stores their states as checkpoints on the server
// behind it, so that clients continue with the states that the replay returns.
type recorder struct {
	t      *testing.T
	behind *url.URL
	proxy  *httputil.ReverseProxy
	http   *httptest.Server

	mu       sync.Mutex
	journals map[string]*recording // by the path of the update
	order    []*recording
}

type recording struct {
	name     string
	base     []byte
	entries  []json.RawMessage
	progress *journal.Progress
	state    []byte // after the entries
}

var (
	startPath   = regexp.MustCompile(`^(/api/stacks/[^/]+/[^/]+/[^/]+)/(?:update|refresh|destroy)/[^/]+$`)
	entriesPath = regexp.MustCompile(`^(.*)/journalentries$`)
)

func newRecorder(t *testing.T, server string) *recorder {
	t.Helper()
	behind, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{t: t, behind: behind, journals: map[string]*recording{}}
	r.proxy = &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(behind); p.Out.Host = p.In.Host }}
	r.http = httptest.NewServer(http.HandlerFunc(r.serve))
	t.Cleanup(r.http.Close)
	return r
}

func (r *recorder) serve(w http.ResponseWriter, req *http.Request) {
	if m := startPath.FindStringSubmatch(req.URL.Path); m != nil && req.Method == http.MethodPost {
		r.start(w, req, m[1])
	} else if m := entriesPath.FindStringSubmatch(req.URL.Path); m != nil {
		r.append(w, req, m[1])
	} else {
		r.proxy.ServeHTTP(w, req)
	}
}

// start hides the journal from the server and offers it to the client.
func (r *recorder) start(w http.ResponseWriter, req *http.Request, stack string) {
	_, base := r.call(req, http.MethodGet, stack+"/export", nil)
	var body map[string]any
	if err := json.NewDecoder(plain(req)).Decode(&body); err != nil {
		r.t.Errorf("reading the start of an update: %v", err)
	}
	offered := body["journalVersion"] != nil
	delete(body, "journalVersion")
	status, answer := r.call(req, http.MethodPost, req.URL.Path, body)
	var started map[string]any
	if err := json.Unmarshal(answer, &started); err == nil && status == http.StatusOK && offered {
		from, err := journal.ParseState(base)
		if err != nil {
			r.t.Errorf("parsing the state at the start of %s: %v", req.URL.Path, err)
			from = &journal.Deployment{}
		}
		j := &recording{name: req.URL.Path, base: base, progress: journal.NewProgress(len(from.Resources))}
		r.mu.Lock()
		r.journals[req.URL.Path] = j
		r.order = append(r.order, j)
		r.mu.Unlock()
		started["journalVersion"] = 1
		answer, _ = json.Marshal(started) // a decoded value has a JSON form
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(answer) // the client reports a lost answer
}

// append stores the state after more entries as a checkpoint.
func (r *recorder) append(w http.ResponseWriter, req *http.Request, update string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	j := r.journals[update]
	var body struct{ Entries json.RawMessage }
	if err := json.NewDecoder(plain(req)).Decode(&body); err != nil || j == nil {
		r.t.Errorf("%s gets entries that are no journal's: %v", update, err)
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if err := j.add(body.Entries); err != nil {
		r.t.Errorf("%s: entries of a real client are refused as %s: %v", update, fault.KindOf(err), err)
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if status, answer := r.call(req, http.MethodPatch, update+"/checkpoint", json.RawMessage(j.state)); status >= 300 {
		r.t.Errorf("storing the state of %s: %d %s", update, status, answer)
		w.WriteHeader(status)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (j *recording) add(entries json.RawMessage) error {
	parsed, err := journal.Parse(entries)
	if err != nil {
		return err
	}
	if err := j.progress.AddAll(parsed); err != nil {
		return err
	}
	for _, e := range parsed {
		j.entries = append(j.entries, e.Raw)
	}
	all, err := json.Marshal(j.entries)
	if err != nil {
		return err
	}
	j.state, err = replay(j.base, all)
	return err
}

// call sends a request of the client with another body to the server.
func (r *recorder) call(req *http.Request, method, path string, body any) (int, []byte) {
	data, err := json.Marshal(body)
	if err != nil {
		r.t.Error(err)
	}
	ctx, cancel := context.WithTimeout(req.Context(), time.Minute)
	defer cancel()
	out, err := http.NewRequestWithContext(ctx, method, r.behind.JoinPath(path).String(), bytes.NewReader(data))
	if err != nil {
		r.t.Error(err)
		return http.StatusBadGateway, nil
	}
	out.Header.Set("Authorization", req.Header.Get("Authorization"))
	out.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(out)
	if err != nil {
		r.t.Error(err)
		return http.StatusBadGateway, nil
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Error(err)
	}
	return res.StatusCode, answer
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

// program returns a YAML program with the given resources.
func yamlProgram(resources string) string {
	return "name: recorded\nruntime: yaml\nresources:\n" + resources
}

// TestClientsReplayRecordedJournals records the journals of the stock CLI. It compares the replay
// of each, cut after each entry as if the CLI had been killed there, with the CLI's own.
func TestClientsReplayRecordedJournals(t *testing.T) {
	w := harness.StartSite(t, "")
	r := newRecorder(t, w.Server.URL)
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
		if err != nil {
			return fmt.Sprintf("%v\n%s", err, out)
		}
		return ""
	}
	must := func(program string, args ...string) {
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
	must("", "stack", "init", "dev")

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
	must(first, up...)
	must("", up...)
	// Update, both orders of replacement, and deletion.
	second := strings.NewReplacer(`trigger: "1"`, `trigger: "2"`, `content: "1"`, `content: "2"`).Replace(first)
	must(second, ups("--target", "**::file")...)
	must(second, up...)
	must(strings.Replace(second, `  kept: {type: lab:File, properties: {path: ./kept, content: "2"}, options: {retainOnDelete: true}}`+"\n", "", 1), up...)
	// A refresh finds a changed and a deleted resource, on which another one depends.
	harness.Write(t, filepath.Join(dir, "file"), []byte("drift"), 0o600)
	if err := os.Remove(filepath.Join(dir, "gone")); err != nil {
		t.Fatal(err)
	}
	must("", "refresh", "--yes", "--skip-preview")
	if err := os.Remove(filepath.Join(dir, "file")); err != nil {
		t.Fatal(err)
	}
	must(second, ups("--refresh")...)
	harness.Write(t, filepath.Join(dir, "file"), []byte("drift"), 0o600)
	must("", ups("--refresh", "--run-program")...)
	// New names and parents.
	third := `  a: {type: lab:Random, properties: {trigger: "2"}}
  b2: {type: lab:Random, properties: {trigger: "${a.hex}"}, options: {aliases: [{name: b, parent: "${a}"}]}}
  c2: {type: lab:Random, properties: {trigger: "3"}, options: {aliases: [{name: c}], deleteBeforeReplace: true}}
  d: {type: lab:Random, properties: {trigger: "${c2.hex}"}, options: {deletedWith: "${c2}", parent: "${a}", aliases: [{noParent: true}]}}
  safe: {type: lab:Random, options: {protect: true}}
`
	must(third, ups("--target", "**::b2", "--target", "**::a")...)
	fail(third+`  bad: {type: lab:File, properties: {path: /dev/null/x, content: "1"}, options: {dependsOn: ["${d}"]}}`+"\n", "creating the file's directory", up...)
	fail(third+`  bad: {type: lab:File, properties: {path: /dev/null/x, content: "1"}, options: {dependsOn: ["${d}"]}}`+"\n", "creating the file's directory", ups("--continue-on-error")...)
	must(third, up...)
	// Import, and reading without managing.
	harness.Write(t, filepath.Join(dir, "imported"), []byte("imported"), 0o600)
	must("", "import", "--yes", "--skip-preview", "--generate-code=false", "lab:index:File", "imported", "imported")
	third += `  imported: {type: lab:File, properties: {path: imported, content: imported}, options: {protect: true}}
  read: {type: lab:File, get: {id: imported}}
`
	must(third, up...)
	r.kill(t, dir, third, pulumi)
	must("", "refresh", "--yes", "--skip-preview", "--clear-pending-creates")
	must(third, up...)
	// The CLI migrates a state of an older version before it updates.
	exported := filepath.Join(dir, "state.json")
	must("", "stack", "export", "--file", exported)
	harness.Write(t, exported, withoutProviderOutputs(t, harness.Read(t, exported)), 0o600)
	must("", "stack", "import", "--file", exported)
	must(third, up...)
	must("", "stack", "init", "other", "--no-select")
	must("", "state", "move", "--yes", "--source", "dev", "--dest", "other", "urn:pulumi:dev::recorded::lab:index:Random::safe")
	safe := "  safe: {type: lab:Random, options: {protect: true}}\n"
	must(safe, ups("--stack", "other")...)
	third = strings.Replace(third, safe, "", 1)
	must("", "stack", "change-secrets-provider", "passphrase")
	must(third, up...)
	fail("", "protected", "destroy", "--yes", "--skip-preview")
	must("", "state", "unprotect", "--all", "--yes")
	must("", "destroy", "--yes", "--skip-preview", "--target", "**::d")
	must("", "destroy", "--yes", "--skip-preview")
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
	if err := json.Unmarshal(state, &doc); err != nil {
		t.Fatal(err)
	}
	resources, _ := doc.Deployment["resources"].([]any)
	for _, r := range resources {
		if r, ok := r.(map[string]any); ok && strings.HasPrefix(fmt.Sprint(r["type"]), "pulumi:providers:") {
			delete(r, "outputs")
		}
	}
	old, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return old
}

// kill kills the CLI while it creates a resource.
func (r *recorder) kill(t *testing.T, dir, program string, pulumi func(...string) *exec.Cmd) {
	t.Helper()
	started := filepath.Join(dir, "started")
	slow := fmt.Sprintf("  slow: {type: lab:Sleep, properties: {seconds: 120, started: %q}}\n", started)
	harness.Write(t, filepath.Join(dir, "Pulumi.yaml"), []byte(yamlProgram(program+slow)), 0o600)
	victim := pulumi("up", "--yes", "--skip-preview")
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := harness.Until(ctx, func() (bool, error) {
		_, err := os.Stat(started)
		return err == nil, nil
	}); err != nil {
		t.Errorf("waiting for the update to begin: %v", err)
	}
	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = victim.Wait() // it was killed
	if out, err := pulumi("cancel", "--yes").CombinedOutput(); err != nil {
		t.Fatalf("cancel: %v\n%s", err, out)
	}
}

// compare replays all beginnings of all journals.
func (r *recorder) compare(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var cases []replayCase
	var names []string
	kinds := map[string]int{}
	for _, j := range r.order {
		for n := range len(j.entries) + 1 {
			entries, err := json.Marshal(j.entries[:n])
			if err != nil {
				t.Fatal(err)
			}
			got, err := replay(j.base, entries)
			if err != nil {
				t.Fatalf("%s after %d entries: %v", j.name, n, err)
			}
			cases = append(cases, replayCase{Base: j.base, Entries: entries, Got: got})
			names = append(names, fmt.Sprintf("%s after %d of %d entries", j.name, n, len(j.entries)))
		}
		for _, e := range j.entries {
			countMembers(t, kinds, e)
		}
	}
	for i, result := range replayOfficially(t, cases) {
		if diff := gocmp.Diff(comparableState(result.Want), comparableState(result.Got)); diff != "" || result.Error != "" {
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
	if err := json.Unmarshal(entry, &e); err != nil {
		t.Fatal(err)
	}
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
