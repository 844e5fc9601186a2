package server

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/api/openapi"
)

// TestStrangersLearnNoVersion calls all routes of the API, and pages of the console, without
// credentials. The server's version would tell attackers which of its faults are not fixed yet.
func TestStrangersLearnNoVersion(t *testing.T) {
	const version = "v98.76.54"
	s, err := New(t.Context(), testConfig(t, t.TempDir()), version, storetest.Log(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	stop := run(t, s)
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	call := func(method, path string) string {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(method, path, nil)
		r.Header.Set("Accept", "*/*")
		s.handler.ServeHTTP(w, r)
		body := w.Body.String()
		if strings.Contains(body+fmt.Sprint(w.Header()), strings.TrimPrefix(version, "v")) {
			t.Errorf("%s %s: status %d, header %v, body %.300s", method, path, w.Code, w.Header(), body)
		}
		return body
	}
	var described struct{ Paths map[string]map[string]any }
	if err := json.Unmarshal([]byte(call(http.MethodGet, openapi.Path)), &described); err != nil || len(described.Paths) < 50 {
		t.Fatalf("the description of the API has %d paths, %v", len(described.Paths), err)
	}
	for path, methods := range described.Paths {
		for method := range methods {
			call(strings.ToUpper(method), path)
		}
	}
	for _, path := range []string{"/", "/healthz", "/readyz", "/metrics", "/nowhere", "/signin", "/login", "/welcome", "/claim", "/releases/", "/oidc/jwks"} {
		call(http.MethodGet, path)
	}
}
