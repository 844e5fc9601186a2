package health

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"workflowagent/internal/agent/status"
)

type reportMetrics struct {
	report func() status.Report
	gauges []reportGauge
}

// reportGauge is a gauge whose value comes from a report. ok is false if the report has no value
// for it.
type reportGauge struct {
	desc  *prometheus.Desc
	value func(r status.Report) (value float64, ok bool)
}

// Watch adds the metrics that are read from reports. It must be called only once.
func (m *Metrics) Watch(report func() status.Report) {
	gauge := func(name, help string, value func(status.Report) (float64, bool)) reportGauge {
		return reportGauge{prometheus.NewDesc("workflow_agent_"+name, help, nil, nil), value}
	}
	flag := func(name, help string, value func(status.Report) bool) reportGauge {
		return gauge(name, help, func(r status.Report) (float64, bool) {
			if value(r) {
				return 1, true
			}
			return 0, true
		})
	}
	instant := func(name, help string, value func(status.Report) *time.Time) reportGauge {
		return gauge(name, help, func(r status.Report) (float64, bool) {
			at := value(r)
			if at == nil {
				return 0, false
			}
			return float64(at.UnixNano()) / 1e9, true
		})
	}
	m.registry.MustRegister(&reportMetrics{report, []reportGauge{
		flag("up", "1 if the agent makes progress, 0 if its last activity is older than health_threshold.", func(r status.Report) bool { return r.Healthy }),
		instant("last_activity_timestamp_seconds", "When the agent last made progress, in seconds since 1970.", func(r status.Report) *time.Time { return &r.LastActivity }),
		gauge("problems", "How many problems the agent has; /healthz names them.", func(r status.Report) (float64, bool) { return float64(len(r.Problems)), true }),
		flag("ready", "1 if the agent can claim jobs now, as /readyz reports.", func(r status.Report) bool { return r.State == status.Ready }),
		flag("draining", "1 if the agent accepts no more jobs because it drains or stops.", func(r status.Report) bool { return r.Draining || r.Stopping }),
		flag("server_connected", "1 if the server answered the last poll and accepted the token.", func(r status.Report) bool { return r.Server.Connected }),
		flag("circuit_breaker_open", "1 while the agent only probes the server because it could not reach it.", func(r status.Report) bool { return r.Server.BreakerOpen }),
		flag("engine_up", "1 if jobs can run in the deploy_target.", func(r status.Report) bool { return r.Engine.Up }),
		gauge("slots", "How many jobs the agent runs at a time.", func(r status.Report) (float64, bool) { return float64(r.Slots.Total), true }),
		gauge("slots_free", "How many more jobs the agent can run now.", func(r status.Report) (float64, bool) { return float64(r.Slots.Free), true }),
		instant("last_poll_timestamp_seconds", "When the server last answered a poll, in seconds since 1970; absent before the first time.", func(r status.Report) *time.Time { return r.Server.LastPoll }),
		instant("token_expiry_timestamp_seconds", "When the exchanged pool token expires, in seconds since 1970; absent for a static token.", func(r status.Report) *time.Time { return r.Token.ExpiresAt }),
		gauge("log_pending_bytes", "Bytes of log that the agent itself has yet to deliver.", func(r status.Report) (float64, bool) { return float64(r.Storage.PendingLogBytes), true }),
		gauge("state_directory_free_bytes", "Free bytes on the disk of state_directory.", func(r status.Report) (float64, bool) {
			return float64(r.Storage.FreeBytes), r.Storage.FreeBytes >= 0
		}),
		gauge("workspaces", "How many workspaces the agent keeps for later jobs; absent before they were measured.", func(r status.Report) (float64, bool) {
			if r.Workspaces == nil {
				return 0, false
			}
			return float64(r.Workspaces.Count), true
		}),
		gauge("workspaces_bytes", "Bytes that these workspaces occupy, as far as their sizes are known.", func(r status.Report) (float64, bool) {
			if r.Workspaces == nil {
				return 0, false
			}
			return float64(r.Workspaces.Bytes), true
		}),
		flag("update_available", "1 if a release newer than the agent is available.", func(r status.Report) bool { return r.Update.Available != "" }),
		flag("update_failing", "1 if the last check for a release, or the update after it, failed.", func(r status.Report) bool { return r.Update.Error != "" }),
		instant("update_last_check_timestamp_seconds", "When the agent last checked for a release, in seconds since 1970; absent before the first time.", func(r status.Report) *time.Time { return r.Update.CheckedAt }),
	}})
}

// Describe implements [prometheus.Collector].
func (m *reportMetrics) Describe(out chan<- *prometheus.Desc) {
	for _, g := range m.gauges {
		out <- g.desc
	}
}

// Collect implements [prometheus.Collector]. It reads all values from one report, so that they are
// consistent.
func (m *reportMetrics) Collect(out chan<- prometheus.Metric) {
	r := m.report()
	for _, g := range m.gauges {
		if value, ok := g.value(r); ok {
			out <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, value)
		}
	}
}
