package server

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/store"
)

const (
	// skewEvery is the interval between comparisons of the clocks.
	skewEvery = 30 * time.Second
	// skewLimit is the difference above which a warning is logged.
	skewLimit = 5 * time.Second
)

// skewWatch compares this machine's clock with the database's clock, which determines when leases
// and tokens expire.
type skewWatch struct {
	db     *store.DB
	log    *logrus.Entry
	gauge  prometheus.Gauge
	warned bool
}

func newSkewWatch(db *store.DB, log *logrus.Entry, metrics *prometheus.Registry) *skewWatch {
	w := &skewWatch{db: db, log: log, gauge: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "workflow_server_clock_skew_seconds", Help: "How far this server's clock is ahead of the database's.",
	})}
	metrics.MustRegister(w.gauge)
	return w
}

func (w *skewWatch) subsystem() Subsystem {
	return Subsystem{Name: "clock", Run: func(ctx context.Context) error { return every(ctx, skewEvery, w.compare) }}
}

// compare measures the difference between the clocks, and logs when it crosses skewLimit. It
// ignores database errors, which other callers report.
func (w *skewWatch) compare(ctx context.Context) error {
	skew, err := w.db.Skew(ctx)
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	w.gauge.Set(skew.Seconds())
	tooFar := skew.Abs() > skewLimit
	if tooFar && !w.warned {
		w.log.WithField("ahead", skew.Round(time.Millisecond).String()).
			Warn("this server's clock differs from the database's, which determines when leases expire; check that both machines synchronize their clocks (NTP)")
	} else if w.warned && !tooFar {
		w.log.Info("this server's clock agrees with the database's again")
	}
	w.warned = tooFar
	return nil
}
