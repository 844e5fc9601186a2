package server

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
)

const (
	// expiryEvery is the interval between checks of the TLS certificates.
	expiryEvery = 24 * time.Hour
	// expiryShare is the part of a certificate's lifetime before whose end a warning is logged. ACME renews a
	// certificate in the last third of its lifetime.
	expiryShare = 6
)

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
	for _, leaf := range w.certificates.Leaves() {
		left := time.Until(leaf.NotAfter)
		if left > leaf.NotAfter.Sub(leaf.NotBefore)/expiryShare {
			continue
		}
		log := w.log.WithFields(logrus.Fields{"names": leaf.DNSNames, "expires": leaf.NotAfter.Format(time.RFC3339)})
		if left > 0 {
			log.Warn("the TLS certificate expires soon: renew it, or find out why the server could not")
		} else {
			log.Error("the TLS certificate has expired: renew it, or find out why the server could not; clients refuse it")
		}
	}
	return nil
}
