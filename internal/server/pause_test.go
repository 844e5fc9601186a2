package server

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/config"
)

// serveEnv makes the test binary run a server, configured by the environment.
const serveEnv = "WORKFLOW_TEST_SERVE"

func TestMain(m *testing.M) {
	if os.Getenv(serveEnv) != "" {
		if err := serveForTest(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(storetest.Main(m))
}

func serveForTest() error {
	ctx := context.Background()
	cfg, err := config.Load(config.ProcessOptions("", nil))
	if err != nil {
		return err
	}
	s, err := New(ctx, cfg, "v1", storetest.Log(), io.Discard)
	if err != nil {
		return err
	}
	fmt.Println(s.URL())
	return s.Run(ctx)
}

// pauseLease is the update lease of the paused servers; pause is the duration of each pause.
const (
	pauseLease = time.Second
	pause      = 2 * pauseLease
)

type serverProcess struct {
	t        *testing.T
	dir      string
	settings []string
	cmd      *exec.Cmd
	url      string
}

func startServerProcess(t *testing.T, dir string, settings ...string) *serverProcess {
	t.Helper()
	p := &serverProcess{t: t, dir: dir, settings: append(settings,
		serveEnv+"=1", "WORKFLOW_SERVER_LISTEN=127.0.0.1:0", "WORKFLOW_SERVER_DATA_DIR="+dir, "WORKFLOW_SERVER_ORGANIZATION=acme",
		"WORKFLOW_SERVER_UPDATE_LEASE="+pauseLease.String())}
	p.start()
	t.Cleanup(p.kill)
	return p
}

func (p *serverProcess) start() {
	p.t.Helper()
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env = append(os.Environ(), p.settings...)
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		p.t.Fatalf("starting a server: %v", err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		p.t.Fatalf("the server did not print its URL: %v", err)
	}
	p.url = strings.TrimSpace(line)
}

func (p *serverProcess) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

func (p *serverProcess) signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatalf("sending %s: %v", sig, err)
	}
}

func (p *serverProcess) call(method, path, auth string, body, v any) int {
	p.t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, p.url+path, bytes.NewReader(data))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Authorization", auth)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		p.t.Fatalf("%s %s: %v", method, path, err)
	}
	if v != nil && res.StatusCode == http.StatusOK {
		if err := json.Unmarshal(text, v); err != nil {
			p.t.Fatalf("%s %s: %v", method, path, err)
		}
	}
	return res.StatusCode
}

// makeStack creates the stack that tests pause, and returns the administrator's Authorization
// header.
func (p *serverProcess) makeStack() (admin string) {
	p.t.Helper()
	text, err := os.ReadFile(filepath.Join(p.dir, "admin-token"))
	if err != nil {
		p.t.Fatal(err)
	}
	admin = "token " + strings.TrimSpace(string(text))
	if code := p.call("POST", "/api/stacks/acme/proj", admin, map[string]any{"stackName": "dev"}, nil); code != 200 {
		p.t.Fatalf("creating a stack: status %d", code)
	}
	return admin
}

type runningUpdate struct{ path, token string }

const pausedStack = "/api/stacks/acme/proj/dev"

// startUpdate starts an update of the stack; ok is false if another update holds the stack.
func (p *serverProcess) startUpdate(admin string) (u runningUpdate, ok bool) {
	p.t.Helper()
	var made struct{ UpdateID string }
	program := map[string]any{"name": "proj", "runtime": "yaml", "config": map[string]any{}, "options": map[string]any{}}
	if code := p.call("POST", pausedStack+"/update", admin, program, &made); code != 200 {
		p.t.Fatalf("creating an update: status %d", code)
	}
	u.path = pausedStack + "/update/" + made.UpdateID
	var started struct{ Token string }
	switch code := p.call("POST", u.path, admin, map[string]any{}, &started); code {
	case 200:
		u.token = started.Token
		return u, true
	case 409:
		return u, false
	default:
		p.t.Fatalf("starting an update: status %d", code)
		return u, false
	}
}

func (p *serverProcess) mustStartUpdate(admin string) runningUpdate {
	p.t.Helper()
	u, ok := p.startUpdate(admin)
	if !ok {
		p.t.Fatal("another update holds the stack")
	}
	return u
}

func (p *serverProcess) renew(u runningUpdate) int {
	p.t.Helper()
	return p.call("POST", u.path+"/renew_lease", "update-token "+u.token, map[string]any{"duration": 300}, nil)
}

func (p *serverProcess) complete(u runningUpdate) {
	p.t.Helper()
	if code := p.call("POST", u.path+"/complete", "update-token "+u.token, map[string]any{"status": "succeeded"}, nil); code != 204 {
		p.t.Errorf("completing the update: status %d", code)
	}
}

// freed waits until the holder of the stack has lost its lease, and then starts an update.
func (p *serverProcess) freed(admin string) runningUpdate {
	p.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		if u, ok := p.startUpdate(admin); ok {
			return u
		}
		if time.Now().After(deadline) {
			p.t.Fatal("the lease of a client that stopped did not end")
		}
		<-time.After(50 * time.Millisecond)
	}
}

// TestPauseLongerThanTheUpdateLease suspends a real server during an update, and then kills and
// restarts it. Each outage is longer than the lease. The client must still be able to renew the
// lease.
func TestPauseLongerThanTheUpdateLease(t *testing.T) {
	t.Parallel()
	p := startServerProcess(t, filepath.Join(t.TempDir(), "data"))
	admin := p.makeStack()
	u := p.mustStartUpdate(admin)
	p.signal(syscall.SIGSTOP)
	<-time.After(pause)
	p.signal(syscall.SIGCONT)
	if code := p.renew(u); code != 200 {
		t.Errorf("renewing a lease after a pause of the server: status %d, want 200", code)
	}
	p.kill()
	<-time.After(pause)
	p.start()
	if code := p.renew(u); code != 200 {
		t.Errorf("renewing a lease after a restart of the server: status %d, want 200", code)
	}
	p.complete(u)

	// A silent client still loses its lease.
	gone := p.mustStartUpdate(admin)
	p.complete(p.freed(admin))
	if code := p.renew(gone); code != 403 {
		t.Errorf("renewing a lease that another update ended: status %d, want 403", code)
	}
}

// TestPauseOfReplicas first pauses one of two servers, which must not extend the lease of a silent
// client, and then both, which must extend every lease.
func TestPauseOfReplicas(t *testing.T) {
	t.Parallel()
	dsn := storetest.PostgresDSN(t)
	dir := t.TempDir()
	shared := sharedSettings(t, dsn)
	one := startServerProcess(t, filepath.Join(dir, "one"), shared...)
	two := startServerProcess(t, filepath.Join(dir, "two"), shared...)
	admin := one.makeStack()

	gone := one.mustStartUpdate(admin)
	one.signal(syscall.SIGSTOP)
	u := two.freed(admin)
	one.signal(syscall.SIGCONT)
	if code := one.renew(gone); code != 403 {
		t.Errorf("renewing a lost lease at the server that was paused alone: status %d, want 403", code)
	}

	one.signal(syscall.SIGSTOP)
	two.signal(syscall.SIGSTOP)
	<-time.After(pause)
	two.signal(syscall.SIGCONT)
	one.signal(syscall.SIGCONT)
	if code := one.renew(u); code != 200 {
		t.Errorf("renewing a lease after both servers were paused: status %d, want 200", code)
	}
	if code := one.renew(gone); code != 403 {
		t.Errorf("renewing the lease of an update that was replaced: status %d, want 403", code)
	}
	// Both servers noticed the pause, and only one extended the lease.
	two.complete(two.freed(admin))
}

// TestPauseInsideAWrite suspends one of two servers inside a write. The writes of the other one must wait
// only until the database ends the transaction, and the server that continues must repeat its write.
func TestPauseInsideAWrite(t *testing.T) {
	t.Parallel()
	dsn := storetest.PostgresDSN(t)
	dir := t.TempDir()
	shared := sharedSettings(t, dsn)
	one := startServerProcess(t, filepath.Join(dir, "one"), shared...)
	two := startServerProcess(t, filepath.Join(dir, "two"), shared...)
	admin := one.makeStack()
	if code := one.call("POST", "/api/orgs/acme/agent-pools", admin, map[string]any{"name": "p"}, nil); code != 200 {
		t.Fatalf("creating a pool: status %d", code)
	}
	deploy := func(p *serverProcess) int {
		return p.call("POST", pausedStack+"/deployments", admin, map[string]any{"operation": "update"}, nil)
	}
	if code := one.call("PUT", pausedStack+"/deployments/settings", admin, map[string]any{}, nil); code != 200 {
		t.Fatalf("storing settings: status %d", code)
	}
	if code := deploy(one); code != 202 {
		t.Fatalf("the first deployment: status %d", code)
	}

	// The row lock holds the first server inside its write until the server is suspended.
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	hold, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := hold.ExecContext(t.Context(), "UPDATE stack_queues SET last_version = last_version"); err != nil {
		t.Fatal(err)
	}
	backend := func(condition string) {
		t.Helper()
		deadline := time.Now().Add(time.Minute)
		query := "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%stack_queues%' AND " + condition
		for n := 0; n == 0; <-time.After(10 * time.Millisecond) {
			if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
				t.Fatal(err)
			}
			if time.Now().After(deadline) {
				t.Fatalf("no connection is in the state %q", condition)
			}
		}
	}
	interrupted := make(chan int, 1)
	go func() { interrupted <- deploy(one) }()
	backend("wait_event_type = 'Lock'")
	one.signal(syscall.SIGSTOP)
	if err := hold.Rollback(); err != nil {
		t.Fatal(err)
	}
	backend("state = 'idle in transaction'")

	// The status would be 503 after the timeout of locks.
	if code := deploy(two); code != 202 {
		t.Errorf("a deployment at the other server: status %d, want 202", code)
	}
	one.signal(syscall.SIGCONT)
	if code := <-interrupted; code != 202 {
		t.Errorf("the deployment at the server that was paused: status %d, want 202", code)
	}
	var list struct{ Deployments []struct{ Version int } }
	if code := two.call("GET", pausedStack+"/deployments", admin, nil, &list); code != 200 {
		t.Fatalf("listing the deployments: status %d", code)
	}
	if d := list.Deployments; len(d) != 3 || d[0].Version != 3 || d[1].Version != 2 || d[2].Version != 1 {
		t.Errorf("the deployments are %+v, want the versions 3, 2 and 1", d)
	}
}

func sharedSettings(t *testing.T, dsn string) []string {
	t.Helper()
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32))), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"WORKFLOW_SERVER_DATABASE=" + dsn, "WORKFLOW_SERVER_MASTER_KEY_FILE=" + key}
}

func TestDatabaseThatTakesNoWrites(t *testing.T) {
	t.Parallel()
	test := func(t *testing.T, dsn, dir string, settings ...string) {
		p := startServerProcess(t, dir, settings...)
		admin := p.makeStack()
		u := p.mustStartUpdate(admin)
		release := storetest.Occupy(t, dsn)
		<-time.After(pause)
		release()
		if code := p.renew(u); code != 200 {
			t.Errorf("renewing a lease after the database accepted no writes for a while: status %d, want 200", code)
		}
		p.complete(p.freed(admin))
	}
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		dir := filepath.Join(t.TempDir(), "data")
		test(t, "sqlite:"+filepath.Join(dir, "server.db"), dir)
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		dsn := storetest.PostgresDSN(t)
		test(t, dsn, filepath.Join(t.TempDir(), "data"), sharedSettings(t, dsn)...)
	})
}
