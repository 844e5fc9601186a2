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

	"workflowagent/internal/server/stacks/rawjson"
	"workflowagent/internal/server/store"
)

// maxLine bounds a row of a table. The largest value that the server accepts is a batch of journal entries, which is sent
// with at most 64 MiB, and has a third more in base64. Only tests lower it.
var maxLine = 128 << 20

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

// decodeRow decodes a row. It copies nothing but its values, and no error contains a value: a small file can contain a
// huge line.
func decodeRow(line []byte, columns []store.Column) ([]any, error) {
	if !json.Valid(line) {
		return nil, errors.New("it is no valid JSON")
	}
	values := make([]any, 0, len(columns))
	for field := range rawjson.Elements(line) {
		n := len(values)
		if n == len(columns) {
			return nil, fmt.Errorf("it has more than %d values for %d columns", n, n)
		}
		value, err := decodeValue(field, columns[n].Kind)
		if err != nil {
			return nil, fmt.Errorf("the column %s: %w", columns[n].Name, err)
		}
		values = append(values, value)
	}
	if len(values) < len(columns) {
		return nil, fmt.Errorf("it has %d values for %d columns", len(values), len(columns))
	}
	return values, nil
}

var errNumber = errors.New("it is no number")

// decodeValue decodes a value, which is valid JSON.
func decodeValue(field []byte, kind store.Kind) (any, error) {
	if string(field) == "null" {
		return nil, nil //nolint:nilnil // NULL
	}
	switch kind {
	case store.Bigint:
		if len(field) > len("-9223372036854775808") {
			return nil, errNumber
		}
		n, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil {
			return nil, errNumber
		}
		return n, nil
	case store.Bytea:
		return decodeBase64(field)
	case store.Text:
		if field[0] == '[' {
			data, err := decodeBase64(field[1 : len(field)-1])
			return string(data), err
		}
		if field[0] != '"' {
			return nil, errors.New("it is no text")
		}
		var text string
		err := json.Unmarshal(field, &text)
		return text, err
	}
	return nil, fmt.Errorf("the kind %q is unknown", kind)
}

// decodeBase64 decodes one string in base64. The result is not nil, which would be NULL.
func decodeBase64(field []byte) ([]byte, error) {
	data := []byte{}
	if !bytes.HasPrefix(field, []byte{'"'}) || rawjson.SkipString(field, 0) != len(field) {
		return nil, errors.New("it is not one text in base64")
	}
	return data, json.Unmarshal(field, &data)
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
