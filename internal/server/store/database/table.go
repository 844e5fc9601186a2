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
	"sync"
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
	pins     []int    // fields for [Table.Pin]

	query, insert string   // the beginnings of statements
	updates       sync.Map // from lists of columns, which are few, to statements
}

var wordEnd = regexp.MustCompile("([a-z])([A-Z])")

// NewTable returns the mapping for the first table in a FROM clause, such as "stacks s JOIN …".
func NewTable[T any](from string) *Table[T] {
	words := strings.Fields(from + " " + from)
	t := &Table[T]{name: words[0], from: from, pins: []int{0}}
	alias := words[1] // equals the table's name if the clause has no alias
	for f := range reflect.TypeFor[T]().Fields() {
		column := strings.ToLower(wordEnd.ReplaceAllString(f.Name, "${1}_$2"))
		if tag := f.Tag.Get("db"); tag != "-" {
			column = cmp.Or(tag, column)
			t.written = append(t.written, len(t.columns))
		}
		t.columns = append(t.columns, column)
		read, zero := cmp.Or(f.Tag.Get("read"), alias+"."+column), "0"
		if k := f.Type.Kind(); k == reflect.String || k == reflect.Slice {
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

// Pin declares the columns whose values can be pins, instead of the primary key; see [Table.OneOf].
// The value of such a column never changes.
func (t *Table[T]) Pin(columns ...string) *Table[T] {
	t.pins = nil
	for _, name := range columns {
		t.pins = append(t.pins, slices.Index(t.columns, name))
	}
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

// OneOf is like [Table.One], for a query whose rows of the table all have a value in one of the
// columns that [Table.Pin] declares. A write that reads ahead therefore need not repeat the query
// after changes of other rows of the table.
func (t *Table[T]) OneOf(tx *Tx, value, rest string, args ...any) (T, error) {
	return one(tx, pin{t.name, value}, t.Scan, t.Query(rest), args)
}

// AllOf is like [Table.All], with a pin as in [Table.OneOf].
func (t *Table[T]) AllOf(tx *Tx, value, rest string, args ...any) ([]T, error) {
	return collect(tx, pin{t.name, value}, t.Scan, t.Query(rest), args)
}

// pinsOf returns the pins of a row, or none if they are unknown.
func (t *Table[T]) pinsOf(v T) []string {
	row := reflect.ValueOf(v)
	var pins []string
	for _, i := range t.pins {
		field := row.Field(i)
		if field.Kind() != reflect.String || field.Len() == 0 {
			return nil
		}
		pins = append(pins, field.String())
	}
	return pins
}

// Insert adds a row, or returns [ErrConflict] if a row has the same unique key.
func (t *Table[T]) Insert(tx *Tx, v T) error {
	query, args := t.put(v, "")
	_, err := tx.execOn(t.name, t.pinsOf(v), query, args)
	return err
}

// InsertLater adds a row with [Tx.Later]. No row may have the same unique key.
func (t *Table[T]) InsertLater(tx *Tx, v T) error {
	query, args := t.put(v, "")
	return tx.LaterOn(t.name, t.pinsOf(v), query, args...)
}

// Save adds a row, or replaces the row that has the same values in the key columns.
func (t *Table[T]) Save(tx *Tx, v T, key string) error {
	query, args := t.save(v, key)
	_, err := tx.execOn(t.name, t.pinsOf(v), query, args)
	return err
}

// SaveLater is like [Table.Save], but uses [Tx.Later].
func (t *Table[T]) SaveLater(tx *Tx, v T, key string) error {
	query, args := t.save(v, key)
	return tx.LaterOn(t.name, t.pinsOf(v), query, args...)
}

// MergeLater adds a row with [Tx.Later], or makes assignments in the row that has the same values in the
// key columns. The assignments refer to that row by the table's name, and to v as excluded.
func (t *Table[T]) MergeLater(tx *Tx, v T, key, assignments string) error {
	query, args := t.put(v, " ON CONFLICT ("+key+") DO UPDATE SET "+assignments)
	return tx.LaterOn(t.name, t.pinsOf(v), query, args...)
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
	args := make([]any, len(t.written))
	for n, i := range t.written {
		args[n] = row.Field(i).Interface()
	}
	return t.insert + conflict, args
}

// Changes returns the names of the columns in which two values of a row differ.
func (t *Table[T]) Changes(was, now T) []string {
	a, b := reflect.ValueOf(was), reflect.ValueOf(now)
	var names []string
	for _, i := range t.written {
		x, y := a.Field(i), b.Field(i)
		if x.Comparable() && x.Equal(y) || !x.Comparable() && reflect.DeepEqual(x.Interface(), y.Interface()) {
			continue
		}
		names = append(names, t.columns[i])
	}
	return names
}

// Update writes the named columns, or all columns if none is named, of the row with v's primary
// key. It returns [ErrNotFound] if that row does not exist.
func (t *Table[T]) Update(tx *Tx, v T, columns ...string) error {
	query, args := t.update(v, columns)
	n, err := tx.execOn(t.name, t.pinsOf(v), query, args)
	if err == nil && n == 0 {
		err = ErrNotFound
	}
	return err
}

// UpdateLater is like [Table.Update], but uses [Tx.Later]. The row must exist.
func (t *Table[T]) UpdateLater(tx *Tx, v T, columns ...string) error {
	query, args := t.update(v, columns)
	return tx.LaterOn(t.name, t.pinsOf(v), query, args...)
}

func (t *Table[T]) update(v T, columns []string) (string, []any) {
	row := reflect.ValueOf(v)
	args := []any{row.Field(0).Interface()}
	for _, i := range t.written[1:] {
		if len(columns) == 0 || slices.Contains(columns, t.columns[i]) {
			args = append(args, row.Field(i).Interface())
		}
	}
	key := strings.Join(columns, " ")
	if known, ok := t.updates.Load(key); ok {
		return known.(string), args //nolint:forcetypeassert // stored below
	}
	var sets []string
	for _, i := range t.written[1:] {
		if len(columns) == 0 || slices.Contains(columns, t.columns[i]) {
			sets = append(sets, fmt.Sprintf("%s = $%d", t.columns[i], len(sets)+2))
		}
	}
	query := "UPDATE " + t.name + " SET " + strings.Join(sets, ", ") + " WHERE " + t.columns[0] + " = $1"
	t.updates.Store(key, query)
	return query, args
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
	if v, ok := src.(S); ok {
		return c(v)
	}
	var v sql.Null[S]
	if err := v.Scan(src); err != nil {
		return err
	}
	return c(v.V)
}
