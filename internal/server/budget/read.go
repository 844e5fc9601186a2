package budget

import (
	"context"
	"errors"
	"io"
)

// ReadAll reads a stream into memory. It charges the memory to the share in ctx before each
// allocation. size is the expected size, or -1 if unknown. ReadAll allocates size at once only if
// trusted is set. If the stream is longer than limit bytes, so is the result, which then might
// contain only the beginning of the stream.
func ReadAll(ctx context.Context, r io.Reader, size, limit int64, trusted bool) ([]byte, error) {
	share := Of(ctx)
	var buf []byte
	for int64(len(buf)) <= limit {
		if len(buf) == cap(buf) {
			_, bigger := class(nextSize(int64(cap(buf)), size, limit, trusted))
			if err := share.Take(ctx, bigger); err != nil {
				return nil, err
			}
			old := buf
			buf = append(buffer(bigger), old...)
			share.Give(int64(cap(old)))
			Reuse(old)
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	return buf, nil
}

// nextSize returns the next size of a buffer. The final size is one byte more than the expected
// size, which detects the end of the stream. A client that has sent little data holds little
// memory, whatever size it announced.
func nextSize(now, size, limit int64, trusted bool) int64 {
	const first = 4 << 10
	next := max(first, 2*now)
	if now < 1<<20 || size > now {
		next = max(first, 8*now)
	}
	if size >= now && (trusted || 2*next > size) {
		next = size + 1
	}
	return min(next, limit+1)
}
