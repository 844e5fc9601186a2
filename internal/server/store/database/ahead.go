package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// maxAhead bounds the queries that a transaction sends at its begin.
const maxAhead = 1000

// question is a query that a write is expected to run.
type question struct {
	query string
	args  []any // encoded
	pin   pin
}

// pin states that all rows of a table that a query reads have a value in one of the table's columns
// for pins; see [Table.OneOf]. The zero value states nothing.
type pin struct{ table, value string }

// questions are the queries that the writes of a group are expected to run, each once.
type questions struct {
	list []question
	keys map[string]bool
}

// asking is the transaction with which the function of [Ahead] runs. Its queries have no rows.
func asking(ctx context.Context, db *DB, into *questions) *Tx {
	// Arguments must not depend on the time, which is not known yet.
	return &Tx{ctx: ctx, q: refusing{}, engine: db.engine, db: db, asks: into, now: time.Unix(1, 0)}
}

func (q *questions) add(query string, args []any, of pin) {
	key, ok := keyOf(query, args)
	if !ok || q.keys[key] || len(q.list) >= maxAhead {
		return
	}
	if q.keys == nil {
		q.keys = map[string]bool{}
	}
	q.keys[key] = true
	q.list = append(q.list, question{query, args, of})
}

var errAsking = errors.New("a function that names reads ahead has run another statement")

// refusing is the querier of [asking].
type refusing struct{}

// ExecContext implements querier.
func (refusing) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	return nil, errAsking
}

// QueryContext implements querier.
func (refusing) QueryContext(context.Context, string, ...any) (*sql.Rows, error) {
	return nil, errAsking
}

// keyOf returns a text that identifies a query with its arguments, if the arguments permit it.
func keyOf(query string, args []any) (string, bool) {
	b := make([]byte, 0, len(query)+64)
	b = append(b, query...)
	for _, arg := range args {
		b = append(b, 0)
		switch v := arg.(type) {
		case string:
			b = strconv.AppendInt(b, int64(len(v)), 10)
			b = append(append(b, ':'), v...)
		case int64:
			b = strconv.AppendInt(b, v, 10)
		default:
			return "", false
		}
	}
	return string(b), true
}

// answers are the rows of queries that ran at the begin of a transaction. A change of a row removes
// those that it might change.
type answers struct {
	byKey  map[string]*answer
	tables map[string]*dependents
}

type answer struct {
	rows [][]any
	gone bool
}

// dependents are the answers that depend on a table.
type dependents struct {
	pinned map[string][]*answer
	others []*answer // depend on all rows
}

func (a *answers) add(q question, rows [][]any) {
	key, _ := keyOf(q.query, q.args)
	if a.byKey == nil {
		a.byKey, a.tables = map[string]*answer{}, map[string]*dependents{}
	}
	found := &answer{rows: rows}
	a.byKey[key] = found
	for _, table := range tablesOf(q.query) {
		d := a.tables[table]
		if d == nil {
			d = &dependents{pinned: map[string][]*answer{}}
			a.tables[table] = d
		}
		if table == q.pin.table {
			d.pinned[q.pin.value] = append(d.pinned[q.pin.value], found)
		} else {
			d.others = append(d.others, found)
		}
	}
}

// find returns the rows of a query.
func (a *answers) find(query string, args []any) ([][]any, bool) {
	if a == nil || len(a.byKey) == 0 {
		return nil, false
	}
	key, ok := keyOf(query, args)
	if !ok {
		return nil, false
	}
	found := a.byKey[key]
	if found == nil || found.gone {
		return nil, false
	}
	return found.rows, true
}

// forget removes the answers that a change of the rows of a table with one of the pins might change.
// Without pins, all rows might have changed.
func (a *answers) forget(table string, pins ...string) {
	if a == nil || a.tables[table] == nil {
		return
	}
	d := a.tables[table]
	drop := func(list []*answer) {
		for _, found := range list {
			found.gone = true
		}
	}
	drop(d.others)
	d.others = nil
	for _, pin := range pins {
		drop(d.pinned[pin])
		delete(d.pinned, pin)
	}
	if len(pins) == 0 {
		for _, list := range d.pinned {
			drop(list)
		}
		clear(d.pinned)
	}
}

// forgetFor removes the answers that a statement might change.
func (a *answers) forgetFor(statement string) {
	if a == nil || len(a.byKey) == 0 {
		return
	}
	words := strings.Fields(statement[:min(len(statement), 200)])
	switch {
	case len(words) > 2 && words[0] == "INSERT" && words[1] == "INTO":
		a.forget(words[2])
	case len(words) > 1 && words[0] == "UPDATE":
		a.forget(words[1])
	default: // deletions can remove rows of other tables
		clear(a.byKey)
		clear(a.tables)
	}
}

var tableName = regexp.MustCompile(`\b(?:FROM|JOIN)\s+([a-z_]+)`)

var tableNames sync.Map // from queries, which are few, to their tables

// tablesOf returns the tables that a query reads.
func tablesOf(query string) []string {
	if known, ok := tableNames.Load(query); ok {
		return known.([]string) //nolint:forcetypeassert // stored below
	}
	var out []string
	for _, match := range tableName.FindAllStringSubmatch(query, -1) {
		out = append(out, match[1])
	}
	tableNames.Store(query, out)
	return out
}

// queueQuestions adds the queries to a batch. Their rows are added to the answers.
func queueQuestions(b *pgx.Batch, list []question, into *answers) {
	for _, q := range list {
		b.Queue(q.query, q.args...).Query(func(rows pgx.Rows) error {
			var all [][]any
			for rows.Next() {
				row, err := rows.Values()
				if err != nil {
					return err
				}
				all = append(all, row)
			}
			if rows.Err() == nil {
				into.add(q, all)
			}
			return rows.Err()
		})
	}
}

// scanRow returns the function that scans a row of an answer.
func scanRow(row []any) Scan {
	return func(dest ...any) error {
		if len(dest) != len(row) {
			return fmt.Errorf("reading a row with %d columns into %d values", len(row), len(dest))
		}
		for i := range dest {
			if err := assign(dest[i], row[i]); err != nil {
				return fmt.Errorf("reading column %d: %w", i, err)
			}
		}
		return nil
	}
}

// assign stores a value of a row, as database/sql does. It knows the types of columns that the schema
// has: integers, texts and bytes.
func assign(dest, src any) error {
	if scanner, ok := dest.(sql.Scanner); ok {
		return scanner.Scan(src)
	}
	to := reflect.ValueOf(dest).Elem()
	switch v := src.(type) {
	case string:
		if to.Kind() == reflect.String {
			to.SetString(v)
			return nil
		}
	case int64:
		return assignInt(to, v)
	case int32:
		return assignInt(to, int64(v))
	case []byte:
		if to.Kind() == reflect.Slice && to.Type().Elem().Kind() == reflect.Uint8 {
			to.SetBytes(append([]byte{}, v...))
			return nil
		}
	}
	return fmt.Errorf("a value of type %T does not fit into %s", src, to.Type())
}

func assignInt(to reflect.Value, v int64) error {
	switch to.Kind() { //nolint:exhaustive // the types of the fields
	case reflect.Int, reflect.Int32, reflect.Int64:
		to.SetInt(v)
	case reflect.Bool:
		to.SetBool(v != 0)
	default:
		return fmt.Errorf("an integer does not fit into %s", to.Type())
	}
	return nil
}
