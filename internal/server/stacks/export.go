package stacks

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/klauspost/compress/gzip"

	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/stacks/rawjson"
	"workflowagent/internal/server/store"
)

// Stored is a compressed state. Exports hold states in memory only in this form.
type Stored struct{ packed []byte } // nil if the stack has no state

// Open returns the current state of a stack.
func (s *Service) Open(ctx context.Context, stackID string) (Stored, error) {
	for try := 1; ; try++ {
		st, err := store.Read(ctx, s.db, func(tx *store.Tx) (store.Stack, error) { return tx.Stack(stackID) })
		if err != nil || st.StateBlob == "" {
			return Stored{}, err
		}
		out, err := s.open(ctx, st.StateBlob)
		if errors.Is(err, store.ErrNotFound) && try < exportTries {
			continue
		}
		return out, err
	}
}

// OpenVersion returns the state of a version of a stack.
func (s *Service) OpenVersion(ctx context.Context, st store.Stack, version int64) (Stored, error) {
	u, err := store.Read(ctx, s.db, func(tx *store.Tx) (store.Update, error) {
		return tx.UpdateByVersion(st.ID, version)
	})
	if errors.Is(err, store.ErrNotFound) {
		return Stored{}, fault.NotFound("Not Found: stack '%s' has no version %d", st.Ref(), version)
	}
	if u.StateExpired {
		return Stored{}, fault.New(fault.KindGone, "Gone: the state of version %d of stack '%s' has expired: "+
			"the server keeps as many states as its settings keep_states and keep_states_for say", version, st.Ref())
	}
	if err != nil || u.StateBlob == "" {
		return Stored{}, err
	}
	return s.open(ctx, u.StateBlob)
}

// open reads the whole state, so that slow clients do not hold database connections.
func (s *Service) open(ctx context.Context, key string) (Stored, error) {
	size, err := s.db.Blobs().Size(ctx, key)
	if err != nil {
		return Stored{}, fmt.Errorf("opening a state: %w", err)
	}
	r, err := s.db.Blobs().Get(ctx, key)
	if err != nil {
		return Stored{}, fmt.Errorf("opening a state: %w", err)
	}
	defer r.Close()
	packed, err := budget.ReadAll(ctx, r, size, math.MaxInt64-1, true)
	if err != nil {
		return Stored{}, fmt.Errorf("reading a state: %w", err)
	}
	return Stored{packed}, nil
}

func (st Stored) state(ctx context.Context) (*State, error) {
	if st.packed == nil {
		return &State{Schema: emptySchema, Deployment: []byte("null")}, nil
	}
	z, err := gzip.NewReader(bytes.NewReader(st.packed))
	if err != nil {
		return nil, fmt.Errorf("reading a state: %w", err)
	}
	// The last four bytes of a gzip stream contain the uncompressed size.
	size := int64(binary.LittleEndian.Uint32(st.packed[len(st.packed)-4:]))
	body, err := budget.ReadAll(ctx, z, size, math.MaxInt64-1, true)
	if err != nil {
		return nil, fmt.Errorf("reading a state: %w", err)
	}
	budget.Of(ctx).Give(int64(cap(st.packed)))
	return ParseState(body, []byte{})
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

// ExportOutputs returns a stack's current outputs as a reduced state, which a StackReference can
// read.
func (s *Service) ExportOutputs(ctx context.Context, stackID string) (*State, error) {
	state, err := s.Export(ctx, stackID)
	if err != nil || state.Empty() {
		return state, err
	}
	var doc bytes.Buffer
	doc.WriteByte('{')
	// The manifest contains pulumi's version. StackReferences use secrets_providers to decrypt
	// secrets.
	writeMembers(&doc, state.Deployment, "manifest", "secrets_providers")
	if doc.Len() > 1 {
		doc.WriteByte(',')
	}
	doc.WriteString(`"resources":[`)
	if root := rootStack(state); root != nil {
		doc.WriteByte('{')
		writeMembers(&doc, root, "urn", "custom", "type", "outputs")
		doc.WriteByte('}')
	}
	doc.WriteString("]}")
	return &State{Schema: state.Schema, Features: state.Features, Deployment: doc.Bytes()}, nil
}

func writeMembers(doc *bytes.Buffer, object []byte, names ...string) {
	sep := ""
	for _, name := range names {
		if value := rawjson.Member(object, name); value != nil {
			doc.WriteString(sep + `"` + name + `":`)
			doc.Write(value)
			sep = ","
		}
	}
}

// rootStack returns the resource that represents the stack itself, or nil if none exists.
func rootStack(state *State) []byte {
	for r := range rawjson.Elements(rawjson.Member(state.Deployment, "resources")) {
		parent := string(rawjson.Member(r, "parent"))
		if string(rawjson.Member(r, "type")) == `"pulumi:pulumi:Stack"` && (parent == "" || parent == `""`) {
			return r
		}
	}
	return nil
}

// CheckOutputSecrets returns an error unless all base64 ciphertexts occur in the stack's outputs.
func (s *Service) CheckOutputSecrets(ctx context.Context, st store.Stack, ciphertexts []string) error {
	state, err := s.Export(ctx, st.ID)
	if err != nil {
		return err
	}
	missing := make(map[string]struct{}, len(ciphertexts))
	for _, text := range ciphertexts {
		missing[text] = struct{}{}
	}
	for text := range rawjson.Texts(rawjson.Member(rootStack(state), "outputs")) {
		delete(missing, string(text))
	}
	if len(missing) > 0 {
		return fault.NotFound("Not Found: the current outputs of stack '%s' do not contain the secret; if the stack was just updated, try again", st.Ref())
	}
	return nil
}
