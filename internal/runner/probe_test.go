package runner

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"

	"workflowagent/internal/protocol"
	"workflowagent/internal/reach"
)

// TestProbeUsesTheForwardedProxy runs the probe in a separate process, because a process reads its
// proxies only once.
func TestProbeUsesTheForwardedProxy(t *testing.T) {
	const inside = "TEST_PROBE_INSIDE"
	if proxy := os.Getenv(inside); proxy != "" {
		launch := protocol.Launch{
			ForwardedEnv: map[string]string{"http_proxy": proxy, "OTHER": "x"},
			Proxy:        map[string]string{"HTTP_PROXY": "http://agent.invalid", "https_proxy": proxy},
			Probe:        &protocol.Probe{URLs: []string{"http://server.invalid/"}},
		}
		if err := RunProbe(t.Context(), &launch, "v1", os.Stdout); err != nil {
			t.Fatal(err)
		}
		return
	}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Host != "server.invalid" {
			t.Errorf("the proxy was asked for %s", r.URL)
		}
		w.WriteHeader(http.StatusTeapot)
	}))
	defer proxy.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run", "^TestProbeUsesTheForwardedProxy$")
	cmd.Env = append(os.Environ(), inside+"="+proxy.URL, "NO_PROXY=", "no_proxy=")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	line, _, _ := bytes.Cut(out, []byte("\n"))
	var report reach.Report
	if err := json.Unmarshal(line, &report); err != nil || len(report.Traces) != 1 {
		t.Fatalf("%v: %s", err, out)
	}
	if trace := report.Traces[0]; trace.Code != http.StatusTeapot || trace.Proxy != proxy.URL {
		t.Errorf("got %+v", trace)
	}
}
