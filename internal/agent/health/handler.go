package health

import (
	"encoding/json"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"workflowagent/internal/agent/status"
)

// healthBody is the JSON body of /healthz. The first three fields are the same as in other agents,
// whose clients expect them.
type healthBody struct {
	Status       string    `json:"status"`
	CurrentTime  time.Time `json:"currentTime"`
	LastActivity time.Time `json:"lastActivity"`
	Problems     []string  `json:"problems,omitempty"`
}

// Handler serves GET and HEAD requests for these paths:
//
//   - /healthz returns 200 and "healthy", or 503 and "unhealthy", in JSON. If the Accept header
//     prefers a Prometheus format, it returns the metrics instead, because scrape configurations
//     for other agents use this path.
//   - /readyz returns 200 if the agent can accept jobs, and otherwise 503 with the reasons.
//   - /metrics returns the metrics.
//   - /status returns an HTML page, or JSON on request. /status.json returns JSON.
//
// No request changes anything, because other users may be able to reach the port.
func Handler(m *Metrics, report func() status.Report) http.Handler {
	metrics := promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		EnableOpenMetrics:   true,
		MaxRequestsInFlight: 10,
		Timeout:             10 * time.Second,
	})
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Accept")
		if wantsMetrics(r.Header.Values("Accept")) {
			metrics.ServeHTTP(w, r)
			return
		}
		writeHealth(w, report())
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { writeReadiness(w, report()) })
	mux.HandleFunc("GET /status.json", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, report()) })
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Accept")
		if wantsJSON(r.Header.Values("Accept")) {
			writeJSON(w, http.StatusOK, report())
			return
		}
		writePage(w, report())
	})
	return mux
}

type readiness struct {
	Status  status.State `json:"status"`
	Reasons []string     `json:"reasons"`
}

func writeReadiness(w http.ResponseWriter, r status.Report) {
	code := http.StatusOK
	if r.State != status.Ready {
		code = http.StatusServiceUnavailable
	}
	writeJSON(w, code, readiness{r.State, r.Reasons})
}

func writePage(w http.ResponseWriter, r status.Report) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", status.PagePolicy())
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	//nolint:errcheck // A client that went away gets nothing; the error has no recipient.
	status.WritePage(w, r)
}

func writeJSON(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	//nolint:errcheck,errchkjson // A client that went away gets nothing; the error has no recipient.
	json.NewEncoder(w).Encode(body)
}

func writeHealth(w http.ResponseWriter, r status.Report) {
	body := healthBody{Status: "healthy", CurrentTime: r.Time.UTC(), LastActivity: r.LastActivity.UTC(), Problems: r.Problems}
	code := http.StatusOK
	if !r.Healthy {
		body.Status, code = "unhealthy", http.StatusServiceUnavailable
	}
	writeJSON(w, code, body)
}

// wantsMetrics reports whether an Accept header prefers a Prometheus format to JSON. Users and
// probes send a plain */* or text/plain.
func wantsMetrics(accept []string) bool {
	return prefers(accept, "application/json", func(mediaType string, params map[string]string) bool {
		return mediaType == "application/openmetrics-text" ||
			mediaType == "application/vnd.google.protobuf" && params["proto"] == "io.prometheus.client.MetricFamily" ||
			mediaType == "text/plain" && params["version"] != ""
	})
}

func wantsJSON(accept []string) bool {
	return prefers(accept, "text/html", func(mediaType string, _ map[string]string) bool { return mediaType == "application/json" })
}

// prefers reports whether an Accept header prefers the wanted media types to another one.
func prefers(accept []string, other string, wanted func(mediaType string, params map[string]string) bool) bool {
	var most, mostOther float64
	for part := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		mediaType, params, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		q := 1.0
		if text, ok := params["q"]; ok {
			if q, err = strconv.ParseFloat(text, 64); err != nil {
				continue
			}
		}
		switch {
		case wanted(mediaType, params):
			most = max(most, q)
		case mediaType == other:
			mostOther = max(mostOther, q)
		}
	}
	return most > mostOther
}
