package health

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the agent's numbers, in a registry of their own. All methods may be called from any
// goroutine.
type Metrics struct {
	registry    *prometheus.Registry
	jobsRunning prometheus.Gauge
	jobsDone    *prometheus.CounterVec
	pollErrors  prometheus.Counter
}

// NewMetrics returns the metrics of an agent of the given version whose progress is in tracker.
func NewMetrics(version string, tracker *Tracker) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		jobsRunning: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "workflow_agent_jobs_running",
			Help: "Jobs that the agent is running now.",
		}),
		jobsDone: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "workflow_agent_jobs_finished_total",
			Help: "Jobs that have ended since the agent started, by result.",
		}, []string{"result"}),
		pollErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "workflow_agent_poll_errors_total",
			Help: "Polls for work that failed since the agent started.",
		}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "workflow_agent_build_info",
		Help: "Always 1; the labels say what runs.",
		ConstLabels: prometheus.Labels{
			"version": version, "go_version": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH,
		},
	})
	build.Set(1)
	m.registry.MustRegister(
		build, m.jobsRunning, m.jobsDone, m.pollErrors,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "workflow_agent_up",
			Help: "1 if the agent makes progress, 0 if its last activity is older than health_threshold.",
		}, func() float64 {
			if tracker.Healthy() {
				return 1
			}
			return 0
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "workflow_agent_last_activity_timestamp_seconds",
			Help: "When the agent last made progress, in seconds since 1970.",
		}, func() float64 { return float64(tracker.LastActivity().UnixNano()) / 1e9 }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "workflow_agent_problems",
			Help: "How many things stand in the agent's way; /healthz names them.",
		}, func() float64 { return float64(len(tracker.Problems())) }),
		// The package collectors, where these two live now, links database/sql, which has no
		// business in the agent.
		prometheus.NewGoCollector(),                                       //nolint:staticcheck // see above
		prometheus.NewProcessCollector(prometheus.ProcessCollectorOpts{}), //nolint:staticcheck // see above
	)
	return m
}

// JobStarted counts a job that starts to run.
func (m *Metrics) JobStarted() { m.jobsRunning.Inc() }

// JobFinished counts a job that ended. The result is one of few words, such as succeeded, failed
// or lost: each is a time series.
func (m *Metrics) JobFinished(result string) {
	m.jobsRunning.Dec()
	m.jobsDone.WithLabelValues(result).Inc()
}

// PollFailed counts a poll that got no answer, or not one that can be used.
func (m *Metrics) PollFailed() { m.pollErrors.Inc() }
