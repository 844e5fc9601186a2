package database

import (
	"cmp"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Table maps the rows of a table to structs of type T. Each field is a column, named by the field's
// tag db or by the field's name in snake case. The first field is the primary key. The tag read
// contains an expression that queries select instead of the column. Statements do not write fields
// with the tag db:"-". Scanning libraries would require a wrapper type for every time and list, and
// an explicit column list for every write.
type Table[T any] struct {
	name    string
	from    string   // the FROM clause of queries
	columns []string // one per field
	reads   []string // one per field: the expression that queries select
	written []int    // fields that statements write
}

var wordEnd = regexp.MustCompile("([a-z])([A-Z])")

// NewTable returns the mapping for the first table in a FROM clause, such as "stacks s JOIN …".
func NewTable[T any](from string) *Table[T] {
	words := strings.Fields(from + " " + from)
	t := &Table[T]{name: words[0], from: from}
	alias := words[1] // equals the table's name if the clause has no alias
	for f := range reflect.TypeFor[T]().Fields() {
		column := strings.ToLower(wordEnd.ReplaceAllString(f.Name, "${1}_$2"))
		if tag := f.Tag.Get("db"); tag != "-" {
			column = cmp.Or(tag, column)
			t.written = append(t.written, len(t.columns))
		}
		t.columns = append(t.columns, column)
		t.reads = append(t.reads, cmp.Or(f.Tag.Get("read"), alias+"."+column))
	}
	return t
}

// Expressions returns the selected expressions as a comma-separated list.
func (t *Table[T]) Expressions() string { return strings.Join(t.reads, ", ") }

// Query returns a query for all fields. rest follows the query's FROM clause.
func (t *Table[T]) Query(rest string) string {
	return "SELECT " + t.Expressions() + " FROM " + t.from + " " + rest
}

// Fields returns the scan destinations in v for the selected expressions.
func (t *Table[T]) Fields(v *T) []any {
	row := reflect.ValueOf(v).Elem()
	out := make([]any, row.NumField())
	for i := range out {
		out[i] = destination(row.Field(i))
	}
	return out
}

// Scan reads a row that [Table.Query] selected.
func (t *Table[T]) Scan(scan Scan) (v T, err error) {
	err = scan(t.Fields(&v)...)
	return v, err
}

// All returns all rows of a query. rest follows the query's FROM clause.
func (t *Table[T]) All(tx *Tx, rest string, args ...any) ([]T, error) {
	return Collect(tx, t.Scan, t.Query(rest), args...)
}

// One returns the first row of a query, or [ErrNotFound].
func (t *Table[T]) One(tx *Tx, rest string, args ...any) (T, error) {
	return One(tx, t.Scan, t.Query(rest), args...)
}

// Insert adds a row, or returns [ErrConflict] if a row has the same unique key.
func (t *Table[T]) Insert(tx *Tx, v T) error {
	query, args := t.put(v, "")
	_, err := tx.Exec(query, args...)
	return err
}

// InsertLater adds a row with [Tx.Later]. No row may have the same unique key.
func (t *Table[T]) InsertLater(tx *Tx, v T) error {
	query, args := t.put(v, "")
	return tx.Later(query, args...)
}

// Save adds a row, or replaces the row that has the same values in the key columns.
func (t *Table[T]) Save(tx *Tx, v T, key string) error {
	query, args := t.save(v, key)
	_, err := tx.Exec(query, args...)
	return err
}

// SaveLater is like [Table.Save], but uses [Tx.Later].
func (t *Table[T]) SaveLater(tx *Tx, v T, key string) error {
	query, args := t.save(v, key)
	return tx.Later(query, args...)
}

func (t *Table[T]) save(v T, key string) (string, []any) {
	var sets []string
	for _, i := range t.written {
		sets = append(sets, t.columns[i]+" = excluded."+t.columns[i])
	}
	return t.put(v, " ON CONFLICT ("+key+") DO UPDATE SET "+strings.Join(sets, ", "))
}

func (t *Table[T]) put(v T, conflict string) (string, []any) {
	row := reflect.ValueOf(v)
	var names, marks []string
	var args []any
	for _, i := range t.written {
		names, args = append(names, t.columns[i]), append(args, row.Field(i).Interface())
		marks = append(marks, fmt.Sprintf("$%d", len(args)))
	}
	return "INSERT INTO " + t.name + " (" + strings.Join(names, ", ") + ") VALUES (" + strings.Join(marks, ", ") + ")" + conflict, args
}

// Update writes the named columns, or all columns if none is named, of the row with v's primary
// key. It returns [ErrNotFound] if that row does not exist.
func (t *Table[T]) Update(tx *Tx, v T, columns ...string) error {
	query, args := t.update(v, columns)
	return tx.ExecOne(query, args...)
}

// UpdateLater is like [Table.Update], but uses [Tx.Later]. The row must exist.
func (t *Table[T]) UpdateLater(tx *Tx, v T, columns ...string) error {
	query, args := t.update(v, columns)
	return tx.Later(query, args...)
}

func (t *Table[T]) update(v T, columns []string) (string, []any) {
	row := reflect.ValueOf(v)
	args := []any{row.Field(0).Interface()}
	var sets []string
	for _, i := range t.written[1:] {
		if len(columns) == 0 || slices.Contains(columns, t.columns[i]) {
			args = append(args, row.Field(i).Interface())
			sets = append(sets, fmt.Sprintf("%s = $%d", t.columns[i], len(args)))
		}
	}
	return "UPDATE " + t.name + " SET " + strings.Join(sets, ", ") + " WHERE " + t.columns[0] + " = $1", args
}

// encode returns the stored forms of values: microseconds for a time (0 for the zero time) or a
// duration, 0 or 1 for a bool, and JSON for a list. The result never contains NULL.
func encode(values []any) []any {
	out := make([]any, len(values))
	for i, v := range values {
		switch v := v.(type) {
		case time.Time:
			out[i] = int64(0)
			if !v.IsZero() {
				out[i] = v.UnixMicro()
			}
		case time.Duration:
			out[i] = v.Microseconds()
		case bool:
			out[i] = int64(0)
			if v {
				out[i] = int64(1)
			}
		case []byte:
			out[i] = append([]byte{}, v...)
		default:
			out[i] = v
			if r := reflect.ValueOf(v); r.Kind() == reflect.String {
				out[i] = r.String() // a string without its defined type
			} else if r.Kind() == reflect.Int64 {
				out[i] = r.Int()
			} else if r.Kind() == reflect.Slice {
				out[i] = list{v}
			}
		}
	}
	return out
}

// list is a list stored as JSON. JSON escapes NUL characters, which PostgreSQL rejects in text.
type list struct{ v any }

// Value implements [driver.Valuer].
func (l list) Value() (driver.Value, error) {
	text, err := json.Marshal(l.v)
	return string(text), err
}

// destination returns the scan destination for a field.
func destination(field reflect.Value) any {
	switch p := field.Addr().Interface().(type) {
	case *time.Time:
		return converter[int64](func(us int64) error {
			if *p = (time.Time{}); us != 0 {
				*p = time.UnixMicro(us).UTC()
			}
			return nil
		})
	case *time.Duration:
		return converter[int64](func(us int64) error { *p = time.Duration(us) * time.Microsecond; return nil })
	case *[]byte:
		return p
	default:
		if field.Kind() != reflect.Slice {
			return p
		}
		return converter[string](func(text string) error {
			if text == "" {
				return nil
			}
			return json.Unmarshal([]byte(text), p)
		})
	}
}

// converter scans a column of type S and stores the converted value.
type converter[S any] func(S) error

// Scan implements [sql.Scanner].
func (c converter[S]) Scan(src any) error {
	var v sql.Null[S]
	if err := v.Scan(src); err != nil {
		return err
	}
	return c(v.V)
}
