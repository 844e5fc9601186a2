package store_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"workflowagent/internal/dev/lab/child"
	"workflowagent/internal/dev/lab/postgres"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/dev/testcert"
	"workflowagent/internal/server/store"
)

// accessRules are the rules of the test's database: the role client needs a certificate.
const accessRules = `hostssl all client 127.0.0.1/32 cert
host all client 127.0.0.1/32 reject
host all denied 127.0.0.1/32 reject
local all all peer
host all all 127.0.0.1/32 scram-sha-256
`

// TestAdvice opens databases as operators do who have forgotten a step, on a real PostgreSQL.
func TestAdvice(t *testing.T) {
	dir := must.Get(os.MkdirTemp("", "postgres-tls-"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	file := func(name string) string { return filepath.Join(dir, name) }
	ca, other := must.Get(testcert.NewAuthority("company"))(t), must.Get(testcert.NewAuthority("other"))(t)
	must.OK(t, testcert.Write(must.Get(ca.Issue(&x509.Certificate{}, "127.0.0.1"))(t), file("server.pem"), file("server.key")))
	for name, issuer := range map[string]*testcert.Authority{"client": ca, "stranger": other} {
		template := &x509.Certificate{Subject: pkix.Name{CommonName: "client"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
		must.OK(t, testcert.Write(must.Get(issuer.Issue(template))(t), file(name+".pem"), file(name+".key")))
	}
	must.OK(t, os.WriteFile(file("ca.pem"), ca.PEM(), 0o644))
	must.OK(t, os.WriteFile(file("other.pem"), other.PEM(), 0o644))
	must.OK(t, os.WriteFile(file("hba.conf"), []byte(accessRules), 0o644))
	must.OK(t, postgres.Own(dir, file("server.pem"), file("server.key"), file("ca.pem"), file("hba.conf")))
	dsn := storetest.PostgresOwn(t, "ssl=on", "ssl_cert_file="+file("server.pem"), "ssl_key_file="+file("server.key"),
		"ssl_ca_file="+file("ca.pem"), "hba_file="+file("hba.conf"), "unix_socket_directories="+dir)

	admin := must.Get(pgx.Connect(t.Context(), dsn))(t)
	defer admin.Close(t.Context())
	for _, statement := range []string{
		"CREATE ROLE owner LOGIN PASSWORD 'pass-word'", "CREATE DATABASE workflow OWNER owner",
		"CREATE ROLE guest LOGIN PASSWORD 'pass-word'", "CREATE ROLE many LOGIN PASSWORD 'pass-word' CONNECTION LIMIT 0",
		"CREATE ROLE denied LOGIN PASSWORD 'pass-word'", "CREATE ROLE client LOGIN", "CREATE DATABASE certified OWNER client",
	} {
		_ = must.Get(admin.Exec(t.Context(), statement))(t)
	}
	at := func(user, password, name, query string) string {
		u := must.Get(url.Parse(dsn))(t)
		u.User, u.Path, u.RawQuery = url.UserPassword(user, password), "/"+name, query
		return u.String()
	}
	free := "postgres://owner:pass-word@127.0.0.1:" + strconv.Itoa(must.Get(child.FreePort("127.0.0.1"))(t)) + "/workflow"
	plain := must.Get(url.Parse(storetest.PostgresURL(t)))(t)
	plain.RawQuery = "sslmode=require"
	elsewhere := must.Get(url.Parse(at("owner", "pass-word", "workflow", "sslmode=verify-full&sslrootcert="+file("ca.pem"))))(t)
	elsewhere.Host = "localhost:" + elsewhere.Port()
	client := func(name string) string {
		return at("client", "", "certified", "sslmode=verify-full&sslrootcert="+file("ca.pem")+"&sslcert="+file(name+".pem")+"&sslkey="+file(name+".key"))
	}
	for name, test := range map[string]struct{ dsn, want string }{
		"owner":                     {at("owner", "pass-word", "workflow", "sslmode=verify-full&sslrootcert="+file("ca.pem")), ""},
		"client certificate":        {client("client"), ""},
		"wrong password":            {at("owner", "pass-work", "workflow", "sslmode=disable"), `refuses the password of the role "owner"`},
		"unknown database":          {at("owner", "pass-word", "workflows", "sslmode=disable"), "CREATE DATABASE workflows OWNER owner"},
		"no rights":                 {at("guest", "pass-word", "workflow", "sslmode=disable"), "ALTER DATABASE workflow OWNER TO guest"},
		"too many connections":      {at("many", "pass-word", "workflow", "sslmode=disable"), "lower database_connections"},
		"not in pg_hba.conf":        {at("denied", "pass-word", "workflow", "sslmode=require"), "pg_hba.conf"},
		"peer":                      {"postgres:///workflow?user=owner&host=" + dir + "&port=" + elsewhere.Port(), "(peer)"},
		"without TLS":               {at("client", "", "certified", "sslmode=disable"), "add sslmode=verify-full"},
		"without certificate":       {at("client", "", "certified", "sslmode=require"), "set sslcert=FILE and sslkey=FILE"},
		"certificate of a stranger": {client("stranger"), "from an authority that it trusts"},
		"unknown authority":         {at("owner", "pass-word", "workflow", "sslmode=verify-full&sslrootcert="+file("other.pem")), "add sslrootcert=FILE"},
		"other host":                {elsewhere.String(), "is for another host"},
		"database without TLS":      {plain.String(), "does not offer TLS"},
		"no database":               {free, "does not accept connections"},
	} {
		db, err := store.Open(t.Context(), test.dsn, store.Options{Log: storetest.Log()})
		if db != nil {
			must.OK(t, db.Close())
		}
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: %v, want %q", name, err, test.want)
		case err != nil && (strings.Contains(err.Error(), "pass-wor") || strings.HasSuffix(err.Error(), ".")):
			t.Errorf("%s: the error contains a password or ends with a full stop: %v", name, err)
		}
	}
}
