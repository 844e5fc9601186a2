// Command minserver is the baseline for the server benchmarks: a bare long-poll queue with one
// writer, on the same SQLite library and sync level as the product. It appends logs to files. To
// measure the minimum cost, it omits tenants, leases, epochs, checks and most of the API.
//
//	POST /enqueue          body: shell command → ID
//	GET  /poll             held up to 25 s → "id\ncommand", or 204
//	POST /log?job=N        body appended to the job's log
//	GET  /log?job=N&offset=M → at most 1 MiB of the log
//	POST /finish?job=N     body: exit code; the log is synced before the response
//	GET  /state?job=N      queued, claimed or finished
//	GET  /ready            succeeds when the server accepts requests
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	_ "modernc.org/sqlite"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: minserver ADDR DIR")
		os.Exit(2)
	}
	s, err := open(os.Args[2])
	if err == nil {
		server := &http.Server{Addr: os.Args[1], Handler: s.routes(), ReadHeaderTimeout: 10 * time.Second}
		err = server.ListenAndServe()
	}
	fmt.Fprintln(os.Stderr, "minserver:", err)
	os.Exit(1)
}

const schema = `
CREATE TABLE IF NOT EXISTS jobs (id INTEGER PRIMARY KEY, command TEXT NOT NULL, state TEXT NOT NULL, code INTEGER NOT NULL DEFAULT 0);
CREATE INDEX IF NOT EXISTS queue ON jobs (state, id);`

type server struct {
	dir  string
	db   *sql.DB
	wake chan struct{} // one token per runnable job

	writing sync.Mutex

	mu   sync.Mutex
	logs map[string]*os.File
}

func open(dir string) (*server, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", filepath.Join(dir, "min.db")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	if _, err := db.Exec(schema); err != nil { //nolint:noctx // once, at start
		return nil, err
	}
	s := &server{dir: dir, db: db, wake: make(chan struct{}, 1<<20), logs: map[string]*os.File{}}
	return s, nil
}

// write runs a function in a transaction. Transactions run one at a time.
func (s *server) write(do func(*sql.Tx) error) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	tx, err := s.db.BeginTx(context.Background(), nil)
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func (s *server) routes() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, h func(http.ResponseWriter, *http.Request) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := h(w, r); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		})
	}
	handle("POST /enqueue", s.enqueue)
	handle("GET /poll", s.poll)
	handle("POST /log", s.log)
	handle("GET /log", s.show)
	handle("POST /finish", s.finish)
	handle("GET /state", s.state)
	handle("GET /ready", func(http.ResponseWriter, *http.Request) error { return nil })
	return mux
}

func (s *server) enqueue(w http.ResponseWriter, r *http.Request) error {
	command, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	var id int64
	err = s.write(func(tx *sql.Tx) error {
		return tx.QueryRow(`INSERT INTO jobs (command, state) VALUES (?, 'queued') RETURNING id`, string(command)).Scan(&id) //nolint:noctx // a write must complete even if the request is canceled
	})
	if err != nil {
		return err
	}
	s.wake <- struct{}{}
	_, err = fmt.Fprint(w, id)
	return err
}

func (s *server) poll(w http.ResponseWriter, r *http.Request) error {
	select {
	case <-s.wake:
	default:
		if !s.wait(r.Context()) {
			w.WriteHeader(http.StatusNoContent)
			return nil
		}
	}
	var id int64
	var command string
	err := s.write(func(tx *sql.Tx) error {
		return tx.QueryRow(`UPDATE jobs SET state = 'claimed' WHERE id = (SELECT id FROM jobs WHERE state = 'queued' ORDER BY id LIMIT 1) RETURNING id, command`).Scan(&id, &command) //nolint:noctx // a write must complete even if the request is canceled
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%d\n%s", id, command)
	return err
}

func (s *server) wait(ctx context.Context) bool {
	hold := time.NewTimer(25 * time.Second)
	defer hold.Stop()
	select {
	case <-s.wake:
		return true
	case <-hold.C:
	case <-ctx.Done():
	}
	return false
}

func (s *server) file(job string) (*os.File, error) {
	if _, err := strconv.ParseInt(job, 10, 64); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.logs[job]; f != nil {
		return f, nil
	}
	f, err := os.OpenFile(filepath.Join(s.dir, job+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		s.logs[job] = f
	}
	return f, err
}

func (s *server) log(_ http.ResponseWriter, r *http.Request) error {
	f, err := s.file(r.URL.Query().Get("job"))
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r.Body)
	return err
}

func (s *server) show(w http.ResponseWriter, r *http.Request) error {
	job, err := strconv.ParseInt(r.URL.Query().Get("job"), 10, 64)
	if err != nil {
		return err
	}
	offset, err := strconv.ParseInt(r.URL.Query().Get("offset"), 10, 64)
	if err != nil {
		return err
	}
	f, err := os.Open(filepath.Join(s.dir, strconv.FormatInt(job, 10)+".log"))
	if errors.Is(err, os.ErrNotExist) {
		return nil // no output yet
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	_, err = io.Copy(w, io.NewSectionReader(f, offset, 1<<20))
	return err
}

func (s *server) finish(_ http.ResponseWriter, r *http.Request) error {
	job := r.URL.Query().Get("job")
	f, err := s.file(job)
	if err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.logs, job)
	s.mu.Unlock()
	code, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	return s.write(func(tx *sql.Tx) error {
		_, err := tx.Exec(`UPDATE jobs SET state = 'finished', code = ? WHERE id = ?`, string(code), job) //nolint:noctx // a write must complete even if the request is canceled
		return err
	})
}

func (s *server) state(w http.ResponseWriter, r *http.Request) error {
	var state string
	if err := s.db.QueryRowContext(r.Context(), `SELECT state FROM jobs WHERE id = ?`, r.URL.Query().Get("job")).Scan(&state); err != nil {
		return err
	}
	_, err := io.WriteString(w, state)
	return err
}
