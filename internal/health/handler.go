package health

import (
	"encoding/json"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// report is the body of /healthz. Clients of other agents know the first three fields.
type report struct {
	Status       string    `json:"status"`
	CurrentTime  time.Time `json:"currentTime"`
	LastActivity time.Time `json:"lastActivity"`
	Problems     []string  `json:"problems,omitempty"`
}

// Handler serves GET and HEAD of two paths. /healthz answers 200 and "healthy", or 503 and
// "unhealthy", in JSON; a client that asks for Prometheus text with its Accept header gets the
// metrics instead, because scrape configurations written for other agents name this path.
// /metrics always answers with the metrics.
func Handler(t *Tracker, m *Metrics) http.Handler {
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
		writeReport(w, t)
	})
	return mux
}

func writeReport(w http.ResponseWriter, t *Tracker) {
	body := report{
		Status: "healthy", CurrentTime: time.Now().UTC(), LastActivity: t.LastActivity().UTC(),
		Problems: t.Problems(),
	}
	status := http.StatusOK
	if !t.Healthy() {
		body.Status, status = "unhealthy", http.StatusServiceUnavailable
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	//nolint:errcheck,errchkjson // A client that went away gets nothing; there is nobody to tell.
	json.NewEncoder(w).Encode(body)
}

// wantsMetrics reports whether an Accept header prefers one of the formats that only Prometheus
// and its kind ask for to JSON. A plain */* or text/plain is a person or a probe.
func wantsMetrics(accept []string) bool {
	var metrics, other float64
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
		case mediaType == "application/openmetrics-text",
			mediaType == "application/vnd.google.protobuf" && params["proto"] == "io.prometheus.client.MetricFamily",
			mediaType == "text/plain" && params["version"] != "":
			metrics = max(metrics, q)
		case mediaType == "application/json":
			other = max(other, q)
		}
	}
	return metrics > other
}
