package certfile

import (
	"bytes"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/testcert"
)

// TestGet replaces the files as certbot, cert-manager and people do. At each moment the server has a certificate.
func TestGet(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	log, logged := logtest.NewNullLogger()
	replace := func(host, certFile, keyFile string) {
		t.Helper()
		c := must.Get((*testcert.Authority)(nil).Issue(&x509.Certificate{}, host))(t)
		must.OK(t, testcert.Write(c, certFile, keyFile))
	}
	replace("first", cert, key)
	p := must.Get(Load(cert, key, logrus.NewEntry(log)))(t)
	serves := func(host string) {
		t.Helper()
		c, err := p.Get(nil)
		if err != nil || c.Leaf.DNSNames[0] != host {
			t.Fatalf("it serves %v, %v, want the certificate of %s", c.Leaf.DNSNames, err, host)
		}
	}
	serves("first")

	next, nextKey := filepath.Join(dir, "next.pem"), filepath.Join(dir, "next-key.pem")
	replace("second", next, nextKey)
	must.OK(t, os.Rename(next, cert)) // the key does not fit yet
	logged.Reset()
	serves("first")
	serves("first")
	if entries := logged.AllEntries(); len(entries) != 1 || !strings.Contains(entries[0].Message, "keeps the previous one") {
		t.Errorf("a pair that does not fit is logged as %v, want one error", entries)
	}
	must.OK(t, os.Rename(nextKey, key))
	serves("second")

	// A renewal that can be read only later, with the same time, as after chown.
	replace("third", next, nextKey)
	now, text := time.Now(), must.Get(os.ReadFile(nextKey))(t)
	must.OK(t, os.Rename(next, cert))
	must.OK(t, os.Rename(nextKey, key))
	must.OK(t, os.WriteFile(key, bytes.Repeat([]byte("x"), len(text)), 0o600))
	must.OK(t, os.Chtimes(key, now, now))
	serves("second")
	must.OK(t, os.WriteFile(key, text, 0o600))
	must.OK(t, os.Chtimes(key, now, now))
	serves("third")

	must.OK(t, os.Remove(key))
	must.OK(t, syscall.Mkfifo(key, 0o600))
	serves("third")
	must.OK(t, os.Remove(key))
	replace("second", cert, key)
	serves("second")
	must.OK(t, os.WriteFile(cert, nil, 0o600))
	serves("second")
	must.OK(t, os.Remove(key))
	serves("second")
	replace("third", cert, key)
	serves("third")
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	log, logged := logtest.NewNullLogger()
	entry := logrus.NewEntry(log)
	if _, err := Load(cert, key, entry); err == nil || !strings.Contains(err.Error(), cert) {
		t.Errorf("missing files: %v", err)
	}
	old := &x509.Certificate{NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour)}
	must.OK(t, testcert.Write(must.Get((*testcert.Authority)(nil).Issue(old, "h"))(t), cert, key))
	must.OK(t, os.Chmod(key, 0o644))
	must.Get(Load(cert, key, entry))(t)
	var all strings.Builder
	for _, e := range logged.AllEntries() {
		all.WriteString(e.Message + "\n")
	}
	for _, want := range []string{"every user of this machine can read the private key", "has expired"} {
		if !strings.Contains(all.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, all.String())
		}
	}
	must.OK(t, os.WriteFile(key, []byte("s3cret"), 0o600))
	if _, err := Load(cert, key, entry); err == nil || strings.Contains(err.Error(), "s3cret") || !strings.Contains(err.Error(), key) {
		t.Errorf("a key that is no key: %v", err)
	}
}
