package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"

	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/fault"
)

const gzipFrom = 4 << 10

// GzipMemory is the memory needed to compress a response, in bytes.
const GzipMemory = 1 << 20

// compressors are reused, because allocating one costs more than most compressions.
var compressors = sync.Pool{New: func() any {
	z, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	if err != nil {
		return nil // the level is a constant
	}
	return z
}}

// WriteJSON responds with a status and a JSON body. It compresses the body if the body is large and
// the client accepts gzip. It charges the body's memory to the request.
func WriteJSON(w http.ResponseWriter, r *http.Request, status int, v any) error {
	body, err := encodeJSON(v)
	if err != nil {
		return err
	}
	if err := budget.Of(r.Context()).Take(r.Context(), 2*int64(len(body))); err != nil {
		return err
	}
	return WriteRaw(w, r, status, body)
}

// Answer responds with status 200 and v if err is nil. Otherwise, it returns err.
func Answer(w http.ResponseWriter, r *http.Request, v any, err error) error {
	if err != nil {
		return err
	}
	return WriteJSON(w, r, http.StatusOK, v)
}

// Done responds with status 204 if err is nil. Otherwise, it returns err.
func Done(w http.ResponseWriter, err error) error {
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

// Each returns what f makes of each element of a list, so that JSON contains [] and not null for an empty one.
func Each[T, B any](list []T, f func(T) B) []B {
	out := make([]B, len(list))
	for i, v := range list {
		out[i] = f(v)
	}
	return out
}

func encodeJSON(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return buf.Bytes(), fault.While(err, "encoding the response")
}

func jsonHeader(w http.ResponseWriter) http.Header {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	if h.Get("Cache-Control") == "" {
		h.Set("Cache-Control", "no-store")
	}
	h.Add("Vary", "Accept-Encoding")
	return h
}

// WriteRaw is [WriteJSON] for encoded JSON, whose memory it does not charge. It returns no error if
// the client does not read the response.
func WriteRaw(w http.ResponseWriter, r *http.Request, status int, body []byte) error {
	h := jsonHeader(w)
	if len(body) >= gzipFrom && acceptsGzip(r) {
		packed, err := compress(body)
		if err != nil {
			return err
		}
		// A slow client holds only the compressed form.
		body = packed
		h.Set("Content-Encoding", "gzip")
	}
	w.WriteHeader(status)
	w.Write(body) //nolint:errcheck // the client might have disconnected
	return nil
}

func compress(body []byte) ([]byte, error) {
	z, ok := compressors.Get().(*gzip.Writer)
	if !ok {
		return nil, errors.New("compressing the response: no compressor is available")
	}
	defer compressors.Put(z)
	var out bytes.Buffer
	z.Reset(&out)
	_, err := z.Write(body)
	err = errors.Join(err, z.Close())
	return out.Bytes(), fault.While(err, "compressing the response")
}

func acceptsGzip(r *http.Request) bool {
	for part := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, q, _ := strings.Cut(strings.TrimSpace(part), ";")
		if strings.TrimSpace(name) == "gzip" {
			return strings.ReplaceAll(q, " ", "") != "q=0"
		}
	}
	return false
}
