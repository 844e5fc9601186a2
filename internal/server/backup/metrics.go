package backup

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	successTime  = prometheus.NewDesc("workflow_server_backup_last_success_timestamp_seconds", "Time of the last backup.", nil, nil)
	successTook  = prometheus.NewDesc("workflow_server_backup_last_success_seconds", "How long it took to write the last backup.", nil, nil)
	successBytes = prometheus.NewDesc("workflow_server_backup_last_success_bytes", "Size of the files of the last backup.", nil, nil)
	failureTime  = prometheus.NewDesc("workflow_server_backup_last_failure_timestamp_seconds", "When a backup of the schedule failed last.", nil, nil)
)

// Describe implements [prometheus.Collector].
func (s *Service) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{successTime, successTook, successBytes, failureTime} {
		descs <- d
	}
}

// collectTimeout bounds the time that a scrape waits for the database.
const collectTimeout = 5 * time.Second

// Collect implements [prometheus.Collector]. What has not happened yet has no metric.
func (s *Service) Collect(metrics chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), collectTimeout)
	defer cancel()
	status, err := s.Status(ctx)
	if err != nil {
		s.src.Log.WithError(err).Warn("collecting the metrics of backups failed")
		return
	}
	add := func(desc *prometheus.Desc, value float64) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value)
	}
	if last := status.Last; last != nil {
		add(successTime, float64(last.Time.Unix()))
		add(successTook, last.Took.Seconds())
		add(successBytes, float64(last.Bytes))
	}
	if status.Failure != nil {
		add(failureTime, float64(status.Failure.Time.Unix()))
	}
}
