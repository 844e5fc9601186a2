package server

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"workflowagent/internal/reach"
	"workflowagent/internal/words"
)

// expiryEvery is the interval between checks of the TLS certificates.
const expiryEvery = 12 * time.Hour

// expiryWatch reports when the TLS certificates expire.
type expiryWatch struct {
	certificates certificates
	log          *logrus.Entry
	expiry       *prometheus.Desc
}

func newExpiryWatch(c certificates, log *logrus.Entry, metrics *prometheus.Registry) *expiryWatch {
	w := &expiryWatch{certificates: c, log: log, expiry: prometheus.NewDesc(
		"workflow_server_tls_certificate_expiry_timestamp_seconds", "When the TLS certificate for a name expires.", []string{"name"}, nil,
	)}
	metrics.MustRegister(w)
	return w
}

// Describe implements [prometheus.Collector].
func (w *expiryWatch) Describe(ch chan<- *prometheus.Desc) { ch <- w.expiry }

// Collect implements [prometheus.Collector].
func (w *expiryWatch) Collect(ch chan<- prometheus.Metric) {
	seen := map[string]bool{}
	for _, leaf := range w.certificates.Leaves() {
		names := slices.Clone(leaf.DNSNames)
		for _, ip := range leaf.IPAddresses {
			names = append(names, ip.String())
		}
		for _, name := range names {
			if name = strings.ToLower(name); !seen[name] {
				seen[name] = true
				ch <- prometheus.MustNewConstMetric(w.expiry, prometheus.GaugeValue, float64(leaf.NotAfter.Unix()), name)
			}
		}
	}
}

func (w *expiryWatch) subsystem() Subsystem {
	return Subsystem{Name: "certificate-expiry", Run: func(ctx context.Context) error { return every(ctx, expiryEvery, w.warn) }}
}

func (w *expiryWatch) warn(context.Context) error {
	now := time.Now()
	for _, leaf := range w.certificates.Leaves() {
		log := w.log.WithFields(logrus.Fields{"names": leaf.DNSNames, "expires": leaf.NotAfter.Format(time.RFC3339)})
		switch {
		case now.After(leaf.NotAfter):
			log.Error("the TLS certificate has expired: renew it, or find out why the server could not; clients refuse it")
		case reach.ExpiresSoon(leaf.NotBefore, leaf.NotAfter, now):
			log.Warn("the TLS certificate expires in " + words.Duration(leaf.NotAfter.Sub(now).Round(time.Minute)) + ": renew it, or find out why the server could not")
		}
	}
	return nil
}
