package web

import (
	"bytes"
	"errors"
	"io"
	"net/http"

	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/fault"
)

// early is the size of bodies that are read before the rights of the caller. A client that sends its body slowly would
// otherwise keep the rights that it had when the request began. It is small, because strangers send such bodies, too.
const early = 8 << 10

// ReadEarly reads a small body into memory. It reports whether it has read the whole body, after which nothing delays
// the handler any more.
func ReadEarly(r *http.Request) (whole bool, err error) {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return true, nil
	}
	if r.ContentLength > early {
		return false, nil
	}
	size := r.ContentLength
	if size < 0 {
		size = early
	}
	if err := budget.Of(r.Context()).Take(r.Context(), size); err != nil {
		return false, err
	}
	data, err := io.ReadAll(io.LimitReader(r.Body, size+1))
	if err != nil {
		return false, fault.Wrap(fault.KindInvalid, err, "the body could not be read completely")
	}
	whole = int64(len(data)) <= size
	var rest io.Reader = bytes.NewReader(data)
	if !whole {
		rest = io.MultiReader(rest, r.Body)
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{rest, r.Body}
	return whole, nil
}

// lateBody is a body that was not read early. At its end, it checks the rights of the caller again.
type lateBody struct {
	io.ReadCloser
	checks []func() error
	end    error // of the body, after the checks
}

// Read implements [io.Reader]. A check that fails replaces the end of the body.
func (b *lateBody) Read(p []byte) (int, error) {
	if b.end != nil {
		return 0, b.end
	}
	n, err := b.ReadCloser.Read(p)
	if !errors.Is(err, io.EOF) {
		return n, err
	}
	b.end = err
	for _, check := range b.checks {
		if err := check(); err != nil {
			b.end = err
			break
		}
	}
	return n, b.end
}

// atEnd makes the end of a body that was not read early depend on a check.
func atEnd(r *http.Request, check func() error) {
	if late, ok := r.Body.(*lateBody); ok {
		late.checks = append(late.checks, check)
	}
}
