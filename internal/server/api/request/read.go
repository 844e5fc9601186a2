package request

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/fault"
)

// sentBody is a body in the form that the client sent. Clients can be slow, so the server keeps the
// inflated form only while it processes the body.
type sentBody struct {
	data     []byte
	encoding string // "", "gzip" or "zstd"
}

func readSent(w http.ResponseWriter, r *http.Request, b Bounds) (sentBody, error) {
	enc := strings.ToLower(strings.TrimSpace(r.Header.Get("Content-Encoding")))
	switch enc {
	case "identity":
		enc = ""
	case "x-gzip":
		enc = "gzip"
	case "", "gzip", "zstd":
	default:
		return sentBody{}, &web.Error{Status: http.StatusUnsupportedMediaType, Message: fmt.Sprintf("Content-Encoding %q is unknown; use gzip, zstd or none", PlainText(enc))}
	}
	limit := b.Sent
	if enc == "" {
		limit = min(b.Sent, b.Inflated)
	}
	if r.ContentLength > limit {
		return sentBody{}, &http.MaxBytesError{Limit: limit}
	}
	data, err := budget.ReadAll(r.Context(), http.MaxBytesReader(w, r.Body, limit), r.ContentLength, limit, false)
	if err != nil {
		return sentBody{}, bodyError(err)
	}
	return sentBody{data, enc}, nil
}

// decompressors are reused, because each needs 44 kB and most bodies are small.
var decompressors sync.Pool

// open returns a stream of the decompressed body that fails after limit bytes.
func (s sentBody) open(ctx context.Context, limit int64) (io.Reader, func(), error) {
	src, share := bytes.NewReader(s.data), budget.Of(ctx)
	if s.encoding == "gzip" {
		if err := share.Take(ctx, gunzipMemory); err != nil {
			return nil, nil, err
		}
		z, ok := decompressors.Get().(*gzip.Reader)
		if !ok {
			z = new(gzip.Reader)
		}
		if err := z.Reset(src); err != nil {
			return nil, nil, bodyError(err)
		}
		return http.MaxBytesReader(nil, io.NopCloser(z), limit), func() { decompressors.Put(z); share.Give(gunzipMemory) }, nil
	}
	if err := share.Take(ctx, 2*zstdWindow); err != nil {
		return nil, nil, err
	}
	z, err := zstd.NewReader(src, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(uint64(limit)), zstd.WithDecoderMaxWindow(zstdWindow))
	if err != nil {
		return nil, nil, bodyError(err)
	}
	return http.MaxBytesReader(nil, io.NopCloser(z), limit), func() { z.Close(); share.Give(2 * zstdWindow) }, nil
}

const (
	gunzipMemory = 64 << 10 // memory of a gzip reader
	zstdWindow   = 8 << 20  // the largest accepted window
)

// inflate returns the decompressed body. It charges the memory of the decompressed body in addition
// to that of the sent body.
func (s sentBody) inflate(ctx context.Context, limit int64) ([]byte, error) {
	if s.encoding == "" || len(s.data) == 0 {
		return s.data, nil
	}
	size := s.claimed(limit)
	if s.encoding == "zstd" && size >= 0 {
		return s.inflateFrame(ctx, size)
	}
	r, done, err := s.open(ctx, limit)
	if err != nil {
		return nil, err
	}
	defer done()
	data, err := budget.ReadAll(ctx, r, size, limit, true)
	return data, bodyError(err)
}

// frames returns the decompressor of whole frames, for concurrent use.
var frames = sync.OnceValues(func() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecodeAllCapLimit(true))
})

// inflateFrame decompresses a zstd frame of known size without an additional window.
func (s sentBody) inflateFrame(ctx context.Context, size int64) ([]byte, error) {
	if err := budget.Of(ctx).Take(ctx, size); err != nil {
		return nil, err
	}
	z, err := frames()
	if err != nil {
		return nil, bodyError(err)
	}
	data, err := z.DecodeAll(s.data, make([]byte, 0, size))
	return data, bodyError(err)
}

// claimed returns the decompressed size that a compressed body declares, so that one allocation
// suffices. It returns -1 if the declared size is missing or impossible.
func (s sentBody) claimed(limit int64) int64 {
	const (
		best     = 1032 // the best ratio of deflate
		bestZstd = 64 << 10
	)
	switch {
	case s.encoding == "gzip" && len(s.data) >= 4:
		claim := int64(binary.LittleEndian.Uint32(s.data[len(s.data)-4:]))
		return min(claim, limit, best*int64(len(s.data)))
	case s.encoding == "zstd":
		var h zstd.Header
		if h.Decode(s.data) == nil && !h.Skippable && h.HasFCS && h.FrameContentSize <= uint64(min(limit, bestZstd*int64(len(s.data)))) {
			return int64(h.FrameContentSize)
		}
	}
	return -1
}

func bodyError(err error) error {
	if err == nil {
		return nil
	}
	var tooLarge *http.MaxBytesError
	var fe *fault.Error
	var he *web.Error
	if errors.As(err, &tooLarge) || errors.As(err, &fe) || errors.As(err, &he) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fault.Wrap(fault.KindInvalid, err, "the body could not be read completely")
}
