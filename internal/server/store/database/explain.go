package database

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// LeastPostgres is the oldest major version of PostgreSQL that the server supports: the status of transactions has the
// type xid8 from then on.
const LeastPostgres = 13

// explain adds to an error of the database what the operator can do, if that is known.
func explain(err error, cfg *pgx.ConnConfig) error {
	if err == nil {
		return nil
	}
	if advice := advise(err, cfg); advice != "" {
		return fmt.Errorf("%s: %w", advice, err)
	}
	return err
}

func advise(err error, cfg *pgx.ConnConfig) string {
	text := err.Error()
	switch postgresCode(err) {
	case "28P01": // invalid_password
		return fmt.Sprintf("the database refuses the password of the role %q: correct database_password, or set the role's password with ALTER ROLE", cfg.User)
	case "28000": // invalid_authorization_specification
		return adviseAccess(text, cfg)
	case "3D000": // invalid_catalog_name
		return fmt.Sprintf("the database %q does not exist: correct the name in the setting database, or run CREATE DATABASE %s OWNER %s", cfg.Database, cfg.Database, cfg.User)
	case "42501": // insufficient_privilege
		return fmt.Sprintf("the role %q may not create or change the server's tables: let it own the database and all tables in it, with ALTER DATABASE %s OWNER TO %s, "+
			"or connect as the role that owns them", cfg.User, cfg.Database, cfg.User)
	case "53300": // too_many_connections
		return "the database has no free connection: raise its max_connections or the limit of the role, or lower database_connections of the servers"
	case "57P03": // cannot_connect_now
		return "the database is starting, stopping or recovering: try again when it is ready"
	}
	return adviseTLS(err, text)
}

// parse parses the address of a PostgreSQL database. pgx redacts the password in its message. For TLS, pgx reads the files
// that the address names.
func parse(dsn string) (*pgx.ConnConfig, *ConnectError) {
	cfg, err := pgx.ParseConfig(dsn)
	if err == nil {
		return cfg, nil
	}
	cause := cmp.Or(errors.Unwrap(err), err) // without the address
	e := &ConnectError{ConnectAddress, "correct the setting database", fmt.Errorf("parsing the database address: %w", cause)}
	if strings.Contains(err.Error(), "failed to configure TLS") {
		e.Problem, e.Advice = ConnectTLS, "correct sslmode, sslrootcert, sslcert and sslkey in the setting database, and let the server's user read these files"
	}
	return nil, e
}

// adviseAccess explains a refusal by pg_hba.conf, whose reason only the text states.
func adviseAccess(text string, cfg *pgx.ConnConfig) string {
	switch {
	case strings.Contains(text, "client certificate"):
		return "the database demands a certificate of this server from an authority that it trusts (ssl_ca_file): set sslcert=FILE and sslkey=FILE in the setting database, with a certificate whose name is the role's"
	case strings.Contains(text, "does not exist"):
		return fmt.Sprintf("the role %q does not exist: run CREATE ROLE %s LOGIN PASSWORD …, or correct the user in the setting database", cfg.User, cfg.User)
	case strings.Contains(text, "Peer authentication failed"):
		advice := "run it as that user"
		if os.Geteuid() == 0 {
			advice = "root writes this setting with an editor or configure --no-check, and then runs doctor, which connects as that user"
		}
		return fmt.Sprintf("the database lets the role %q connect only from a process of the machine's user with that name (peer): %s; see docs/postgresql.md", cfg.User, advice)
	default:
		without := ""
		if strings.Contains(text, "no encryption") {
			without = " without TLS: add sslmode=verify-full to the setting database if it demands TLS, or"
		}
		return fmt.Sprintf("the database does not let the role %q connect to %q from this machine%s: add a line to its pg_hba.conf and reload it", cfg.User, cfg.Database, without)
	}
}

func adviseTLS(err error, text string) string {
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "the authority of the database's certificate is not trusted: add sslrootcert=FILE, with the certificate of this authority, to the setting database"
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return "the database's certificate is for another host: use a name from the certificate in the setting database, or issue a new certificate"
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		return "the database's certificate has expired, or a clock is wrong: renew it"
	}
	if _, ok := errors.AsType[tls.AlertError](err); ok || strings.Contains(text, "remote error: tls:") {
		return "the database refuses this server's TLS connection: check sslcert and sslkey in the setting database, and the authority that the database trusts (ssl_ca_file)"
	}
	if strings.Contains(text, "server refused TLS connection") {
		return "the database does not offer TLS: turn it on (ssl = on), or, only in a network that you trust, use sslmode=disable in the setting database"
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return "the host of the database was not found: correct it in the setting database"
	}
	if errors.Is(err, pgconn.ErrStandbyConnection) {
		return "the setting database leads only to standbys, to which the server cannot write: name the primary"
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return "the database does not accept connections: check that it runs, its listen_addresses and port, and firewalls"
	}
	return ""
}

// versionError means that the database is too old. It is the database's parameter server_version, such as
// "12.4 (Debian 12.4-1)".
type versionError string

func (e versionError) Error() string {
	return fmt.Sprintf("the database is PostgreSQL %s, but the server needs version %d or newer: upgrade the database", string(e), LeastPostgres)
}

// majorOf returns the major version in a parameter server_version, or 0 if the form is unknown.
func majorOf(version string) int {
	digits := version[:len(version)-len(strings.TrimLeft(version, "0123456789"))]
	major, err := strconv.Atoi(digits)
	if err != nil {
		return 0
	}
	return major
}

// checkVersion returns a [versionError] if the database is too old. An unknown version can be new enough.
func checkVersion(version string) error {
	if major := majorOf(version); major == 0 || major >= LeastPostgres {
		return nil
	}
	return versionError(version)
}
