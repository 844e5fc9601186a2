package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"workflowagent/internal/protocol"
)

// requestIDHeader is the header with a request's id, which the CLI prints when the server fails.
const requestIDHeader = "X-Pulumi-Request-ID"

type record struct {
	id     string
	began  time.Time
	err    error
	caller string
	cut    bool // the response is incomplete
}

type recordKey struct{}

// recordOf returns the record of a request, or a new record if [Observe] did not handle the
// request.
func recordOf(r *http.Request) *record {
	if rec, ok := r.Context().Value(recordKey{}).(*record); ok {
		return rec
	}
	return new(record)
}

// NoteError records an error for the access log.
func NoteError(r *http.Request, err error) { recordOf(r).err = err }

// Abort records an error that occurred after the response began. The connection is then aborted, so
// that the response does not appear complete.
func Abort(r *http.Request, err error) {
	rec := recordOf(r)
	rec.err, rec.cut = err, true
}

type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	inFlight prometheus.Gauge
}

func newMetrics(reg *prometheus.Registry) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "workflow_server_http_requests_total", Help: "Requests handled, by route and status.",
		}, []string{"method", "route", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "workflow_server_http_request_seconds", Help: "Time to handle a request, by route.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 60},
		}, []string{"method", "route"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "workflow_server_http_requests_in_flight", Help: "Requests being handled, including long polls.",
		}),
	}
	reg.MustRegister(m.requests, m.seconds, m.inFlight)
	return m
}

// Observe returns middleware that gives each request an id, counts the request and writes the
// access log. It logs successful requests at debug level, because a busy server handles thousands
// of polls.
func Observe(log *logrus.Entry, reg *prometheus.Registry) func(http.Handler) http.Handler {
	m := newMetrics(reg)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			rec := &record{id: uuid.NewString(), began: time.Now()}
			w.Header().Set(requestIDHeader, rec.id)
			w.Header().Set("X-Content-Type-Options", "nosniff")
			ww := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
			m.inFlight.Inc()
			defer m.inFlight.Dec()
			r = r.WithContext(context.WithValue(r.Context(), recordKey{}, rec))
			next.ServeHTTP(ww, r)
			rec.write(log, m, r, cmp.Or(ww.Status(), http.StatusOK), ww.BytesWritten())
			if rec.cut {
				panic(http.ErrAbortHandler) //nolint:forbidigo // net/http expects this panic
			}
		})
	}
}

// write counts a handled request and writes it to the access log.
func (rec *record) write(log *logrus.Entry, m *metrics, r *http.Request, status, size int) {
	took := time.Since(rec.began)
	route := "none"
	if rc := chi.RouteContext(r.Context()); rc != nil && rc.RoutePattern() != "" {
		route = rc.RoutePattern()
	}
	method := knownMethod(r.Method)
	m.requests.WithLabelValues(method, route, strconv.Itoa(status)).Inc()
	m.seconds.WithLabelValues(method, route).Observe(took.Seconds())

	level, message := rec.level(r, status)
	if !log.Logger.IsLevelEnabled(level) {
		return
	}
	entry := log.WithFields(logrus.Fields{
		"method": method, "path": shortened(r.URL.Path), "status": status, "bytes": size,
		"ms": took.Milliseconds(), "request_id": rec.id, "remote": Address(r),
	})
	if rec.caller != "" {
		entry = entry.WithField("caller", rec.caller)
	}
	if rec.err != nil {
		entry = entry.WithError(logged{rec.err})
	}
	entry.Log(level, message)
}

// level returns the level and the message of a response in the access log.
func (rec *record) level(r *http.Request, status int) (logrus.Level, string) {
	probes := r.URL.Path == protocol.StatusProbe && r.Header.Get("Authorization") == ""
	switch {
	case status == http.StatusUnauthorized && probes:
		return logrus.DebugLevel, "request" // an agent's doctor checks that the server rejects calls without a token
	case rec.cut && !errors.Is(rec.err, errNotTaken) && r.Context().Err() == nil:
		return logrus.ErrorLevel, "response truncated"
	case status == http.StatusServiceUnavailable:
		return logrus.WarnLevel, "request deferred"
	case status >= 500:
		return logrus.ErrorLevel, "request failed"
	case status >= 400 && status != http.StatusNotFound && status != statusClientClosed:
		return logrus.InfoLevel, "request refused"
	default:
		return logrus.DebugLevel, "request"
	}
}

// knownMethod returns a known HTTP method, or "other". Clients can send any word as the method, and
// each would become a series in the metrics.
func knownMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return method
	}
	return "other"
}

func shortened(path string) string {
	const limit = 512
	if len(path) > limit {
		return strings.ToValidUTF8(path[:limit], "") + "…"
	}
	return path
}

// logged is an error whose message includes the cause that err's message hides from clients.
type logged struct{ err error }

func (l logged) Error() string {
	msg := l.err.Error()
	if u, ok := l.err.(interface{ Unwrap() error }); ok {
		if cause := u.Unwrap(); cause != nil && cause.Error() != msg {
			return msg + " (" + cause.Error() + ")"
		}
	}
	return msg
}

// Begun reports whether a response that [Observe] observes has begun.
func Begun(w http.ResponseWriter) bool {
	ww, ok := w.(middleware.WrapResponseWriter)
	return ok && ww.Status() != 0
}

// RecoverPanic is middleware that responds to a panic with status 500, unless the response has
// begun.
func RecoverPanic(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if p == http.ErrAbortHandler { //nolint:errorlint // the documented sentinel is compared as it is
				panic(p) //nolint:forbidigo // net/http expects this panic to continue
			}
			err := fmt.Errorf("handler panic: %v\n%s", p, debug.Stack())
			if Begun(w) {
				Abort(r, err)
				return
			}
			WriteError(w, r, err)
		}()
		next.ServeHTTP(w, r)
	})
}

// SignAnswers is middleware that signs responses, so that agents and runners can distinguish the
// server's responses from those of a proxy. It must be the outermost handler, so that every
// response passes through it.
func SignAnswers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		signer := protocol.SignAnswers(w, r)
		next.ServeHTTP(signer, r)
		signer.Finish()
	})
}
