package health

import (
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"workflowagent/internal/workflow"
)

// Metrics holds the agent's metrics in a separate registry. It is safe for concurrent use.
type Metrics struct {
	registry    *prometheus.Registry
	jobsRunning prometheus.Gauge
	jobsDone    *prometheus.CounterVec
	jobTime     *prometheus.HistogramVec
	startTime   prometheus.Histogram
	pollErrors  prometheus.Counter
}

// NewMetrics returns the metrics of an agent with the given version. [Metrics.Watch] adds the
// metrics that come from status reports.
func NewMetrics(version string) *Metrics {
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
		jobTime: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "workflow_agent_job_duration_seconds",
			Help:    "Time from a job's claim to its end, by result.",
			Buckets: []float64{5, 15, 30, 60, 120, 300, 600, 1800, 3600, 4 * 3600, 12 * 3600},
		}, []string{"result"}),
		startTime: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "workflow_agent_job_start_latency_seconds",
			Help:    "Time from a job's claim to the start of its runner.",
			Buckets: []float64{0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 180, 600},
		}),
		pollErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "workflow_agent_poll_errors_total",
			Help: "Polls for work that failed since the agent started.",
		}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "workflow_agent_build_info",
		Help: "Always 1; the labels describe the running program.",
		ConstLabels: prometheus.Labels{
			"version": version, "go_version": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH,
		},
	})
	build.Set(1)
	m.registry.MustRegister(
		build, m.jobsRunning, m.jobsDone, m.jobTime, m.startTime, m.pollErrors,
		// The collectors package, which now contains these two functions, links database/sql. The
		// agent does not need database/sql.
		prometheus.NewGoCollector(),                                       //nolint:staticcheck // see above
		prometheus.NewProcessCollector(prometheus.ProcessCollectorOpts{}), //nolint:staticcheck // see above
	)
	return m
}

// JobStarted increments the number of running jobs.
func (m *Metrics) JobStarted() { m.jobsRunning.Inc() }

// JobLaunched records the time from a job's claim to the start of its runner.
func (m *Metrics) JobLaunched(took time.Duration) { m.startTime.Observe(took.Seconds()) }

// JobEnded counts a finished job. took is the time since the job was claimed. Lost jobs are counted
// separately from failed jobs. Each result is a time series, so the number of different results
// must be small.
func (m *Metrics) JobEnded(result string, reason workflow.Reason, took time.Duration) {
	if reason == workflow.ReasonLost {
		result = string(workflow.ReasonLost)
	}
	m.jobsRunning.Dec()
	m.jobsDone.WithLabelValues(result).Inc()
	m.jobTime.WithLabelValues(result).Observe(took.Seconds())
}
