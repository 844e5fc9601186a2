package web

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"workflowagent/internal/protocol"
)

// TestRefusedRequestsAreLogged checks that the log shows refused credentials, but not the doctor's probes, which have
// none.
func TestRefusedRequestsAreLogged(t *testing.T) {
	var out bytes.Buffer
	log := logrus.New()
	log.SetOutput(&out)
	h := Observe(logrus.NewEntry(log), prometheus.NewRegistry())(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
	}))
	for _, tt := range []struct {
		name, path, token string
		logged            bool
	}{
		{"a probe", protocol.StatusProbe, "", false},
		{"a wrong token", protocol.StatusProbe, "token pul-wrong", true},
		{"another path without a token", "/api/deployments/poll", "", true},
	} {
		out.Reset()
		r := httptest.NewRequest(http.MethodGet, tt.path, http.NoBody)
		if tt.token != "" {
			r.Header.Set("Authorization", tt.token)
		}
		h.ServeHTTP(httptest.NewRecorder(), r)
		if logged := strings.Contains(out.String(), "request refused"); logged != tt.logged {
			t.Errorf("%s: logged: %t, want %t: %s", tt.name, logged, tt.logged, out.String())
		}
	}
}
