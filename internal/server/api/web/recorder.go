package web

import (
	"io"
	"net/http"
)

// recorder records the status and the size of a response.
type recorder struct {
	http.ResponseWriter
	status int // of the final header; 0 before it
	bytes  int64
}

// WriteHeader implements [http.ResponseWriter]. Informational headers precede the final one.
func (w *recorder) WriteHeader(status int) {
	if w.status == 0 && (status >= http.StatusOK || status == http.StatusSwitchingProtocols) {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (w *recorder) Write(p []byte) (int, error) {
	w.begin()
	n, err := w.ResponseWriter.Write(p)
	w.bytes += int64(n)
	return n, err
}

// ReadFrom implements [io.ReaderFrom], so that files are sent without a copy in memory.
func (w *recorder) ReadFrom(r io.Reader) (int64, error) {
	w.begin()
	n, err := io.Copy(w.ResponseWriter, r)
	w.bytes += n
	return n, err
}

func (w *recorder) begin() {
	if w.status == 0 {
		w.status = http.StatusOK
	}
}

// Unwrap returns the original writer, for [http.ResponseController].
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }
