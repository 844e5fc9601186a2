package budget

import (
	"math/bits"
	"sync"
)

// Buffers of these sizes, in bytes, are reused. The garbage of busy senders of log would otherwise
// cost more than the rest of their requests.
const (
	minReused = 32 << 10
	maxReused = 8 << 20
)

// free contains buffers by their class.
var free [16 * 24]sync.Pool

// class returns the class of a buffer and the size of its buffers. It rounds a reused size up by at
// most an eighth.
func class(n int64) (index int, size int64) {
	if n < minReused || n > maxReused {
		return -1, n
	}
	shift := bits.Len64(uint64(n-1)) - 4
	units := (n + 1<<shift - 1) >> shift
	if units == 16 {
		shift, units = shift+1, 8
	}
	return 16*shift + int(units), units << shift
}

// buffer returns an empty buffer for at least n bytes, which might be a reused one. It charges
// nothing.
func buffer(n int64) []byte {
	index, size := class(n)
	if index >= 0 {
		if b, ok := free[index].Get().(*[]byte); ok {
			return *b
		}
	}
	return make([]byte, 0, size)
}

// Reuse lets later calls of [ReadAll] use the memory of a buffer, which nothing may use any more.
func Reuse(b []byte) {
	b = b[:0]
	if index, size := class(int64(cap(b))); index >= 0 && size == int64(cap(b)) {
		free[index].Put(&b)
	}
}
