package states

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/klauspost/compress/gzip"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/words"
)

// Resources yields the resources of a state as JSON objects. It decompresses the state while it reads, and holds one
// resource in memory. It reads at most limit bytes, and resources of at most [MaxResource]; more ends with an error.
func (st Stored) Resources(limit int64) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for piece, err := range st.Pieces(limit) {
			if !yield(piece.Raw, err) {
				return
			}
		}
	}
}

// Piece is a resource of a state with its place in the decompressed state.
type Piece struct {
	Raw   []byte
	Begin int64
}

// Pieces is [Stored.Resources] with the places of the resources.
func (st Stored) Pieces(limit int64) iter.Seq2[Piece, error] {
	return func(yield func(Piece, error) bool) {
		if st.packed == nil {
			return
		}
		z, err := gzip.NewReader(bytes.NewReader(st.packed))
		if err != nil {
			yield(Piece{}, fmt.Errorf("reading a state: %w", err))
			return
		}
		r := &bounded{r: z, left: limit, limit: limit}
		if err := (walk{json.NewDecoder(r), r, yield}).state(); err != nil && err != errStopped { //nolint:errorlint // walk does not wrap it
			yield(Piece{}, fault.While(err, "reading the resources of a state"))
		}
	}
}

// At returns a part of the decompressed state without reading what it contains: [Stored.Pieces] of the same state has
// found it there. It returns nil if the state is shorter.
func (st Stored) At(begin int64, size int) ([]byte, error) {
	if st.packed == nil || size > MaxResource {
		return nil, nil
	}
	z, err := gzip.NewReader(bytes.NewReader(st.packed))
	if err != nil {
		return nil, fmt.Errorf("reading a state: %w", err)
	}
	part := make([]byte, size)
	if _, err = io.CopyN(io.Discard, z, begin); err == nil {
		_, err = io.ReadFull(z, part)
	}
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading a part of a state: %w", err)
	}
	return part, nil
}

// MaxResource bounds the resources that [Stored.Resources] yields, in bytes.
const MaxResource = 8 << 20

// bounded reads a limited number of bytes, and then fails.
type bounded struct {
	r           io.Reader
	left, limit int64
	value       int64 // bytes that were read since the last value
}

// Read implements [io.Reader].
func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fault.New(fault.KindTooLarge, "the state is larger than %s", words.Bytes(b.limit))
	}
	if b.value > MaxResource {
		return 0, fault.New(fault.KindTooLarge, "the state has a resource that is larger than %s", words.Bytes(MaxResource))
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	b.value += int64(n)
	return n, err
}

// walk finds the resources in a state, which was validated before it was stored.
type walk struct {
	*json.Decoder
	from  *bounded
	yield func(Piece, error) bool
}

// errStopped reports that the caller wants no more resources.
var errStopped = fmt.Errorf("stopped")

func (w walk) state() error {
	return w.members(func(name string) error {
		if name != "deployment" {
			return w.skip()
		}
		return w.members(func(name string) error {
			if name != "resources" {
				return w.skip()
			}
			return w.resources()
		})
	})
}

// members calls value for each member of an object. Another value has no members.
func (w walk) members(value func(name string) error) error {
	begin, err := w.Token()
	if err != nil || begin != json.Delim('{') {
		return err
	}
	for w.More() {
		name, err := w.Token()
		if err != nil {
			return err
		}
		text, _ := name.(string)
		if err := value(text); err != nil {
			return err
		}
	}
	_, err = w.Token()
	return err
}

func (w walk) resources() error {
	begin, err := w.Token()
	if err != nil || begin != json.Delim('[') {
		return err
	}
	for w.More() {
		one, err := w.value()
		if err != nil {
			return err
		}
		if !w.yield(Piece{one, w.InputOffset() - int64(len(one))}, nil) {
			return errStopped
		}
	}
	_, err = w.Token()
	return err
}

func (w walk) skip() error {
	_, err := w.value()
	return err
}

func (w walk) value() (one json.RawMessage, err error) {
	w.from.value = 0
	err = w.Decode(&one)
	return one, err
}
