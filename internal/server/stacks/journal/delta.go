package journal

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/maphash"
	"io"
)

// The encoding of a delta consists of the format, the number of the parent's resources, the schema
// version, the features, the members and the resources. Numbers are varints. A text follows its
// length, and features and members follow their number. A member is a name and either sameMember,
// or 1 + the length of its value and the value. Resources are encoded as runs. A run begins with
// twice the number of its resources, plus one if the delta contains the resources. A run of copies
// is followed by the distance of its first resource from the one after the last copy.
const (
	deltaFormat = 1
	sameMember  = 0
)

// Diff writes a delta that encodes a state as the difference from its parent. The delta can be as
// long as the state, so Diff does not hold it in memory.
func Diff(w io.Writer, parent, child *Deployment) error {
	d := deltaWriter{out: bufio.NewWriterSize(w, 64<<10)}
	d.uvarint(deltaFormat)
	d.uvarint(uint64(len(parent.Resources)))
	d.varint(child.Version)
	d.uvarint(uint64(len(child.Features)))
	for _, f := range child.Features {
		d.text([]byte(f))
	}
	d.uvarint(uint64(len(child.Members)))
	values := parent.values()
	for _, m := range child.Members {
		d.text([]byte(m.Name))
		if bytes.Equal(values[m.Name], m.Value) {
			d.uvarint(sameMember)
			continue
		}
		d.uvarint(uint64(len(m.Value)) + 1)
		d.write(m.Value)
	}
	d.runs(sources(parent.Resources, child.Resources), child.Resources)
	return d.out.Flush()
}

// deltaWriter writes the parts of a delta. The Flush method of out returns the first error.
type deltaWriter struct {
	out     *bufio.Writer
	scratch [binary.MaxVarintLen64]byte
}

func (d *deltaWriter) write(p []byte) { d.out.Write(p) } //nolint:errcheck // Flush returns the error

func (d *deltaWriter) uvarint(v uint64) { d.write(binary.AppendUvarint(d.scratch[:0], v)) }

func (d *deltaWriter) varint(v int64) { d.write(binary.AppendVarint(d.scratch[:0], v)) }

func (d *deltaWriter) text(text []byte) {
	d.uvarint(uint64(len(text)))
	d.write(text)
}

// values returns the values of the deployment's members by name.
func (d *Deployment) values() map[string][]byte {
	values := make(map[string][]byte, len(d.Members))
	for _, m := range d.Members {
		values[m.Name] = m.Value
	}
	return values
}

// literal is the source of a resource that does not exist in the parent.
const literal = -1

// sources returns, for each resource of the child, the index of an equal resource of the parent, or
// literal. Each resource of the parent is the source of at most one resource of the child.
func sources(parent, child [][]byte) []int {
	seed := maphash.MakeSeed()
	var index map[uint64]int
	used := make([]bool, len(parent))
	take := func(i int, resource []byte) bool {
		if i >= len(parent) || used[i] || !bytes.Equal(parent[i], resource) {
			return false
		}
		used[i] = true
		return true
	}
	out := make([]int, len(child))
	next := 0
	for i, resource := range child {
		out[i] = literal
		if take(next, resource) {
			out[i], next = next, next+1
			continue
		}
		if index == nil {
			index = make(map[uint64]int, len(parent))
			for j, p := range parent {
				index[maphash.Bytes(seed, p)] = j
			}
		}
		if j, ok := index[maphash.Bytes(seed, resource)]; ok && take(j, resource) {
			out[i], next = j, j+1
		}
	}
	return out
}

func (d *deltaWriter) runs(sources []int, resources [][]byte) {
	next := 0
	for i := 0; i < len(sources); {
		end := i + 1
		if first := sources[i]; first != literal {
			for end < len(sources) && sources[end] == first+end-i {
				end++
			}
			d.uvarint(uint64(end-i) << 1)
			d.varint(int64(first - next))
			next = first + end - i
		} else {
			for end < len(sources) && sources[end] == literal {
				end++
			}
			d.uvarint(uint64(end-i)<<1 | 1)
			for _, resource := range resources[i:end] {
				d.text(resource)
			}
		}
		i = end
	}
}

var errDamaged = errors.New("reading a state's delta: the delta is damaged or belongs to another state; restore it from a backup")

// Apply returns the state that a delta encodes. The state shares memory with the parent and the
// delta. hold reserves the memory overhead of each resource.
func Apply(parent *Deployment, delta []byte, hold Hold) (*Deployment, error) {
	r := deltaReader{rest: delta}
	if r.uvarint() != deltaFormat || r.uvarint() != uint64(len(parent.Resources)) {
		return nil, errDamaged
	}
	d := &Deployment{Version: r.varint()}
	for range r.count() {
		d.Features = append(d.Features, string(r.text()))
	}
	values := parent.values()
	for range r.count() {
		d.Members = append(d.Members, r.member(values))
	}
	d.Resources = r.resources(parent.Resources, hold)
	if r.err != nil {
		return nil, r.err
	}
	if r.damaged {
		return nil, errDamaged
	}
	return d, nil
}

// deltaReader reads the parts of a delta. After the first damaged part, all others are zero.
type deltaReader struct {
	rest    []byte
	damaged bool
	err     error // set if memory is missing
}

func (r *deltaReader) fail() {
	r.rest, r.damaged = nil, true
}

func (r *deltaReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *deltaReader) varint() int64 {
	v, n := binary.Varint(r.rest)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// count reads the number of parts that follow, each of which has at least one byte.
func (r *deltaReader) count() uint64 {
	n := r.uvarint()
	if n > uint64(len(r.rest)) {
		r.fail()
		return 0
	}
	return n
}

func (r *deltaReader) text() []byte {
	n := r.count()
	text := r.rest[:n:n]
	r.rest = r.rest[n:]
	return text
}

// json reads n bytes, which must be valid JSON.
func (r *deltaReader) json(n uint64) []byte {
	if n > uint64(len(r.rest)) || !json.Valid(r.rest[:n]) {
		r.fail()
		return nil
	}
	value := r.rest[:n:n]
	r.rest = r.rest[n:]
	return value
}

func (r *deltaReader) member(parent map[string][]byte) Member {
	m := Member{Name: string(r.text())}
	if !json.Valid([]byte(`"` + m.Name + `"`)) {
		r.fail()
	}
	if n := r.uvarint(); n == sameMember {
		m.Value = parent[m.Name]
	} else {
		m.Value = r.json(n - 1)
	}
	if m.Value == nil {
		r.fail()
	}
	return m
}

func (r *deltaReader) resources(parent [][]byte, hold Hold) [][]byte {
	out := resources{hold: hold}
	next, copied := int64(0), 0
	for len(r.rest) > 0 {
		tag := r.uvarint()
		n := tag >> 1
		if tag&1 == 1 {
			if n > uint64(len(r.rest)) {
				r.fail()
			}
			for range n {
				resource := r.json(r.uvarint())
				if r.damaged {
					return nil
				}
				if r.err = out.add(resource); r.err != nil {
					return nil
				}
			}
			continue
		}
		first := next + r.varint()
		left := uint64(len(parent) - copied)
		if r.damaged || n > left || first < 0 || first > int64(len(parent)) || n > uint64(len(parent))-uint64(first) {
			r.fail()
			return nil
		}
		if r.err = out.add(parent[first : first+int64(n)]...); r.err != nil {
			return nil
		}
		next, copied = first+int64(n), copied+int(n)
	}
	return out.list
}
