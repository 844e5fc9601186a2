package clients

import (
	"bytes"
	"context"
	"crypto/rand"
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
	"sync"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // creates a database

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/lab/child"
	"workflowagent/internal/dev/lab/postgres"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/protocol"
)

// lossy is an installation that is lost. Its server always has the same URL, which the states remember.
type lossy struct {
	t         *testing.T
	bin       string
	tools     lab.Tools
	home, dir string
	port      int
	database  string // "" is SQLite
	server    *lab.Server
	token     []byte
}

func newLossy(t *testing.T, database string) *lossy {
	t.Helper()
	l := &lossy{t: t, dir: t.TempDir(), database: database, port: must.Get(child.FreePort("127.0.0.1"))(t)}
	l.bin, l.tools = harness.Programs(t)
	l.home = filepath.Join(l.dir, "home")
	must.OK(t, l.tools.Home(l.home))
	l.start()
	l.token = must.Get(os.ReadFile(filepath.Join(l.server.DataDir, "admin-token")))(t)
	t.Cleanup(func() {
		_ = l.server.Process.Stop(syscall.SIGKILL, harness.Patience)
		if t.Failed() {
			t.Log(child.Tail(l.server.LogFile, 40))
		}
	})
	return l
}

func (l *lossy) start() {
	l.t.Helper()
	l.server = must.Get(lab.StartServer(context.WithoutCancel(l.t.Context()), lab.ServerOptions{
		Binary: filepath.Join(l.bin, "workflow-server"), Dir: l.dir, Port: l.port, Database: l.database, Env: os.Environ(),
	}))(l.t)
}

// administer runs a command of the server.
func (l *lossy) administer(args ...string) []byte {
	l.t.Helper()
	cmd := exec.CommandContext(l.t.Context(), filepath.Join(l.bin, "workflow-server"), append(args, "--data-dir", l.server.DataDir)...)
	cmd.Env = os.Environ()
	if l.database != "" {
		cmd.Env = append(cmd.Env, "WORKFLOW_SERVER_DATABASE="+l.database)
	}
	var problem strings.Builder
	cmd.Stderr = &problem
	out, err := cmd.Output()
	if err != nil {
		l.t.Fatalf("workflow-server %s: %v\n%s", strings.Join(args, " "), err, problem.String())
	}
	return out
}

// pulumi runs the CLI on the program in a directory.
func (l *lossy) pulumi(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, l.tools.Pulumi(), append(args, "--non-interactive")...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), l.tools.Env(l.home, l.server.URL, l.server.Token)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("pulumi %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

func (l *lossy) program(name, resources string) (dir string) {
	l.t.Helper()
	dir = filepath.Join(l.dir, name)
	must.OK(l.t, os.MkdirAll(dir, 0o700))
	harness.Write(l.t, filepath.Join(dir, "Pulumi.yaml"), []byte("name: "+name+"\nruntime: yaml\nresources:\n"+resources), 0o600)
	return dir
}

// claimed is the running job of an agent.
type claimed struct {
	protocol.PollResponse
	written int64
}

// claim starts a deployment, and claims it as an agent does.
func (l *lossy) claim() *claimed {
	l.t.Helper()
	ctx := l.t.Context()
	_, token, err := l.server.Pool(ctx, "pool")
	must.OK(l.t, err)
	stack := "/api/stacks/" + l.server.Organization + "/kept/dev"
	request := json.RawMessage(`{"operation": "update", "inheritSettings": false, "sourceContext": {"git": {"repoURL": "https://git.test/r.git", "branch": "main"}}}`)
	must.OK(l.t, l.server.Call(ctx, http.MethodPost, stack+"/deployments", request, nil))
	var j claimed
	must.OK(l.t, json.Unmarshal(must.Get(l.send(http.MethodGet, "/api/deployments/poll", token, nil))(l.t), &j.PollResponse))
	must.Get(l.send(http.MethodPost, "/api/workflow/jobs/"+j.JobID+"/heartbeat", j.JobToken, []byte(`{"phase": "starting"}`)))(l.t)
	return &j
}

// send sends a request of an agent.
func (l *lossy) send(method, path, token string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(l.t.Context(), method, l.server.URL+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "token "+token)
	req.Header.Set(protocol.HeaderAgentID, "agent")
	req.Header.Set(protocol.HeaderAgentSession, "session")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s %s", method, path, res.Status, answer)
	}
	return answer, err
}

// print adds about a number of bytes, which cannot be compressed, to the log of a job.
func (l *lossy) print(j *claimed, size int) error {
	const lines = 3 << 20 // in a request
	for ; size > 0; size -= lines {
		noise := make([]byte, min(size, lines)*3/4)
		_, _ = rand.Read(noise) // never fails
		text := []byte(base64.StdEncoding.EncodeToString(noise))
		var body []byte
		for len(text) > 0 {
			n := min(len(text), protocol.MaxFrameText)
			body = append(body, "2026-11-29T14:05:00.000000Z "...)
			body = append(append(body, text[:n]...), '\n')
			text = text[n:]
		}
		if _, err := l.send(http.MethodPut, fmt.Sprintf("/api/workflow/jobs/%s/0/log?offset=%d", j.JobID, j.written), j.JobToken, body); err != nil {
			return err
		}
		j.written += int64(len(body))
	}
	return nil
}

// backUp writes a backup while a job prints and a CLI updates a stack, and returns its size.
func (l *lossy) backUp(j *claimed, dir string, args ...string) (size int64) {
	l.t.Helper()
	working, stop := context.WithCancel(l.t.Context())
	defer stop()
	const file = "  file: {type: lab:File, properties: {path: ./file, content: '0'}}\n"
	busy := l.program("busy", file)
	must.Get(l.pulumi(working, busy, "stack", "init", "dev"))(l.t)
	must.OK(l.t, l.print(j, 1000))
	var load sync.WaitGroup
	updates := 0
	load.Go(func() {
		for ; working.Err() == nil; updates++ {
			// An update that has begun ends also after the backup.
			if _, err := l.pulumi(context.WithoutCancel(working), busy, "up", "--yes", "--skip-preview"); err != nil {
				l.t.Error(err)
				return
			}
			text := "name: busy\nruntime: yaml\nresources:\n" + strings.Replace(file, "'0'", fmt.Sprintf("'%d'", updates+1), 1)
			if err := os.WriteFile(filepath.Join(busy, "Pulumi.yaml"), []byte(text), 0o600); err != nil {
				l.t.Error(err)
				return
			}
		}
	})
	load.Go(func() {
		for working.Err() == nil {
			if err := l.print(j, 1000); err != nil {
				l.t.Error(err)
				return
			}
		}
	})
	var b struct{ Bytes int64 }
	must.OK(l.t, json.Unmarshal(l.administer(append([]string{"backup", dir, "--json"}, args...)...), &b))
	stop()
	load.Wait()
	if updates == 0 {
		l.t.Error("no update ran during the backup")
	}
	return b.Bytes
}

// lose kills the server and removes its data.
func (l *lossy) lose() {
	l.t.Helper()
	must.OK(l.t, l.server.Process.Stop(syscall.SIGKILL, harness.Patience))
	must.OK(l.t, os.RemoveAll(l.server.DataDir))
	must.OK(l.t, os.Mkdir(l.server.DataDir, 0o700))
}

// restore restores a backup to a database, and releases the server.
func (l *lossy) restore(dir, database string, args ...string) {
	l.t.Helper()
	l.database = database
	l.administer(append([]string{"restore", dir}, args...)...)
	must.OK(l.t, os.WriteFile(filepath.Join(l.server.DataDir, "admin-token"), l.token, 0o600)) // the administrator has it
	l.start()
	l.administer("restore", "release", "--all")
}

// TestClientsAfterRestore loses installations that were backed up under load, and restores each with SQLite and with
// PostgreSQL. Afterwards, pulumi up has nothing to change.
func TestClientsAfterRestore(t *testing.T) {
	reason, available := postgres.Available()
	database := func(t *testing.T, engine string) string {
		t.Helper()
		if engine == "sqlite" {
			return ""
		}
		dsn, stop, err := postgres.Start(t.Context(), t.TempDir())
		must.OK(t, err)
		t.Cleanup(stop)
		return dsn
	}
	for _, from := range []struct {
		engine string
		size   int
		sealed bool
	}{{"sqlite", 200 << 20, true}, {"postgres", 8 << 20, false}} {
		t.Run(from.engine, func(t *testing.T) {
			t.Parallel()
			if from.engine != "sqlite" && !available {
				t.Skip(reason)
			}
			source := database(t, from.engine)
			l := newLossy(t, source)
			kept := l.program("kept", "  file: {type: lab:File, properties: {path: ./file, content: content}}\n")
			for _, args := range [][]string{{"stack", "init", "dev"}, {"config", "set", "--secret", "word", "secret of the stack"}, {"up", "--yes", "--skip-preview"}} {
				must.Get(l.pulumi(t.Context(), kept, args...))(t)
			}
			j := l.claim()
			must.OK(t, l.print(j, from.size))
			backups := filepath.Join(l.dir, "backups")
			var sealing []string
			if from.sealed {
				sealing = []string{"--key-passphrase-file", filepath.Join(l.dir, "passphrase")}
				harness.Write(t, sealing[1], []byte("correct horse battery staple\n"), 0o600)
			}
			key := must.Get(os.ReadFile(filepath.Join(l.server.DataDir, "master-key")))(t)
			if size := l.backUp(j, backups, sealing...); size < int64(from.size) {
				t.Errorf("the backup has %d bytes, want at least %d", size, from.size)
			}
			for _, to := range []string{"sqlite", "postgres"} {
				if to != "sqlite" && !available {
					continue
				}
				l.lose()
				if !from.sealed {
					must.OK(t, os.WriteFile(filepath.Join(l.server.DataDir, "master-key"), key, 0o600))
				}
				target := ""
				switch {
				case to == "sqlite":
				case source == "":
					target = database(t, to)
				default: // another database of the same server
					target = newDatabase(t, source, "restored")
				}
				began := time.Now()
				l.restore(backups, target, sealing...)
				t.Logf("restored to %s and released within %s", to, time.Since(began).Round(time.Millisecond))
				if out, err := l.pulumi(t.Context(), kept, "up", "--yes", "--skip-preview", "--expect-no-changes"); err != nil || !strings.Contains(out, "2 unchanged") {
					t.Errorf("after the restore to %s: %v\n%s", to, err, out)
				}
				if out, err := l.pulumi(t.Context(), kept, "config", "get", "word"); err != nil || strings.TrimSpace(out) != "secret of the stack" {
					t.Errorf("after the restore to %s, the secret is %q, %v", to, out, err)
				}
			}
		})
	}
}

// newDatabase creates a database next to the first one of a server, and returns its address.
func newDatabase(t *testing.T, dsn, name string) string {
	t.Helper()
	db := must.Get(sql.Open("pgx", dsn))(t)
	defer db.Close()
	must.Get(db.ExecContext(t.Context(), "CREATE DATABASE "+name))(t)
	return strings.Replace(dsn, "/postgres?", "/"+name+"?", 1)
}
