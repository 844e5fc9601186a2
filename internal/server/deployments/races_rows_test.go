package deployments_test

import (
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the tests read and restore whole tables
)

// rows are all rows of a PostgreSQL database at one time, as JSON.
type rows struct {
	t      testing.TB
	db     *sql.DB
	tables []string
	query  string
	all    map[string][]string // by table
	taken  time.Time
	known  map[string]string // ids, times and secrets in the restored rows, with those in the rows of the time
}

// takeRows remembers the rows of a database.
func takeRows(t testing.TB, dsn string) *rows {
	t.Helper()
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	r := &rows{t: t, db: db, all: map[string][]string{}}
	tables, err := db.QueryContext(t.Context(), `SELECT tablename FROM pg_tables
		WHERE schemaname = current_schema() AND tablename NOT IN ('goose_db_version', 'blob_chunks') ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	defer tables.Close()
	var parts []string
	for tables.Next() {
		var name string
		if err := tables.Scan(&name); err != nil {
			t.Fatal(err)
		}
		r.tables = append(r.tables, name)
		parts = append(parts, fmt.Sprintf("SELECT '%[1]s', to_jsonb(t)::text FROM %[1]s t", name))
	}
	if err := tables.Err(); err != nil {
		t.Fatal(err)
	}
	r.query = strings.Join(parts, " UNION ALL ")
	r.taken = time.Now()
	for _, row := range r.read() {
		r.all[row[0]] = append(r.all[row[0]], row[1])
	}
	return r
}

// read returns the tables and rows.
func (r *rows) read() (out [][2]string) {
	r.t.Helper()
	found, err := r.db.QueryContext(r.t.Context(), r.query)
	if err != nil {
		r.t.Fatal(err)
	}
	defer found.Close()
	for found.Next() {
		var row [2]string
		if err := found.Scan(&row[0], &row[1]); err != nil {
			r.t.Fatal(err)
		}
		out = append(out, row)
	}
	if err := found.Err(); err != nil {
		r.t.Fatal(err)
	}
	return out
}

var (
	// volatile are ids, times and secrets, which differ from run to run.
	volatile = regexp.MustCompile(`[0-9A-Za-z_-]{16,}`)
	// dates are times in texts. They are not moved.
	dates = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z|\b\d\d:\d\d UTC`)
	// used are the times of a pool's last sign of life and last claim, which are stored only now and then.
	used = regexp.MustCompile(`"last_(seen|job)_at": [~\d]+`)
	// took are the seconds that the last runs of a stack took.
	took = regexp.MustCompile(`\b([sfcd])\d+([du]\d+)\b`)
	// microseconds are times.
	microseconds = regexp.MustCompile(`\b1[6-9]\d{14}\b`)
)

// restore replaces all rows by those of the time, whose times it moves to the present.
func (r *rows) restore() {
	r.t.Helper()
	passed := time.Since(r.taken).Microseconds()
	r.known = map[string]string{}
	statements := []string{"BEGIN", "SET LOCAL session_replication_role = replica"} // without triggers and foreign keys
	for _, table := range r.tables {
		statements = append(statements, "DELETE FROM "+table)
	}
	for table, list := range r.all {
		for _, row := range list {
			moved := microseconds.ReplaceAllStringFunc(row, func(at string) string {
				n, err := strconv.ParseInt(at, 10, 64)
				if err != nil {
					r.t.Fatal(err)
				}
				now := strconv.FormatInt(n+passed, 10)
				r.known[now] = at
				return now
			})
			for _, v := range volatile.FindAllString(moved, -1) {
				if r.known[v] == "" {
					r.known[v] = v
				}
			}
			statements = append(statements, fmt.Sprintf("INSERT INTO %s SELECT * FROM jsonb_populate_record(NULL::%[1]s, '%s')", table, strings.ReplaceAll(moved, "'", "''")))
		}
	}
	if _, err := r.db.ExecContext(r.t.Context(), strings.Join(append(statements, "COMMIT"), ";\n")); err != nil {
		r.t.Fatalf("restoring the rows: %v", err)
	}
}

// now returns the present rows, without the ids, times and secrets that have been made since.
func (r *rows) now() string {
	r.t.Helper()
	var lines []string
	for _, row := range r.read() {
		text := volatile.ReplaceAllStringFunc(dates.ReplaceAllString(row[1], "~"), func(v string) string {
			if old := r.known[v]; old != "" {
				return old
			}
			if !strings.ContainsAny(v, "0123456789") { // the name of a column
				return v
			}
			return "~"
		})
		switch row[0] {
		case "agent_pools":
			text = used.ReplaceAllString(text, "")
		case "estate":
			text = took.ReplaceAllString(text, "$1~$2")
		}
		lines = append(lines, row[0]+" "+text)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// difference returns the lines that only one of two texts has.
func difference(want, got string) string {
	left, right := strings.Split(want, "\n"), strings.Split(got, "\n")
	var out []string
	for sign, lists := range map[string][2][]string{"- ": {left, right}, "+ ": {right, left}} {
		rest := slices.Clone(lists[1])
		for _, line := range lists[0] {
			if i := slices.Index(rest, line); i >= 0 {
				rest = slices.Delete(rest, i, i+1)
			} else {
				out = append(out, sign+line)
			}
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}
