package budget

import (
	"bytes"
	"context"
	"testing"
	"testing/iotest"
)

func TestClass(t *testing.T) {
	for n := int64(minReused); n <= maxReused; n += n/37 + 1 {
		index, size := class(n)
		if size < n || size > n+n/8 || index < 0 || index >= len(free) {
			t.Errorf("class(%d) = %d of size %d", n, index, size)
		}
		if same, again := class(size); same != index || again != size {
			t.Errorf("class(%d) = %d of size %d, want %d of the same size", size, same, again, index)
		}
	}
	for _, n := range []int64{1, minReused - 1, maxReused + 1} {
		if index, size := class(n); index >= 0 || size != n {
			t.Errorf("class(%d) = %d of size %d, want none", n, index, size)
		}
	}
}

// TestNextSize checks that a body of the size of a busy log's chunks is copied only when little of it
// has arrived, and that a buffer is at most 16 times as large as what has arrived.
func TestNextSize(t *testing.T) {
	const limit = 4 * mib
	for _, tt := range []struct {
		now, size int64
		trusted   bool
		want      int64
	}{
		{0, -1, false, 4 << 10},
		{0, 2000, false, 2001},
		{0, limit, false, 4 << 10},
		{0, limit, true, limit + 1},
		{4 << 10, 300_000, false, 32 << 10},
		{32 << 10, 300_000, false, 300_001},
		{32 << 10, 512<<10 - 1, false, 512 << 10},
		{32 << 10, 512 << 10, false, 256 << 10},
		{32 << 10, -1, false, 256 << 10},
		{mib, -1, false, 2 * mib},
		{2 * mib, -1, false, limit},
		{limit, -1, false, limit + 1},
	} {
		if got := nextSize(tt.now, tt.size, limit, tt.trusted); got != tt.want {
			t.Errorf("after %d of %d bytes (trusted: %t): a buffer of %d bytes, want %d", tt.now, tt.size, tt.trusted, got, tt.want)
		}
	}
}

// TestReuse reads bodies in parallel into reused buffers: no body may contain bytes of another.
func TestReuse(t *testing.T) {
	for i := range 4 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			for n := 1 << 10; n < 1<<20; n = 3*n/2 + i {
				want := bytes.Repeat([]byte{byte(n + i)}, n)
				got, err := ReadAll(context.Background(), iotest.HalfReader(bytes.NewReader(want)), int64(n), 4<<20, false)
				if err != nil || !bytes.Equal(got, want) {
					t.Fatalf("read %d of %d bytes, or others: %v", len(got), n, err)
				}
				Reuse(got)
			}
		})
	}
}
