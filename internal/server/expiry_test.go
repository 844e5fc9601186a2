package server

import (
	"crypto/tls"
	"crypto/x509"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"workflowagent/internal/dev/must"
)

// oneLeaf is a certificate of which only the leaf is known.
type oneLeaf struct{ leaf *x509.Certificate }

func (oneLeaf) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, nil }
func (l oneLeaf) Leaves() []*x509.Certificate                      { return []*x509.Certificate{l.leaf} }

func TestExpiryWatch(t *testing.T) {
	const day = 24 * time.Hour
	for name, test := range map[string]struct {
		validity, left time.Duration
		want           string
	}{
		"a fresh certificate":          {90 * day, 60 * day, ""},
		"a certificate near its end":   {90 * day, 13 * day, "expires in 13 d: renew it"},
		"a short one":                  {6 * day, 2 * day, ""},
		"a short one, near its end":    {6 * day, day, "expires in"},
		"one that expired meanwhile":   {90 * day, -time.Hour, "has expired"},
		"one that is valid for a year": {365 * day, 15 * day, ""},
	} {
		log, logged := logtest.NewNullLogger()
		now := time.Now()
		leaf := &x509.Certificate{NotBefore: now.Add(test.left - test.validity), NotAfter: now.Add(test.left)}
		must.OK(t, newExpiryWatch(oneLeaf{leaf}, logrus.NewEntry(log), prometheus.NewRegistry()).warn(t.Context()))
		got := ""
		if e := logged.LastEntry(); e != nil {
			got = e.Message
		}
		if !strings.Contains(got, test.want) || (got == "") != (test.want == "") {
			t.Errorf("%s: the log says %q, want %q", name, got, test.want)
		}
	}
}
