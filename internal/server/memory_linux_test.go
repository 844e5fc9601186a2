package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"golang.org/x/sys/unix"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/protocol"
)

const (
	// memoryLimit is the GOMEMLIMIT of the attacked server.
	memoryLimit = 384 << 20
	// memoryPeak bounds the server's memory: the memory of the Go runtime, which can exceed its
	// limit between two collections, plus 16 MiB of cache per SQLite connection. Measured peaks
	// were 430 to 680 MiB, and 1868 MiB without bounds on requests.
	memoryPeak = 768 << 20
	// memoryRoom bounds the address space that the server uses in addition to its use when idle.
	// Beyond it, the kernel rejects allocations and the server crashes. Address space includes
	// reservations, which Go never returns: the heap and SQLite's caches reserved 1.3 GiB in a test
	// with peaks below 512 MiB.
	memoryRoom    = 3 << 30
	memoryClients = 20
	// heavyClients is the number of clients for requests that take seconds of CPU, unless
	// WORKFLOW_E2E_FULL is set. Together they need more than the whole budget.
	heavyClients = 6
)

type boundedServer struct {
	t       *testing.T
	cmd     *exec.Cmd
	url     string
	admin   string
	ended   chan error
	failure atomic.Value // the last error in the log
}

// startBounded builds the server as a separate program, because the race detector changes how much
// memory a program needs.
func startBounded(t *testing.T) *boundedServer {
	t.Helper()
	dir := t.TempDir()
	bin := filepath.Join(dir, "workflow-server")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", bin, "workflowagent/cmd/workflow-server")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as in a release, so that packages come from the build cache
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the server: %v\n%s", err, out)
	}
	g := &boundedServer{t: t, cmd: exec.Command(bin, "serve"), ended: make(chan error, 1)}
	data := filepath.Join(dir, "data")
	g.cmd.Env = append(os.Environ(), fmt.Sprintf("GOMEMLIMIT=%d", memoryLimit), "WORKFLOW_SERVER_LISTEN=127.0.0.1:0",
		"WORKFLOW_SERVER_DATA_DIR="+data, "WORKFLOW_SERVER_ORGANIZATION=acme", "WORKFLOW_SERVER_LOG_FORMAT=json")
	log, err := g.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = g.cmd.Process.Kill()
		<-g.ended
	})
	serving := make(chan string, 1)
	go func() {
		tail := g.follow(log, serving)
		g.ended <- fmt.Errorf("%w: %s", g.cmd.Wait(), tail)
		close(g.ended)
	}()
	select {
	case g.url = <-serving:
	case <-time.After(time.Minute):
		t.Fatal("the server did not start")
	}
	token, err := os.ReadFile(filepath.Join(data, "admin-token"))
	if err != nil {
		t.Fatal(err)
	}
	g.admin = "token " + strings.TrimSpace(string(token))
	limit := unix.Rlimit{Cur: g.status("VmSize") + memoryRoom, Max: g.status("VmSize") + memoryRoom}
	if err := unix.Prlimit(g.cmd.Process.Pid, unix.RLIMIT_AS, &limit, nil); err != nil {
		t.Fatalf("limiting the server: %v", err)
	}
	return g
}

// follow reads the log, sends the URL to serving, and returns the first line of a runtime crash.
func (g *boundedServer) follow(log io.Reader, serving chan<- string) string {
	dec := json.NewDecoder(log)
	for {
		var line struct{ Msg, URL, Level, Error string }
		if err := dec.Decode(&line); err != nil {
			rest, _ := io.ReadAll(io.LimitReader(io.MultiReader(dec.Buffered(), log), 300))
			_, _ = io.Copy(io.Discard, log)
			return string(rest)
		}
		if line.Level == "error" {
			g.failure.Store(line.Msg + ": " + line.Error)
		}
		if line.Msg == "serving" {
			serving <- line.URL
		}
	}
}

func (g *boundedServer) status(name string) uint64 {
	g.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", g.cmd.Process.Pid))
	if err != nil {
		g.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var kib uint64
		if n, _ := fmt.Sscanf(line, name+": %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	g.t.Fatalf("the status of the process has no %s: %s", name, text)
	return 0
}

func (g *boundedServer) cpu() time.Duration {
	g.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", g.cmd.Process.Pid))
	if err != nil {
		g.t.Fatal(err)
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	user, _ := strconv.Atoi(fields[11]) // in hundredths of a second
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

func (g *boundedServer) peak() uint64 {
	g.t.Helper()
	n := g.status("VmHWM")
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", g.cmd.Process.Pid), []byte("5"), 0); err != nil {
		g.t.Fatal(err)
	}
	return n
}

type message struct {
	method, path, auth string
	body               []byte // gzip-compressed; nil for none
	header             map[string]string
}

func (g *boundedServer) try(ctx context.Context, q message, into any) (int, error) {
	req, err := http.NewRequestWithContext(ctx, q.method, g.url+q.path, bytes.NewReader(q.body))
	if err != nil {
		return 0, err
	}
	if q.auth == "" {
		q.auth = g.admin
	}
	req.Header.Set("Authorization", q.auth)
	if q.body != nil {
		req.Header.Set("Content-Encoding", "gzip")
	}
	for k, v := range q.header {
		req.Header.Set(k, v)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	if into != nil {
		return res.StatusCode, json.NewDecoder(res.Body).Decode(into)
	}
	_, err = io.Copy(io.Discard, res.Body)
	return res.StatusCode, err
}

func (g *boundedServer) do(method, path, auth, body string, into any) {
	g.t.Helper()
	status, err := g.try(g.t.Context(), message{method: method, path: path, auth: auth, body: packed(body)}, into)
	if err != nil || status >= 300 {
		g.t.Fatalf("%s %s: %d, %v", method, path, status, err)
	}
}

func packed(body string) []byte {
	if body == "" {
		return nil
	}
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	_, _ = io.WriteString(z, body) // a buffer accepts all writes
	_ = z.Close()
	return buf.Bytes()
}

// TestMemoryOfRoutes attacks each route: 20 clients, or 6 for requests that take seconds, send the
// worst body or read the largest response. The server must survive under a hard memory limit and
// respond to every request, with status 503 if its memory is in use. With WORKFLOW_E2E_FULL, 20
// clients always send five requests each.
func TestMemoryOfRoutes(t *testing.T) {
	storetest.OnSQLite(t)
	full, rounds := os.Getenv("WORKFLOW_E2E_FULL") != "", 1
	if full {
		rounds = 5
	}
	g := startBounded(t)
	attacks := g.attacks()
	g.peak()
	for _, a := range attacks {
		clients := memoryClients
		if a.heavy && !full {
			clients = heavyClients
		}
		began, used := time.Now(), g.cpu()
		ok, busy := g.attack(a.name, a.message, clients, rounds)
		peak := g.peak()
		t.Logf("%-22s peak %4d MiB, %2d served, %2d put off, %.1f s, %.1f s of CPU, %d MiB of address space", a.name, peak>>20, ok, busy,
			time.Since(began).Seconds(), (g.cpu() - used).Seconds(), g.status("VmPeak")>>20)
		if peak > memoryPeak {
			t.Errorf("%s: the server took %d MiB, more than %d MiB", a.name, peak>>20, memoryPeak>>20)
		}
		if ok == 0 {
			t.Errorf("%s: no request was served", a.name)
		}
	}
	g.do("GET", "/readyz", "", "", nil)
}

// attack sends a request from several clients. It returns the number of requests that were served,
// and the number that the server rejected because its memory was in use.
func (g *boundedServer) attack(name string, q message, clients, rounds int) (ok, busy int) {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), 2*time.Minute)
	defer cancel()
	var mu sync.Mutex
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for range rounds {
				status, err := g.try(ctx, q, nil)
				mu.Lock()
				switch {
				case err != nil:
					g.t.Errorf("%s: %v", name, err)
				case status == http.StatusServiceUnavailable:
					busy++
				case status >= 500:
					g.t.Errorf("%s: status %d, %v", name, status, g.failure.Load())
				default:
					ok++
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	select {
	case err := <-g.ended:
		g.t.Fatalf("%s: the server died: %v", name, err)
	default:
	}
	return ok, busy
}

type attack struct {
	name string
	message
	heavy bool
}

func (g *boundedServer) attacks() []attack {
	g.t.Helper()
	const stacks = "/api/stacks/acme/proj"
	g.do("POST", stacks, "", `{"stackName":"dev"}`, nil)
	dev := stacks + "/dev"
	post := func(path, body string) message { return message{method: "POST", path: path, body: packed(body)} }
	get := func(path string) message { return message{method: "GET", path: path} }
	many := func(n int, element string) string { return strings.Repeat(element+",", n-1) + element }
	state := func(size int) string {
		return `{"version":3,"deployment":{"resources":[` + many(1000, `{"urn":"u"}`) + `],"x":[` + many(size/3, "{}") + `]}}`
	}

	g.do("POST", dev+"/import", "", state(24<<20), nil)
	// a history with many large configurations
	program := `{"name":"proj","runtime":"yaml","metadata":{"message":"m","environment":{}},"config":{"k":{"string":"` + strings.Repeat(`\"`, 900<<10) + `"}}}`
	var last, token string
	for range 8 {
		last, token = g.update(dev, program)
		g.do("POST", dev+"/update/"+last+"/complete", "update-token "+token, `{"status":"succeeded"}`, nil)
	}
	running, lease := g.update(dev, program)
	running, lease = dev+"/update/"+running, "update-token "+lease
	for i := range 4 {
		g.do("POST", running+"/events/batch", lease, fmt.Sprintf(`{"events":[{"sequence":%d,"x":"%s"}]}`, i, strings.Repeat(`\"`, 7<<20)), nil)
	}
	leased := func(q message) message { q.auth = lease; return q }
	log, step := g.log(dev)

	all := []attack{
		{"batch-encrypt", post(dev+"/batch-encrypt", `{"plaintexts":[`+many(8<<20, `""`)+`]}`), true},
		{"batch-encrypt, accepted", post(dev+"/batch-encrypt", `{"plaintexts":[`+many(10_000, `"`+strings.Repeat("A", 1000)+`"`)+`]}`), true},
		{"batch-decrypt", post(dev+"/batch-decrypt", `{"ciphertexts":[`+many(8<<20, `""`)+`]}`), true},
		{"encrypt", post(dev+"/encrypt", `{"plaintext":"`+strings.Repeat("A", 7<<20)+`"}`), true},
		{"events", leased(post(running+"/events/batch", `{"events":[{"sequence":9,"x":[`+many(190_000, "[]")+`]}]}`)), true},
		{"events, too many", leased(post(running+"/events/batch", `{"events":[`+many(8<<20, `{}`)+`]}`)), true},
		{"one event", leased(post(running+"/events", `{"sequence":9,"x":[`+many(49_000, "[]")+`]}`)), false},
		{"checkpoint", leased(message{method: "PATCH", path: running + "/checkpoint", body: packed(state(24 << 20))}), true},
		{"checkpoint, nested", leased(message{method: "PATCH", path: running + "/checkpoint", body: packed(`{"version":3,"deployment":{"x":` + strings.Repeat("[", 9990) + strings.Repeat("]", 9990) + `}}`)}), false},
		{"checkpoint, too large", leased(message{method: "PATCH", path: running + "/checkpoint", body: packed(strings.Repeat(" ", 256<<20))}), true},
		{"a new stack", post(stacks, `{"stackName":"a b","state":`+state(24<<20)+`}`), true},
		{"create an update", post(dev+"/update", `{"config":{"k":{"string":"`+strings.Repeat("<", 1<<18)+`"}},"options":{"x":[`+many(49_000, "{}")+`]}}`), false},
		{"tags", message{method: "PATCH", path: dev + "/tags", body: packed(`{"a":"` + strings.Repeat("x", 7<<20) + `"}`)}, false},
		{"settings", message{method: "PUT", path: dev + "/deployments/settings", body: packed(`{"operationContext":{"preRunCommands":[` + many(9900, `"a"`) + `]}}`)}, false},
		{"settings, nested", post(dev+"/deployments/settings", strings.Repeat(`{"a":`, 490)+"1"+strings.Repeat("}", 490)), false},
		{"token exchange", post("/api/oauth/token", `{"x":[`+many(20_000, `{}`)+`]}`), false},
		{"log chunks", message{method: "PUT", path: log + "/log?offset=0", auth: step, body: packed(strings.Repeat("x", 8<<20))}, true},
		{"log lines", message{method: "POST", path: log + "/logs", auth: step, body: packed(`{"offset":0,"lines":[` + many(24_000, `{}`) + `]}`)}, false},
		{"a result", message{method: "POST", path: strings.TrimSuffix(log, "/1") + "/result", auth: step, body: packed(`{"status":"x","steps":[` + many(49_000, `{}`) + `]}`)}, false},
		{"export", get(dev + "/export"), true},
		{"history", get(dev + "/updates"), true},
		{"history, one page", get(dev + "/updates?output-type=service&page=1&pageSize=1000000"), true},
		{"events, read", get(running + "/events"), true},
		{"deployments", get("/api/orgs/acme/deployments?pageSize=100"), false},
		{"stacks", get("/api/user/stacks?maxResults=1000"), false},
	}
	var deployments struct{ Deployments []struct{ ID string } }
	g.do("GET", dev+"/deployments", "", "", &deployments)
	logs := dev + "/deployments/" + deployments.Deployments[0].ID + "/logs"
	var page struct{ NextToken string }
	g.do("GET", logs, "", "", &page)
	return append(all,
		attack{"a page of log", get(logs + "?wait=0&continuationToken=" + page.NextToken), true},
		attack{"a page of a step's log", get(logs + "?job=0&step=1&offset=0&count=499"), true},
		attack{"uploads in one piece", message{method: "POST", path: dev + "/import", body: packed(state(96 << 20))}, true},
		attack{"rename", post(dev+"/rename", `{"newName":"prod"}`), true},
	)
}

func (g *boundedServer) update(stack, program string) (id, token string) {
	g.t.Helper()
	var created struct{ UpdateID string }
	g.do("POST", stack+"/update", "", program, &created)
	var started struct{ Token string }
	g.do("POST", stack+"/update/"+created.UpdateID, "", "{}", &started)
	return created.UpdateID, started.Token
}

// log creates a deployment whose log consists of 64 MiB of long lines that JSON must escape. It
// returns the path of the deployment's first step and the job's token.
func (g *boundedServer) log(stack string) (path, auth string) {
	g.t.Helper()
	var pool struct{ ID, TokenValue string }
	g.do("POST", "/api/orgs/acme/agent-pools", "", `{"name":"p"}`, &pool)
	g.do("PUT", stack+"/deployments/settings", "", `{"agentPoolID":"`+pool.ID+`","sourceContext":{"git":{"repoUrl":"https://example.com/a/b.git","branch":"main"}}}`, nil)
	g.do("POST", stack+"/deployments", "", `{"operation":"update"}`, nil)
	var claim protocol.PollResponse
	if _, err := g.try(g.t.Context(), message{method: "GET", path: "/api/deployments/poll", auth: "token " + pool.TokenValue}, &claim); err != nil || claim.JobID == "" {
		g.t.Fatalf("polling: %+v, %v", claim, err)
	}
	auth, path = "token "+claim.JobToken, "/api/workflow/jobs/"+claim.JobID
	g.do("GET", path, auth, "", nil)
	line := bytes.Repeat([]byte(`"`), protocol.MaxFrameText)
	offset := 0
	for range 9 {
		var framed []byte
		for range 115 {
			framed = protocol.AppendFrame(framed, time.Now(), false, line)
		}
		g.do("PUT", fmt.Sprintf("%s/1/log?offset=%d", path, offset), auth, string(framed), nil)
		offset += len(framed)
	}
	g.do("PATCH", path+"/1/status", auth, `{"status":"running"}`, nil)
	return path + "/1", auth
}
