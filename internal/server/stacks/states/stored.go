package states

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"sync"

	"github.com/klauspost/compress/gzip"

	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/fault"
)

// Stored is a compressed state. Exports hold states in memory only in this form.
type Stored struct{ packed []byte } // nil if the stack has no state

// State returns the state in memory.
func (st Stored) State(ctx context.Context) (*State, error) {
	if st.packed == nil {
		return &State{Schema: emptySchema, Deployment: []byte("null")}, nil
	}
	body, err := inflate(ctx, st.packed)
	if err != nil {
		return nil, err
	}
	budget.Of(ctx).Give(int64(cap(st.packed)))
	return Parse(body, []byte{})
}

// maxRatio is the maximum compression ratio of gzip.
const maxRatio = 1032

// decompressors are reused, because each needs 44 kB and batches of entries are small.
var decompressors sync.Pool

// inflate decompresses a blob or a batch that the server wrote.
func inflate(ctx context.Context, packed []byte) ([]byte, error) {
	z, ok := decompressors.Get().(*gzip.Reader)
	if !ok {
		z = new(gzip.Reader)
	}
	defer decompressors.Put(z)
	if err := z.Reset(bytes.NewReader(packed)); err != nil {
		return nil, damaged(err)
	}
	// The last four bytes of a gzip stream contain the uncompressed size.
	size := int64(binary.LittleEndian.Uint32(packed[len(packed)-4:]))
	if size > maxRatio*int64(len(packed)) { // damaged, not short of memory
		return nil, damaged(errors.New("the size that it contains is impossible"))
	}
	body, err := budget.ReadAll(ctx, z, size, math.MaxInt64-1, true)
	if fault.KindOf(err) == "" && ctx.Err() == nil {
		err = damaged(err)
	}
	return body, err
}

// Export writes the state in the export format.
func (st Stored) Export(w io.Writer) error {
	x := exporter{w: w}
	if st.packed != nil {
		z, err := gzip.NewReader(bytes.NewReader(st.packed))
		if err != nil {
			return fmt.Errorf("reading a state: %w", err)
		}
		if _, err := io.CopyBuffer(&x, struct{ io.Reader }{z}, make([]byte, 128<<10)); err != nil {
			return fmt.Errorf("exporting a state: %w", err)
		}
	}
	return x.end()
}

// exporter copies the exported members (version, features, deployment) of a stored state. It
// searches only for member boundaries, because states are validated before they are stored.
type exporter struct {
	w              io.Writer
	depth          int  // nesting depth
	quoted, escape bool // the previous byte is a backslash in a string
	phase          phase
	key            []byte // name of the current member, truncated to keyLimit
	keep           bool   // the current member is exported
	seen           [2]bool
	any            bool // a member was exported
}

type phase int

const (
	beforeKey phase = iota
	inKey
	beforeValue
	inValue
)

// keyLimit exceeds the length of every exported member's name.
const keyLimit = 16

// Write implements [io.Writer].
func (x *exporter) Write(p []byte) (int, error) {
	from := 0 // start of the exported part of p
	for i, c := range p {
		if x.quoted {
			x.inString(c)
			continue
		}
		switch {
		case x.phase == beforeValue:
			if c == ':' || c == ' ' || c == '\n' || c == '\t' || c == '\r' {
				continue
			}
			if err := x.beginValue(c); err != nil {
				return 0, err
			}
			from = i
		case x.phase == inValue && x.depth == 1 && (c == ',' || c == '}'):
			if err := x.pass(p[from:i]); err != nil {
				return 0, err
			}
			x.phase = beforeKey
		}
		x.structure(c)
	}
	if x.phase == inValue {
		if err := x.pass(p[from:]); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

func (x *exporter) inString(c byte) {
	switch {
	case x.escape:
		x.escape = false
	case c == '\\':
		x.escape = true
	case c == '"':
		x.quoted = false
		if x.phase == inKey {
			x.phase = beforeValue
		}
		return
	}
	if x.phase == inKey && len(x.key) < keyLimit {
		x.key = append(x.key, c)
	}
}

func (x *exporter) structure(c byte) {
	switch c {
	case '"':
		x.quoted = true
		if x.phase == beforeKey {
			x.phase, x.key = inKey, x.key[:0]
		}
	case '{', '[':
		x.depth++
	case '}', ']':
		x.depth--
	}
}

func (x *exporter) beginValue(first byte) error {
	x.phase = inValue
	name := string(x.key)
	switch name {
	case "version":
		x.seen[0] = true
	case "deployment":
		x.seen[1] = true
	case "features":
		if first == 'n' { // null
			name = ""
		}
	default:
		name = ""
	}
	x.keep = name != ""
	if !x.keep {
		return nil
	}
	return x.member(name, "")
}

func (x *exporter) member(name, value string) error {
	begin := ","
	if !x.any {
		begin, x.any = "{", true
	}
	_, err := io.WriteString(x.w, begin+strconv.Quote(name)+":"+value)
	return err
}

func (x *exporter) pass(p []byte) error {
	if !x.keep || len(p) == 0 {
		return nil
	}
	_, err := x.w.Write(p)
	return err
}

func (x *exporter) end() error {
	if !x.seen[0] {
		if err := x.member("version", strconv.Itoa(emptySchema)); err != nil {
			return err
		}
	}
	if !x.seen[1] {
		if err := x.member("deployment", "null"); err != nil {
			return err
		}
	}
	_, err := io.WriteString(x.w, "}")
	return err
}
