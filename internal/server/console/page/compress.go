package page

import (
	"net/http"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
)

// leastCompressed is the size below which a page is sent as it is, in bytes.
const leastCompressed = 1 << 10

var packers = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

// compresses reports whether the answer to a request may be compressed. Who watches the connection sees the size of a
// compressed page, and could learn its content from pages that a foreign site lets the browser load with a text of its
// choice in the URL. So navigations from other sites, which browsers name, get pages as they are. Answers to forms can
// contain a new secret next to what was typed.
func (s *Site) compresses(r *http.Request) bool {
	if r.Method != http.MethodGet || !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		return false
	}
	from := r.Header.Get("Sec-Fetch-Site")
	return from == "same-origin" || from == "none" || !s.Secure() // browsers send the header only to secure sites
}

// write writes a page, compressed if it may be.
func (s *Site) write(w http.ResponseWriter, r *http.Request, status int, html []byte) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Add("Vary", "Accept-Encoding, Sec-Fetch-Site")
	if len(html) < leastCompressed || !s.compresses(r) {
		w.WriteHeader(status)
		w.Write(html) //nolint:errcheck // the browser might have disconnected
		return
	}
	h.Set("Content-Encoding", "gzip")
	w.WriteHeader(status)
	z := packers.Get().(*gzip.Writer) //nolint:forcetypeassert // the pool contains nothing else
	defer packers.Put(z)
	z.Reset(w)
	z.Write(html) //nolint:errcheck // the browser might have disconnected
	z.Close()     //nolint:errcheck // as above
}
