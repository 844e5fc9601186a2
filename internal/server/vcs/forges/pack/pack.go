// Package pack reads packs, the form in which git servers send objects. A pack comes from a server that users choose, and is
// read only as far as limits permit.
package pack

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1" //nolint:gosec // git's ids of objects
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"

	"workflowagent/internal/server/fault"
)

// objectBytes is the memory that an object needs in addition to its content.
const objectBytes = 250

// The limits of a pack.
const (
	// MaxObjects bounds the number of objects.
	MaxObjects = 200_000
	// MaxBytes bounds the contents of all objects together, in bytes.
	MaxBytes = 32 << 20
	// maxPasses bounds the length of chains of objects that refer to later ones. Git makes chains of up to 50.
	maxPasses = 64
)

// Kind is the kind of an object.
type Kind byte

// The kinds of objects.
const (
	Commit Kind = 1
	Tree   Kind = 2
	Blob   Kind = 3
	Tag    Kind = 4

	// In a pack, an object can be the difference from another one, which an offset or an id names.
	byOffset Kind = 6
	byID     Kind = 7
)

var names = map[Kind]string{Commit: "commit", Tree: "tree", Blob: "blob", Tag: "tag"}

// Pack contains objects by their ids.
type Pack struct {
	objects map[string]object
	bytes   int
}

// Bytes returns the memory that the pack needs.
func (p *Pack) Bytes() int { return p.bytes }

type object struct {
	kind    Kind
	content []byte
}

// delta is an object whose content is not known yet.
type delta struct {
	offset int64
	base   int64  // offset, or 0 if id is set
	id     string // of the base
	diff   []byte
}

var errInvalid = errors.New("the server sent an invalid pack")

// errTooLarge says what a repository may contain, for its users.
var errTooLarge = fault.New(fault.KindTooLarge, "the commit has more than %d folders and files, or these have more than %d MiB", MaxObjects, MaxBytes>>20)

type parser struct {
	raw      []byte
	left     int // bytes of contents that may follow
	idBytes  int
	newHash  func() hash.Hash
	pack     *Pack
	byOffset map[int64]object
	inflater io.ReadCloser
}

// Parse reads a pack. idBytes is the length of ids: 20, or 32 in repositories with SHA-256.
func Parse(raw []byte, idBytes int) (*Pack, error) {
	p := &parser{raw: raw, left: MaxBytes, idBytes: idBytes, newHash: sha1.New, pack: &Pack{objects: map[string]object{}}, byOffset: map[int64]object{}}
	if idBytes == sha256.Size {
		p.newHash = sha256.New
	}
	if len(raw) < 12+idBytes || string(raw[:4]) != "PACK" || binary.BigEndian.Uint32(raw[4:]) != 2 {
		return nil, errInvalid
	}
	body, sum := raw[:len(raw)-idBytes], p.newHash()
	sum.Write(body)
	if !bytes.Equal(sum.Sum(nil), raw[len(body):]) {
		return nil, errInvalid
	}
	p.raw = body
	count := binary.BigEndian.Uint32(raw[8:])
	if count > MaxObjects {
		return nil, errTooLarge
	}
	var deltas []delta
	offset := int64(12)
	for range count {
		next, d, err := p.object(offset)
		if err != nil {
			return nil, err
		}
		if d != nil {
			deltas = append(deltas, *d)
		}
		offset = next
	}
	err := p.resolve(deltas)
	p.pack.bytes = MaxBytes - p.left + int(count)*objectBytes
	return p.pack, err
}

// object reads the object at an offset, and returns the next offset.
func (p *parser) object(offset int64) (next int64, d *delta, err error) {
	r := bytes.NewReader(p.raw)
	if _, err := r.Seek(offset, io.SeekStart); err != nil {
		return 0, nil, errInvalid
	}
	first, err := r.ReadByte()
	if err != nil {
		return 0, nil, errInvalid
	}
	kind, size := Kind(first>>4&7), uint64(first&15)
	for b, shift := first, 4; b&0x80 != 0; shift += 7 {
		if b, err = r.ReadByte(); err != nil || shift > 32 {
			return 0, nil, errInvalid
		}
		size |= uint64(b&0x7f) << shift
	}
	switch kind {
	case Commit, Tree, Blob, Tag:
	case byOffset:
		back, err := readBack(r)
		if err != nil || back <= 0 || back >= offset {
			return 0, nil, errInvalid
		}
		d = &delta{base: offset - back}
	case byID:
		id := make([]byte, p.idBytes)
		if _, err := io.ReadFull(r, id); err != nil {
			return 0, nil, errInvalid
		}
		d = &delta{id: hex.EncodeToString(id)}
	default:
		return 0, nil, errInvalid
	}
	content, err := p.inflate(r, size)
	if err != nil {
		return 0, nil, err
	}
	if d != nil {
		d.offset, d.diff = offset, content
	} else {
		p.add(offset, object{kind, content})
	}
	return int64(len(p.raw) - r.Len()), d, nil
}

// readBack reads the distance to the base of an object.
func readBack(r io.ByteReader) (int64, error) {
	back := int64(0)
	for n := 0; ; n++ {
		b, err := r.ReadByte()
		if err != nil || n > 5 {
			return 0, errInvalid
		}
		if n > 0 {
			back++
		}
		if back = back<<7 | int64(b&0x7f); b&0x80 == 0 {
			return back, nil
		}
	}
}

// inflate reads a compressed content, whose size must be the given one.
func (p *parser) inflate(r *bytes.Reader, size uint64) ([]byte, error) {
	if size > uint64(p.left) {
		return nil, errTooLarge
	}
	p.left -= int(size)
	var err error
	if p.inflater == nil {
		p.inflater, err = zlib.NewReader(r)
	} else if reset, ok := p.inflater.(zlib.Resetter); ok {
		err = reset.Reset(r, nil)
	}
	if err != nil {
		return nil, errInvalid
	}
	content := make([]byte, size)
	if _, err := io.ReadFull(p.inflater, content); err != nil {
		return nil, errInvalid
	}
	// The end must follow, whose checksum is read with it.
	if n, err := p.inflater.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		return nil, errInvalid
	}
	return content, nil
}

func (p *parser) add(offset int64, o object) {
	sum := p.newHash()
	fmt.Fprintf(sum, "%s %d\x00", names[o.kind], len(o.content))
	sum.Write(o.content)
	p.byOffset[offset] = o
	p.pack.objects[hex.EncodeToString(sum.Sum(nil))] = o
}

// resolve computes the contents of objects that are differences.
func (p *parser) resolve(deltas []delta) error {
	for range maxPasses {
		var waiting []delta
		for _, d := range deltas {
			base, ok := p.byOffset[d.base]
			if d.id != "" {
				base, ok = p.pack.objects[d.id]
			}
			if !ok {
				waiting = append(waiting, d)
				continue
			}
			content, err := p.apply(base.content, d.diff)
			if err != nil {
				return err
			}
			p.add(d.offset, object{base.kind, content})
		}
		if len(waiting) == 0 {
			return nil
		}
		if len(waiting) == len(deltas) {
			break
		}
		deltas = waiting
	}
	return errInvalid
}

// apply returns what a difference makes of a base.
func (p *parser) apply(base, diff []byte) ([]byte, error) {
	from, n := binary.Uvarint(diff)
	if n <= 0 || from != uint64(len(base)) {
		return nil, errInvalid
	}
	diff = diff[n:]
	size, n := binary.Uvarint(diff)
	if n <= 0 {
		return nil, errInvalid
	}
	if size > uint64(p.left) {
		return nil, errTooLarge
	}
	p.left -= int(size)
	out := make([]byte, 0, size)
	for diff = diff[n:]; len(diff) > 0; {
		op := diff[0]
		diff = diff[1:]
		var part []byte
		switch {
		case op == 0:
			return nil, errInvalid
		case op&0x80 == 0: // bytes that follow
			if int(op) > len(diff) {
				return nil, errInvalid
			}
			part, diff = diff[:op], diff[op:]
		default: // bytes of the base
			var at, length int
			for bit := range 7 {
				if op>>bit&1 == 0 {
					continue
				}
				if len(diff) == 0 {
					return nil, errInvalid
				}
				if bit < 4 {
					at |= int(diff[0]) << (8 * bit)
				} else {
					length |= int(diff[0]) << (8 * (bit - 4))
				}
				diff = diff[1:]
			}
			if length == 0 {
				length = 0x10000
			}
			if at > len(base) || length > len(base)-at {
				return nil, errInvalid
			}
			part = base[at : at+length]
		}
		if len(part) > int(size)-len(out) {
			return nil, errInvalid
		}
		out = append(out, part...)
	}
	if uint64(len(out)) != size {
		return nil, errInvalid
	}
	return out, nil
}

// Object returns the content of an object of a kind. ok is not set if the pack does not contain it.
func (p *Pack) Object(kind Kind, id string) (content []byte, ok bool) {
	o, ok := p.objects[id]
	return o.content, ok && o.kind == kind
}
