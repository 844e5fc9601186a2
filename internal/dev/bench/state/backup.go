package state

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"workflowagent/internal/dev/bench/figures"
	"workflowagent/internal/dev/bench/site"
	"workflowagent/internal/dev/lab/postgres"
	"workflowagent/internal/retry"
)

// volume is the size of an installation.
type volume struct {
	stacks, states int // of each stack
	stateSize      int // in bytes
	rows           int // of events, of 64 KiB each
}

const rowSize = 64 << 10

func (v volume) bytes() int64 {
	return int64(v.stacks)*int64(v.states)*int64(v.stateSize) + int64(v.rows)*rowSize
}

// Backup backs up large installations while clients write states. A quick run has only SQLite.
func Backup(ctx context.Context, run *figures.Run) error {
	v := figures.Pick(run, volume{400, 50, 200_000, 16_000}, volume{40, 20, 200_000, 640})
	err := backups(ctx, run, "SQLite", v, site.Options{})
	if run.Quick {
		return err
	}
	if reason, ok := postgres.Available(); !ok {
		run.Skip("backups of PostgreSQL", reason)
		return err
	}
	return errors.Join(err, backups(ctx, run, "PostgreSQL", v, site.Options{Postgres: true}))
}

func backups(ctx context.Context, run *figures.Run, engine string, v volume, o site.Options) error {
	s, err := site.Start(ctx, run, o)
	if err != nil {
		return err
	}
	defer s.Close()
	run.Say("  filling the server with %.1f GB in %s", float64(v.bytes())/1e9, engine)
	if err := fill(ctx, s, v); err != nil {
		return err
	}
	dir, err := run.NewDir()
	if err != nil {
		return err
	}
	idle, err := writing(ctx, s, func(ctx context.Context) error {
		return retry.Sleep(ctx, figures.Pick(run, 20*time.Second, 5*time.Second))
	})
	if err != nil {
		return err
	}
	var took [2]float64
	var busy []float64
	for i := range took { // the second one contains the same states
		began := time.Now()
		times, err := writing(ctx, s, func(ctx context.Context) error { return backUp(ctx, run, s, dir) })
		if err != nil {
			return err
		}
		took[i] = time.Since(began).Seconds()
		busy = append(busy, times...)
	}
	_, peak, err := s.Memory()
	if err != nil {
		return err
	}
	size := float64(v.bytes()) / 1e9
	run.Add(fmt.Sprintf("%s: writes during backups of %.1f GB, p95", engine, size), "ms", []float64{figures.Quantile(busy, 0.95)}, figures.AtMost(100, false))
	run.Add(engine+": writes without a backup, p95", "ms", []float64{figures.Quantile(idle, 0.95)}, figures.Goal{})
	run.Add(engine+": the first backup", "s", took[:1], figures.Goal{})
	run.Add(engine+": the second backup, without new states", "s", took[1:], figures.Goal{})
	run.Add(engine+": peak RSS of the server", "MB", []float64{peak}, figures.AtMost(200, true))
	return nil
}

// insertStates adds the states n of the stacks s.
const insertStates = `INSERT INTO states (state_key, stack_id, form, parent, blob_key, sha256, size, depth, delta_size, full_size, base_resources, pulumi_version, created_at)
	SELECT 'stacks/' || s.id || '/' || n, s.id, 'full', '', 'stacks/' || s.id || '/' || n, `

// fill adds stacks with states and rows of events, none of which can be compressed.
func fill(ctx context.Context, s *site.Site, v volume) error {
	for i := range v.stacks {
		if err := s.NewStack(ctx, fmt.Sprintf("filled%d", i)); err != nil {
			return err
		}
	}
	if err := s.Call(ctx, http.MethodPost, s.StackPath("filled0")+"/import", json.RawMessage(site.State("filled0", 1)), nil); err != nil {
		return err
	}
	if s.Database != nil {
		return fillPostgres(ctx, s, v)
	}
	db, err := s.OpenSQLite("_pragma=busy_timeout(30000)&_txlock=immediate")
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	insert := func(what, statement string, args ...any) error {
		if _, err := db.ExecContext(ctx, statement, args...); err != nil {
			return fmt.Errorf("filling the server with %s: %w", what, err)
		}
		return nil
	}
	numbers := func(n int) string {
		return fmt.Sprintf("WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < %d) ", n-1)
	}
	err = insert("states", numbers(v.states)+insertStates+"x'', $1, 0, 0, $1, 0, '', $2 FROM numbers, stacks s", v.stateSize, time.Now().UnixMicro())
	if err != nil {
		return err
	}
	const piece = 100 // keeps transactions short
	for done := 0; done < v.rows; done += piece {
		err := insert("events", numbers(piece)+`INSERT INTO engine_events (update_id, sequence, body, events, size, packed)
			SELECT (SELECT id FROM updates LIMIT 1), $1 + n, '', 1, $2, randomblob($2) FROM numbers`, 1_000_000+done, rowSize)
		if err != nil {
			return err
		}
	}
	return writeBlobs(ctx, s, db, v)
}

// writeBlobs writes the files of the states.
func writeBlobs(ctx context.Context, s *site.Site, db *sql.DB, v volume) error {
	rows, err := db.QueryContext(ctx, "SELECT id FROM stacks")
	if err != nil {
		return fmt.Errorf("reading the stacks: %w", err)
	}
	defer func() { _ = rows.Close() }()
	random := rand.NewChaCha8([32]byte{})
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return fmt.Errorf("reading the stacks: %w", err)
		}
		dir := filepath.Join(s.Servers[0].DataDir, "blobs", "stacks", id)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("writing states: %w", err)
		}
		for n := range v.states {
			state := make([]byte, v.stateSize)
			_, _ = random.Read(state) // never fails
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(n)), state, 0o600); err != nil {
				return fmt.Errorf("writing states: %w", err)
			}
		}
	}
	return rows.Err()
}

// fillPostgres is the part of [fill] whose statements differ.
func fillPostgres(ctx context.Context, s *site.Site, v volume) error {
	db, random := s.Database.SQL(), rand.NewChaCha8([32]byte{})
	noise := func(size int) []byte {
		data := make([]byte, size)
		_, _ = random.Read(data) // never fails
		return data
	}
	_, err := db.ExecContext(ctx, insertStates+"''::bytea, $1::bigint, 0, 0, $1::bigint, 0, '', $2::bigint FROM stacks s, generate_series(0, $3::int - 1) n", v.stateSize, time.Now().UnixMicro(), v.states)
	if err != nil {
		return fmt.Errorf("filling the server with states: %w", err)
	}
	const piece = 10 // rows of a statement
	for done := 0; done < v.rows; done += piece {
		_, err := db.ExecContext(ctx, `INSERT INTO engine_events (update_id, sequence, body, events, size, packed)
			SELECT (SELECT id FROM updates LIMIT 1), $1::bigint + n, '', 1, $2::bigint, substr($3::bytea, (n * $2 + 1)::int, $2::int) FROM generate_series(0, $4::int - 1) n`,
			1_000_000+done, rowSize, noise(piece*rowSize), piece)
		if err != nil {
			return fmt.Errorf("filling the server with events: %w", err)
		}
	}
	for n := range v.states {
		for stack := range v.stacks {
			_, err := db.ExecContext(ctx, "INSERT INTO blob_chunks (blob_key, start_at, size, data) SELECT 'stacks/' || id || '/' || $1::text, 0, $2::bigint, $3::bytea FROM stacks WHERE name = $4",
				strconv.Itoa(n), v.stateSize, noise(v.stateSize), fmt.Sprintf("filled%d", stack))
			if err != nil {
				return fmt.Errorf("filling the server with states: %w", err)
			}
		}
	}
	return nil
}

const (
	writers    = 4
	writePause = 50 * time.Millisecond
)

// writing imports small states while do runs, and returns how long each import took, in milliseconds.
func writing(ctx context.Context, s *site.Site, do func(context.Context) error) ([]float64, error) {
	working, stop := context.WithCancel(ctx)
	defer stop()
	var times [writers][]float64
	var errs [writers]error
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			stack := fmt.Sprintf("filled%d", w)
			packed, err := compress(site.State(stack, 50))
			for err == nil && working.Err() == nil {
				began := time.Now()
				if err = importState(ctx, s, stack, packed); err == nil {
					times[w] = append(times[w], figures.Milliseconds(time.Since(began)))
					_ = retry.Sleep(working, writePause)
				}
			}
			errs[w] = err
		})
	}
	err := do(ctx)
	stop()
	all.Wait()
	return slices.Concat(times[:]...), errors.Join(append(errs[:], err)...)
}

// backUp runs the command, which lets the server write a backup.
func backUp(ctx context.Context, run *figures.Run, s *site.Site, dir string) error {
	cmd := exec.CommandContext(ctx, run.Program("workflow-server"), "backup", dir, "--data-dir", s.Servers[0].DataDir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("backing up: %w: %s", err, out)
	}
	return nil
}
