package backup

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"unicode/utf8"

	"workflowagent/internal/server/store"
)

// maxLine bounds a row of a table. The server accepts no value that is as large. Only tests lower it.
var maxLine = 256 << 20

// rowWriter writes the rows of a table. The first line contains its columns, and each further line a row as an array. A
// number is a bigint, null is NULL, a string is a text, or a bytea in base64. A text that is not valid UTF-8 is an
// array with the text in base64.
type rowWriter struct {
	w    io.Writer
	line bytes.Buffer
	text *json.Encoder // to line
	rows int64
}

func newRowWriter(w io.Writer, columns []store.Column) (*rowWriter, error) {
	header, err := json.Marshal(columns)
	if err != nil {
		return nil, fmt.Errorf("encoding columns: %w", err)
	}
	if _, err := w.Write(append(header, '\n')); err != nil {
		return nil, err
	}
	rw := &rowWriter{w: w}
	rw.text = json.NewEncoder(&rw.line)
	rw.text.SetEscapeHTML(false)
	return rw, nil
}

func (rw *rowWriter) write(values []any) error {
	rw.line.Reset()
	rw.line.WriteByte('[')
	for i, value := range values {
		if i > 0 {
			rw.line.WriteByte(',')
		}
		if err := rw.value(value); err != nil {
			return err
		}
	}
	rw.line.WriteString("]\n")
	if rw.line.Len() > maxLine {
		return fmt.Errorf("a row has %d bytes, but a backup supports only %d", rw.line.Len(), maxLine)
	}
	rw.rows++
	_, err := rw.w.Write(rw.line.Bytes())
	if rw.line.Cap() > 1<<20 {
		rw.line = bytes.Buffer{} // long rows are rare
	}
	return err
}

func (rw *rowWriter) value(value any) error {
	switch v := value.(type) {
	case nil:
		rw.line.WriteString("null")
	case int64:
		rw.line.Write(strconv.AppendInt(rw.line.AvailableBuffer(), v, 10))
	case []byte:
		rw.base64(v)
	case string:
		if !utf8.ValidString(v) {
			rw.line.WriteByte('[')
			rw.base64([]byte(v))
			rw.line.WriteByte(']')
			return nil
		}
		if err := rw.text.Encode(v); err != nil {
			return fmt.Errorf("encoding a text: %w", err)
		}
		rw.line.Truncate(rw.line.Len() - 1) // the encoder ends each value with a newline
	default:
		return fmt.Errorf("encoding a value of the type %T", value)
	}
	return nil
}

func (rw *rowWriter) base64(v []byte) {
	rw.line.WriteByte('"')
	rw.line.Write(base64.StdEncoding.AppendEncode(rw.line.AvailableBuffer(), v))
	rw.line.WriteByte('"')
}

// readColumns reads the first line of a table.
func readColumns(r *bufio.Reader) ([]store.Column, error) {
	line, err := readLine(r, maxManifest)
	if err != nil {
		return nil, fmt.Errorf("reading the columns: %w", err)
	}
	var columns []store.Column
	if err := json.Unmarshal(line, &columns); err != nil || len(columns) == 0 {
		return nil, errors.New("the first line does not contain its columns")
	}
	return columns, nil
}

// readRows returns the rows of a table that follow its first line.
func readRows(r *bufio.Reader, columns []store.Column) iter.Seq2[[]any, error] {
	return func(yield func([]any, error) bool) {
		for n := 1; ; n++ {
			line, err := readLine(r, maxLine)
			if errors.Is(err, io.EOF) {
				return
			}
			var values []any
			if err == nil {
				values, err = decodeRow(line, columns)
			}
			if err != nil {
				yield(nil, fmt.Errorf("row %d: %w", n, err))
				return
			}
			if !yield(values, nil) {
				return
			}
		}
	}
}

func decodeRow(line []byte, columns []store.Column) ([]any, error) {
	if n := elements(line); n > len(columns) { // before they take memory
		return nil, fmt.Errorf("it has %d values for %d columns", n, len(columns))
	}
	var fields []json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil {
		return nil, err
	}
	if len(fields) != len(columns) {
		return nil, fmt.Errorf("it has %d values for %d columns", len(fields), len(columns))
	}
	values := make([]any, len(fields))
	for i, field := range fields {
		var err error
		if values[i], err = decodeValue(field, columns[i]); err != nil {
			return nil, fmt.Errorf("the column %s: %w", columns[i].Name, err)
		}
	}
	return values, nil
}

// elements returns the number of elements of an array that is not empty. If it is no valid JSON, the number is wrong.
func elements(array []byte) int {
	n, depth, quoted := 1, 0, false
	for i := 0; i < len(array); i++ {
		switch c := array[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[', c == '{':
			depth++
		case c == ']', c == '}':
			depth--
		case c == ',' && depth == 1:
			n++
		}
	}
	return n
}

func decodeValue(field json.RawMessage, column store.Column) (any, error) {
	if string(field) == "null" {
		return nil, nil //nolint:nilnil // NULL
	}
	switch column.Kind {
	case store.Bigint:
		return strconv.ParseInt(string(field), 10, 64)
	case store.Bytea:
		data := []byte{} // not NULL
		return data, json.Unmarshal(field, &data)
	case store.Text:
		if field[0] != '[' {
			var text string
			err := json.Unmarshal(field, &text)
			return text, err
		}
		var raw [][]byte
		if elements(field) == 1 {
			if err := json.Unmarshal(field, &raw); err != nil {
				return nil, err
			}
		}
		if len(raw) != 1 {
			return nil, errors.New("a text in base64 must be one value")
		}
		return string(raw[0]), nil
	}
	return nil, fmt.Errorf("the kind %q is unknown", column.Kind)
}

// readLine returns the next line without its end, or [io.EOF] if none follows. The line must have an end. The result
// is valid until the next call.
func readLine(r *bufio.Reader, limit int) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		line = bytes.Clone(line)
		for errors.Is(err, bufio.ErrBufferFull) {
			var more []byte
			more, err = r.ReadSlice('\n')
			if line = append(line, more...); len(line) > limit {
				return nil, fmt.Errorf("a line has more than %d bytes", limit)
			}
		}
	}
	switch {
	case errors.Is(err, io.EOF) && len(line) == 0:
		return nil, io.EOF
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf("the last line is cut off: %w", io.ErrUnexpectedEOF)
	case err != nil:
		return nil, err
	case len(line) > limit:
		return nil, fmt.Errorf("a line has more than %d bytes", limit)
	}
	return line[:len(line)-1], nil
}
