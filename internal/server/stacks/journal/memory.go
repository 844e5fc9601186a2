package journal

import "bytes"

// Hold reserves memory for a state before the state uses it. A negative number of bytes releases
// memory. A nil Hold reserves none.
type Hold func(bytes int64) error

func (h Hold) take(n int) error {
	if h == nil {
		return nil
	}
	return h(int64(n))
}

// perResource is the memory overhead of a resource, in bytes.
const perResource = 128

// perEntry is the memory overhead of a replayed entry, in bytes.
const perEntry = 128

// keptPart is the number of resources for which memory is reserved at a time.
const keptPart = 256

// resources collects the resources of a state that is being read.
type resources struct {
	hold Hold
	list [][]byte
}

func (r *resources) add(resource ...[]byte) error {
	before, after := len(r.list)/keptPart, (len(r.list)+len(resource))/keptPart
	if err := r.hold.take((after - before) * keptPart * perResource); err != nil {
		return err
	}
	r.list = append(r.list, resource...)
	return nil
}

// keeper copies the parts of entries that a replay keeps. After an error it copies nothing.
type keeper struct {
	hold Hold
	err  error
}

func (k *keeper) take(n int) bool {
	if k.err == nil {
		k.err = k.hold.take(n)
	}
	return k.err == nil
}

func (k *keeper) keep(part []byte) []byte {
	if !k.take(len(part)) {
		return nil
	}
	return bytes.Clone(part)
}

func (k *keeper) drop(part []byte) { k.take(-len(part)) }
