package web

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestRecorder(t *testing.T) {
	for name, test := range map[string]struct {
		respond func(w http.ResponseWriter)
		status  int
		bytes   int64
	}{
		"nothing":       {func(http.ResponseWriter) {}, 0, 0},
		"a body":        {func(w http.ResponseWriter) { _, _ = io.WriteString(w, "four") }, http.StatusOK, 4},
		"a copied body": {func(w http.ResponseWriter) { _, _ = io.Copy(w, strings.NewReader("seventh")) }, http.StatusOK, 7},
		"a status":      {func(w http.ResponseWriter) { w.WriteHeader(http.StatusTeapot) }, http.StatusTeapot, 0},
		"hints first": {func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusNotFound)
		}, http.StatusNotFound, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := &recorder{ResponseWriter: httptest.NewRecorder()}
			test.respond(w)
			if w.status != test.status || w.bytes != test.bytes {
				t.Errorf("got the status %d and %d bytes, want %d and %d", w.status, w.bytes, test.status, test.bytes)
			}
		})
	}
	inner := httptest.NewRecorder()
	if err := http.NewResponseController(&recorder{ResponseWriter: inner}).Flush(); err != nil || !inner.Flushed {
		t.Errorf("flushing through the recorder: %v", err)
	}
}
