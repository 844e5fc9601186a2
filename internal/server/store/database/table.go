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
	name     string
	from     string   // the FROM clause of queries
	columns  []string // one per field
	reads    []string // one per field: the expression that queries select
	written  []int    // fields that statements write
	optional []string // the same, with the field's zero value instead of NULL

	query, insert string // the beginnings of statements
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
		read, zero := cmp.Or(f.Tag.Get("read"), alias+"."+column), "0"
		if k := f.Type.Kind(); k == reflect.String || k == reflect.Slice || k == reflect.Pointer {
			zero = "''"
		}
		t.reads = append(t.reads, read)
		t.optional = append(t.optional, "COALESCE("+read+", "+zero+")")
	}
	t.query = "SELECT " + t.Expressions() + " FROM " + t.from + " "
	var names, marks []string
	for n, i := range t.written {
		names, marks = append(names, t.columns[i]), append(marks, fmt.Sprintf("$%d", n+1))
	}
	t.insert = "INSERT INTO " + t.name + " (" + strings.Join(names, ", ") + ") VALUES (" + strings.Join(marks, ", ") + ")"
	return t
}

// Expressions returns the selected expressions as a comma-separated list.
func (t *Table[T]) Expressions() string { return strings.Join(t.reads, ", ") }

// Optional returns the expressions for a query in which a join might find no row of the table. The
// fields of such a row have their zero values. The table must have no columns of bytes.
func (t *Table[T]) Optional() string { return strings.Join(t.optional, ", ") }

// Query returns a query for all fields. rest follows the query's FROM clause.
func (t *Table[T]) Query(rest string) string { return t.query + rest }

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
func (t *Table[T]) Insert(tx *Tx, v T) error { return t.put(tx, v, "") }

// Save adds a row, or replaces the row that has the same values in the key columns.
func (t *Table[T]) Save(tx *Tx, v T, key string) error {
	var sets []string
	for _, i := range t.written {
		sets = append(sets, t.columns[i]+" = excluded."+t.columns[i])
	}
	return t.Merge(tx, v, key, strings.Join(sets, ", "))
}

// Merge adds a row, or makes assignments in the row that has the same values in the key columns. The
// assignments refer to that row by the table's name, and to v as excluded.
func (t *Table[T]) Merge(tx *Tx, v T, key, assignments string) error {
	return t.put(tx, v, " ON CONFLICT ("+key+") DO UPDATE SET "+assignments)
}

func (t *Table[T]) put(tx *Tx, v T, conflict string) error {
	row := reflect.ValueOf(v)
	args := make([]any, len(t.written))
	for n, i := range t.written {
		args[n] = row.Field(i).Interface()
	}
	_, err := tx.Exec(t.insert+conflict, args...)
	return err
}

// Update writes the named columns, or all columns if none is named, of the row with v's primary
// key. It returns [ErrNotFound] if that row does not exist.
func (t *Table[T]) Update(tx *Tx, v T, columns ...string) error {
	row := reflect.ValueOf(v)
	args := []any{row.Field(0).Interface()}
	var sets []string
	for _, i := range t.written[1:] {
		if len(columns) == 0 || slices.Contains(columns, t.columns[i]) {
			args = append(args, row.Field(i).Interface())
			sets = append(sets, fmt.Sprintf("%s = $%d", t.columns[i], len(args)))
		}
	}
	return tx.ExecOne("UPDATE "+t.name+" SET "+strings.Join(sets, ", ")+" WHERE "+t.columns[0]+" = $1", args...)
}

// Differences returns the columns, which statements write, in which two rows differ.
func (t *Table[T]) Differences(a, b T) []string {
	var columns []string
	left, right := reflect.ValueOf(a), reflect.ValueOf(b)
	for _, i := range t.written {
		if !reflect.DeepEqual(left.Field(i).Interface(), right.Field(i).Interface()) {
			columns = append(columns, t.columns[i])
		}
	}
	return columns
}

// encode returns the stored forms of values: microseconds for a time (0 for the zero time) or a
// duration, 0 or 1 for a bool, and JSON for a list. The result never contains NULL.
func encode(values []any) []any {
	out := make([]any, len(values))
	for i, v := range values {
		switch v := v.(type) {
		case string, int64:
			out[i] = v
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
			} else if r.Kind() == reflect.Pointer {
				out[i] = ""
				if !r.IsNil() {
					out[i] = list{v}
				}
			}
		}
	}
	return out
}

// list is a list, or an object to which a field points, stored as JSON. JSON escapes NUL characters, which PostgreSQL rejects in text.
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
		if field.Kind() != reflect.Slice && field.Kind() != reflect.Pointer {
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
	if v, ok := src.(S); ok {
		return c(v)
	}
	var v sql.Null[S]
	if err := v.Scan(src); err != nil {
		return err
	}
	return c(v.V)
}
