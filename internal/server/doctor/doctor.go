// Package doctor finds problems that prevent a server from working, from its configuration to the
// path on which clients reach it. Each check reports a finding and advice. No check makes a lasting
// change, and all checks work while the server runs and while it does not.
package doctor

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/checkup"
	"workflowagent/internal/reach"
	"workflowagent/internal/server/api/mirror"
	"workflowagent/internal/server/config"
	"workflowagent/internal/server/store"
	"workflowagent/internal/sys/diskspace"
)

// Options configure [Run].
type Options struct {
	// Config is the configuration. If it cannot be read, ConfigErr contains the cause.
	Config    config.Config
	ConfigErr error
	Version   string // the version of this program
	// CAPEM contains certificate authorities that clients trust in addition to the system's.
	CAPEM []byte
	// Offline skips all checks that use the network, except those of the database.
	Offline bool
	// Become gives this process the server's user, if root runs it, before it opens the database: what that user has put
	// into the data directory, such as a symbolic link, then leads it nowhere that the server could not go. If Become is
	// nil, root does not open a SQLite database of another user.
	Become func() error
	// Only lists the names of the checks to run. If it is empty, all checks run.
	Only []string
	// Done is called with each result as soon as the result is known, in the order of the report. It can
	// be nil.
	Done func(checkup.Result)

	// Proxy selects the proxy of clients. If it is nil, the environment determines it.
	Proxy reach.Proxy
	// Limit is the default timeout of a check. 0 means 10 seconds.
	Limit time.Duration
	// Disk returns the size and the free bytes of the file system at a path. If it is nil, the operating
	// system is queried.
	Disk func(path string) (size, free int64, err error)
	// Evaluator is the path of workflow-esc. If it is empty, that is next to this program.
	Evaluator string
}

const (
	// uploadLimit bounds the check that sends a large body.
	uploadLimit = 30 * time.Second
	// signInLimit is longer than a fetch from an identity provider may take.
	signInLimit = 15 * time.Second
)

// Run runs the checks, independent ones concurrently. When ctx is canceled, it skips the remaining
// checks.
func Run(ctx context.Context, o Options) (checkup.Report, error) {
	if o.Disk == nil {
		o.Disk = diskspace.Of
	}
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	e := &examination{opts: o, log: logrus.NewEntry(quiet), readable: o.ConfigErr == nil}
	if e.readable {
		e.cfg = o.Config
		e.user = accountOf(e.cfg)
		e.cfg.ExternalURL = externalURL(e.cfg)
	}
	report := checkup.Plan{Version: o.Version, Checks: e.plan(), Only: o.Only, Limit: o.Limit, Done: o.Done}.Run(ctx)
	return report, e.close()
}

// examination contains the findings that later checks need. The comments name the checks that set
// them.
type examination struct {
	opts     Options
	log      *logrus.Entry
	cfg      config.Config
	readable bool // whether the configuration could be read
	user     checkup.Account

	master  []byte         // key
	key     []byte         // key; of the mirror
	self    mirror.Seen    // server
	running bool           // server
	asked   bool           // server; whether the server at the listener proved that it is this one
	facts   store.Facts    // database
	db      *store.DB      // schema, unless the schema is not this program's
	way     *reach.Trace   // dns
	atURL   *mirror.Caller // url
	seen    mirror.Seen    // url
	local   string         // url; this machine's address on the connection
	back    bool           // url; whether the header of the answer arrived
	proven  bool           // url; whether seen is set
}

func (e *examination) close() error {
	if e.atURL != nil {
		e.atURL.Close()
	}
	if e.db == nil {
		return nil
	}
	return e.db.Close()
}

// plan returns the checks in the order of the report. Each check comes after the checks that it
// needs.
func (e *examination) plan() []checkup.Check {
	return []checkup.Check{
		{Name: "config", Title: "configuration", Run: e.checkConfig},
		{Name: "files", Title: "files", Run: e.with(e.checkFiles)},
		{Name: "key", Title: "master key", Run: e.with(e.checkKey)},
		{Name: "certificate", Title: "certificate", Run: e.with(e.checkCertificate)},
		{Name: "data", Title: "data directory", Run: e.with(e.checkData)},
		{Name: "disk", Title: "free disk", Run: e.with(e.checkDisk)},
		// It becomes the server's user, and the checks before it need root.
		{Name: "database", Title: "database", After: []string{"files", "key", "certificate", "data", "disk", "server"}, Run: e.with(e.checkDatabase)},
		{Name: "rights", Title: "database rights", Needs: []string{"database"}, Run: e.checkRights},
		{Name: "schema", Title: "database schema", Needs: []string{"database"}, Run: e.checkSchema},
		{Name: "restore", Title: "pause after a restore", Needs: []string{"schema"}, Run: e.checkRestore},
		{Name: "key-ring", Title: "stored keys", Needs: []string{"schema"}, After: []string{"key"}, Run: e.checkKeyRing},
		{Name: "server", Title: "server", After: []string{"key"}, Run: e.with(e.checkServer)},
		{Name: "backup", Title: "backups", Needs: []string{"schema"}, After: []string{"server"}, Run: e.checkBackup},
		{Name: "dns", Title: "DNS of the URL", Run: e.with(e.online(e.checkDNS))},
		{Name: "tcp", Title: "TCP to the URL", Needs: []string{"dns"}, After: []string{"server"}, Run: e.checkTCP},
		{Name: "tls", Title: "TLS of the URL", Needs: []string{"tcp"}, Run: e.checkTLS},
		{Name: "url", Title: "URL", Needs: []string{"tcp"}, After: []string{"database", "server", "tls"}, Run: e.checkURL},
		{Name: "console", Title: "console's URL", Needs: []string{"url"}, Run: e.checkConsole},
		{Name: "clock", Title: "clock", After: []string{"database", "dns"}, Run: e.with(e.checkClock)},
		{Name: "client", Title: "client's address", Needs: []string{"url"}, Run: e.checkClient},
		{Name: "headers", Title: "headers", Needs: []string{"url"}, Run: e.checkHeaders},
		{Name: "streams", Title: "streams", Needs: []string{"url"}, Run: e.checkStreams},
		{Name: "bodies", Title: "large bodies", Needs: []string{"url"}, Limit: uploadLimit, Run: e.checkBodies},
		{Name: "issuer", Title: "OIDC issuer", Needs: []string{"schema"}, After: []string{"url"}, Run: e.online(e.checkIssuer)},
		{Name: "sign-in", Title: "identity providers", Needs: []string{"files"}, Limit: signInLimit, Run: e.with(e.online(e.checkSignIn))},
		// It starts a program as the server's user.
		{Name: "evaluator", Title: "evaluator", After: []string{"database"}, Run: e.checkEvaluator},
		{Name: "agents", Title: "agents", Needs: []string{"schema"}, Run: e.checkAgents},
	}
}

type run = func(context.Context) checkup.Result

// with skips a check if the configuration cannot be read.
func (e *examination) with(check run) run {
	if !e.readable {
		return func(context.Context) checkup.Result { return checkup.Skip("no configuration can be read") }
	}
	return check
}

// online skips a check with the option Offline.
func (e *examination) online(check run) run {
	if e.opts.Offline {
		return func(context.Context) checkup.Result { return checkup.Skip("skipped, because of --offline") }
	}
	return check
}

// errNoURL reports that the external URL is not known.
var errNoURL = errors.New("external_url is not set, and does not follow from listen")
