package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"workflowagent/internal/checkup"
	"workflowagent/internal/server/identity/issuer"
	"workflowagent/internal/server/outbound"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/database"
	"workflowagent/internal/words"
)

// slow is the time of a query from which a database slows the server down, because a request needs
// several.
const slow = 20 * time.Millisecond

func (e *examination) storeOptions() store.Options {
	return store.Options{Log: e.log, BlobDir: filepath.Join(e.cfg.DataDir, "blobs")}
}

// databaseName returns the database without its password.
func (e *examination) databaseName() string {
	if e.cfg.Database == "" {
		return strings.TrimPrefix(e.cfg.DSN(), "sqlite:")
	}
	return e.cfg.Database.String()
}

// become becomes the server's user. It returns the result of the check if the database must not be opened.
func (e *examination) become() (result checkup.Result, done bool) {
	if os.Geteuid() != 0 {
		return checkup.Result{}, false
	}
	if e.opts.Become == nil {
		path, isFile := strings.CutPrefix(e.cfg.DSN(), "sqlite:")
		if _, err := os.Lstat(path); !isFile || err != nil || e.user.UID == 0 {
			return checkup.Result{}, false
		}
		return checkup.Skip("not opened as root, because it belongs to the server's " + e.user.String() + "; doctor opens it as that user"), true
	}
	switch err := e.opts.Become(); {
	case errors.Is(err, fs.ErrNotExist):
		e.facts = store.Facts{Missing: true, Schema: database.SchemaEmpty}
		return e.judge(e.facts), true
	case errors.Is(err, fs.ErrPermission):
		return checkup.Skip("not opened: " + err.Error()), true
	case err != nil:
		return fail(databaseFailed, err.Error(), "correct data_dir, or run doctor as the server's user, such as with sudo -u"), true
	}
	return checkup.Result{}, false
}

func (e *examination) checkDatabase(ctx context.Context) checkup.Result {
	if r, done := e.become(); done {
		return r
	}
	facts, err := store.Examine(ctx, e.cfg.DSN(), e.storeOptions())
	e.facts = facts
	if err != nil {
		return e.connectResult(err)
	}
	return e.judge(facts)
}

func (e *examination) judge(facts store.Facts) checkup.Result {
	name := e.databaseName()
	if facts.Missing {
		return checkup.OK(name + " does not exist yet; the first start creates it")
	}
	found := fmt.Sprintf("%s %s at %s answers in %s", facts.Engine, facts.Version, name, facts.Latency.Round(time.Microsecond))
	postgres := facts.Major > 0
	switch {
	case postgres && facts.Major < database.LeastPostgres:
		return fail(databaseOld, fmt.Sprintf("the database at %s is PostgreSQL %s", name, facts.Version), fmt.Sprintf("upgrade PostgreSQL to version %d or later", database.LeastPostgres))
	case facts.Pooled:
		return fail(databasePooler, name+" leads to a pooler in transaction mode", "use the address of PostgreSQL itself, or a pooler in session mode")
	case facts.Plain:
		return warn(databasePlain, found+", without TLS across a network", "add sslmode=verify-full to the URL in database, and sslrootcert=FILE for your own authority")
	case postgres && facts.Connections < e.cfg.DatabaseConns:
		return warn(databaseConnections, fmt.Sprintf("%s, and permits only %d connections, but this server opens up to %d", found, facts.Connections, e.cfg.DatabaseConns),
			"raise max_connections of PostgreSQL, or lower database_connections")
	case facts.Latency > slow:
		return warn(databaseSlow, found, "move the database closer to the server: each request needs several queries")
	}
	return checkup.OK(found)
}

// connectFindings are the findings of the kinds of problems.
var connectFindings = map[database.ConnectProblem]finding{
	database.ConnectUnreachable: databaseUnreachable, database.ConnectRefused: databaseRefused, database.ConnectNoDatabase: databaseMissing,
	database.ConnectTLS: databaseTLS, database.ConnectStandby: databaseStandby, database.ConnectFull: databaseFull,
	database.ConnectAddress: configInvalid,
}

func (e *examination) connectResult(err error) checkup.Result {
	name := e.databaseName()
	failed, ok := errors.AsType[*store.ConnectError](err)
	if !ok {
		return fail(databaseFailed, fmt.Sprintf("examining %s: %v", name, err), "check the log of PostgreSQL; restore a damaged SQLite file from a backup")
	}
	advice := cmp.Or(failed.Advice, "check that PostgreSQL runs there, and that firewalls allow connections from this machine")
	if strings.HasPrefix(e.cfg.DSN(), "sqlite:") {
		advice = "run doctor as root or as the server's user; if it is that user, check the permissions of the file and of its directory"
	}
	return fail(connectFindings[failed.Problem], fmt.Sprintf("connecting to %s: %v", name, err), advice)
}

func (e *examination) checkRights(context.Context) checkup.Result {
	f := e.facts
	switch {
	case f.Major == 0:
		return checkup.Skip("SQLite has no roles")
	case f.Namespace == "":
		return fail(rightsMissing, fmt.Sprintf("the role %s has no schema: the database has none in its search_path", f.Role),
			fmt.Sprintf("as a superuser, in this database: CREATE SCHEMA AUTHORIZATION %s", f.Role))
	case f.CreateProblem != "":
		return fail(rightsMissing, fmt.Sprintf("the role %s cannot create tables in the schema %s: %s", f.Role, f.Namespace, f.CreateProblem),
			fmt.Sprintf("as a superuser: ALTER DATABASE name OWNER TO %s; or, in this database: GRANT CREATE ON SCHEMA %s TO %s", f.Role, f.Namespace, f.Role))
	case f.Foreign != "":
		return fail(rightsOwner, fmt.Sprintf("the server's tables belong to the role %s, so that %s cannot upgrade them", f.Foreign, f.Role),
			fmt.Sprintf("as a superuser, in this database: REASSIGN OWNED BY %s TO %s", f.Foreign, f.Role))
	}
	return checkup.OK(fmt.Sprintf("the role %s can create tables in the schema %s", f.Role, f.Namespace))
}

func (e *examination) checkSchema(ctx context.Context) checkup.Result {
	switch e.facts.Schema {
	case "":
		return checkup.Skip("not checked, because of: database rights")
	case database.SchemaEmpty:
		return checkup.OK("empty; the first start creates the tables")
	case database.SchemaNewer:
		return fail(schemaNewer, e.facts.SchemaProblem, "use the program of the newer server, or restore a backup")
	case database.SchemaOlder:
		return warn(schemaOlder, "an older version of the server has created the tables", "back up the database; the next start of this version upgrades it")
	}
	opts := e.storeOptions()
	opts.Existing = true
	db, err := store.Open(ctx, e.cfg.DSN(), opts)
	if err != nil {
		return fail(databaseFailed, err.Error(), "run doctor as root or as the server's user; if it is that user, check the log of the database")
	}
	e.db = db
	return checkup.OK("current")
}

func (e *examination) checkClock(context.Context) checkup.Result {
	var results []checkup.Result
	if e.facts.Major >= database.LeastPostgres && !e.facts.Pooled {
		results = append(results, named(clockDiffers, checkup.Skew(e.facts.Skew, "the database's")))
	}
	if e.way != nil && e.way.SkewKnown {
		results = append(results, named(clockDiffers, checkup.Skew(e.way.Skew, "that of the URL")))
	}
	if len(results) == 0 {
		return checkup.Skip("neither the database nor the URL reports another clock")
	}
	worst := results[0]
	for _, r := range results[1:] {
		if r.Status == checkup.StatusFail || worst.Status == checkup.StatusOK {
			worst, r = r, worst
		}
		worst.Details = append(worst.Details, r.Found)
	}
	return worst
}

// checkIssuer fetches the issuer's documents as a cloud does.
func (e *examination) checkIssuer(ctx context.Context) checkup.Result {
	if e.db == nil {
		return checkup.Skip("the first start creates the keys")
	}
	cfg := e.cfg
	s := issuer.New(e.db, issuer.Options{Log: e.log, URL: cfg.Issuer(), Rotation: cfg.KeyRotation})
	used, custom := e.issuerUses(ctx)
	switch {
	case used && s.CheckClouds() != nil:
		return warn(issuerFails, "environments log in to clouds with identity tokens, and the issuer "+s.URL()+" does not use https, so no cloud trusts it",
			"set external_url or oidc_issuer_url to an https URL")
	case s.URL() == "" || s.CheckClouds() != nil:
		return checkup.Skip("the issuer " + s.URL() + " does not use https, so no cloud trusts it; oidc_issuer_url changes it")
	case cfg.IssuerURL == "" && !e.running:
		return checkup.Skip("not checked, because no server runs")
	case cfg.IssuerURL == "" && e.way != nil && e.way.Failed != "":
		return checkup.Skip("not checked, because of: URL")
	}
	const advice = "cloud providers must reach the URL from the internet: publish the documents elsewhere with oidc export and oidc_issuer_url"
	fetch, err := outbound.Trusting(string(e.opts.CAPEM))
	if err == nil {
		err = s.Check(ctx, fetch)
	}
	if err == nil && custom {
		err = s.CheckCustom(ctx, fetch)
	}
	var differs *issuer.DiffersError
	switch {
	case errors.As(err, &differs):
		return fail(issuerDiffers, err.Error(), "correct external_url or oidc_issuer_url, or run oidc export again")
	case err != nil:
		settings, unread := store.Read(ctx, e.db, func(tx *store.Tx) (bool, error) { return tx.CloudCredentials() })
		if unread == nil && !settings && !used && !custom && cfg.IssuerURL == "" {
			return checkup.Skip("no deployment settings and no environments request cloud credentials, so no cloud needs the documents of " + s.URL() + "; " + err.Error())
		}
		return warn(issuerFails, err.Error(), advice)
	}
	return checkup.OK(s.URL() + " publishes all keys; whether the internet reaches it is not checked")
}

// issuerUses reports whether environments log in to clouds, and whether they have tokens of the second issuer. What cannot be read
// counts as unused, because other checks report it.
func (e *examination) issuerUses(ctx context.Context) (clouds, custom bool) {
	_ = e.db.Read(ctx, func(tx *store.Tx) (err error) {
		if clouds, err = tx.EnvironmentsUseIssuer(); err == nil {
			custom, err = tx.EnvironmentsUseCustomIssuer()
		}
		return err
	})
	return clouds, custom
}

// recently is the time for which an agent that does not poll counts.
const recently = time.Hour

func (e *examination) checkAgents(ctx context.Context) checkup.Result {
	if e.db == nil {
		return checkup.Skip("no server has set up the database yet")
	}
	versions, err := store.Read(ctx, e.db, func(tx *store.Tx) (map[string]int64, error) { return tx.AgentVersions(tx.Now().Add(-recently)) })
	if err != nil {
		return fail(databaseFailed, err.Error(), "check the log of the database")
	}
	var total, old int64
	var details []string
	for version, n := range versions {
		total += n
		if pools.TooOld(version) {
			old += n
			details = append(details, words.Count(n, "agent")+" with version "+version)
		}
	}
	switch {
	case total == 0:
		return checkup.Skip("no agent has polled in the last hour")
	case old > 0:
		return warn(agentsOld, fmt.Sprintf("%s of %s are older than %s, the oldest version that this server supports", words.Number(old), words.Count(total, "agent"), pools.OldestAgent),
			"update these agents; the console shows them on the pages of their pools", details...)
	}
	return checkup.OK(words.Count(total, "agent") + " polled in the last hour, with supported versions")
}
