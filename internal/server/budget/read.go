package budget

import (
	"context"
	"errors"
	"io"
)

// ReadAll reads a stream into memory that is charged to the share of ctx before it
// is allocated. size is what is expected, -1 if that is not known; it is
// allocated at once only if it is trusted. Reading ends after limit bytes: a
// result that is longer than that is not the whole stream.
func ReadAll(ctx context.Context, r io.Reader, size, limit int64, trusted bool) ([]byte, error) {
	share := Of(ctx)
	var buf []byte
	for int64(len(buf)) <= limit {
		if len(buf) == cap(buf) {
			bigger := nextSize(int64(cap(buf)), size, limit, trusted)
			if err := share.Take(ctx, bigger); err != nil {
				return nil, err
			}
			old := buf
			buf = append(make([]byte, 0, bigger), old...)
			share.Give(int64(cap(old)))
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

// nextSize returns the next size of a buffer. One byte more than the size shows the
// end of the stream. A client that has sent little holds little, whatever it announced.
func nextSize(now, size, limit int64, trusted bool) int64 {
	const first = 4 << 10
	next := max(first, 2*now)
	if now < 1<<20 || size > now {
		next = max(first, 8*now)
	}
	if size >= now && (trusted || next > size) {
		next = size + 1
	}
	return min(next, limit+1)
}
