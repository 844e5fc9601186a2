// Package configure writes the server's configuration file before the first start, based on the
// operator's flags or responses. It checks the settings with the doctor before it writes them.
package configure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"workflowagent/internal/checkup"
	"workflowagent/internal/protocol"
	"workflowagent/internal/server/config"
	"workflowagent/internal/server/doctor"
	"workflowagent/internal/settings"
	"workflowagent/internal/settings/setup"
)

// Options configure [Run].
type Options struct {
	Load    config.LoadOptions
	Version string // the version of this program
	In      io.Reader
	Out     io.Writer

	// Given are the values of the flags by key. If there are none, Set is empty and In is a terminal, Run
	// prompts for the settings.
	Given map[string]string
	Set   []string // settings in the form KEY=VALUE

	NoCheck          bool // write the file without checks
	AllowLoopback    bool // accept an external URL that only this machine reaches
	AllowNewDatabase bool // accept that a SQLite database stays behind

	// Untouched reports whether only starts of a server have written to the SQLite database in a file. If it is nil,
	// databases have data.
	Untouched func(ctx context.Context, path string) (bool, error)
}

// Keys returns the settings that have flags of their own, in the order of the help.
func Keys() []string {
	return []string{
		"external_url", "console_url", "listen", "tls_cert_file", "tls_key_file", "acme_agree_to_terms", "acme_directory", "redirect_listen",
		"trusted_proxies", "client_address", "data_dir", "database", "database_password_file", "master_key_file",
	}
}

// Result describes what [Run] has done, for programs.
type Result struct {
	File    string           `json:"file"`
	Written bool             `json:"written"` // false if the file has these settings
	Changed []string         `json:"changed"` // the keys
	Checks  []checkup.Result `json:"checks"`
}

// writer is one run of [Run].
type writer struct {
	Options
	path     string
	text     []byte // of the existing file, or nil
	terminal *setup.Terminal
	result   Result
}

// Run writes the configuration file. If it does not, it returns an error with the reason.
func Run(ctx context.Context, o Options) (Result, error) {
	path, err := config.Target(o.Load)
	if err != nil {
		return Result{}, settings.Invalid(err)
	}
	if err := setup.CheckPlace(path, o.Load.UID); err != nil {
		return Result{}, err
	}
	text, err := config.ReadText(path, o.Load)
	if err != nil {
		return Result{}, settings.Invalid(err)
	}
	w := &writer{Options: o, path: path, text: text, terminal: setup.TerminalOf(o.In, o.Out), result: Result{File: path, Changed: []string{}, Checks: []checkup.Result{}}}
	err = w.run(ctx)
	return w.result, err
}

func (w *writer) run(ctx context.Context) error {
	fmt.Fprintf(w.Out, "Configuration file: %s\n", w.path)
	flags := w.flags()
	asking := w.terminal != nil && !flags.Given()
	var changes []settings.Change
	var err error
	if asking {
		changes, err = w.ask(ctx)
	} else {
		changes, err = w.fromFlags(flags)
	}
	if err != nil {
		return err
	}
	edited, loaded, err := w.apply(changes)
	if err != nil {
		return settings.Invalid(fmt.Errorf("nothing was written, because a server cannot run with these settings:\n%s", flags.Describe(err, w.path)))
	}
	if !asking {
		if err := w.confirmURL(ctx, changes, loaded); err != nil {
			return err
		}
	}
	if err := w.confirmDatabase(ctx, loaded); err != nil {
		return err
	}
	if err := w.check(ctx, loaded, asking); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return setup.ErrStopped
	}
	if strings.HasPrefix(loaded.ExternalURL, "http:") && !onLoopback(loaded) {
		fmt.Fprintf(w.Out, "Note: %s is plain http, so access tokens and secrets cross the network in plain text; docs/tls.md describes TLS.\n", loaded.ExternalURL)
	}
	return w.write(edited, changes, loaded)
}

// header begins a new file.
const header = "# Written by workflow-server configure. docs/configuration-server.md describes all keys.\n"

// apply returns the text of the file with the changes, and the configuration that it makes.
func (w *writer) apply(changes []settings.Change) ([]byte, config.Config, error) {
	text := w.text
	if text == nil {
		text = []byte(header)
	}
	edited, err := config.Table().Edit(w.path, text, changes)
	if err != nil {
		return nil, config.Config{}, err
	}
	loaded, err := config.LoadText(w.Load, w.path, edited)
	return edited, loaded, err
}

// confirmURL makes sure that the operator wants a URL that only this machine reaches, if the changes set
// it or leave a new file without one.
func (w *writer) confirmURL(ctx context.Context, changes []settings.Change, loaded config.Config) error {
	sets := slices.ContainsFunc(changes, func(c settings.Change) bool { return c.Key == "external_url" })
	if !sets && (w.text != nil || loaded.ExternalURL != "") || !onLoopback(loaded) || w.AllowLoopback {
		return nil
	}
	found := "external_url is not set"
	if loaded.ExternalURL != "" {
		found = loaded.ExternalURL + " is on loopback"
	}
	found += ", so only this machine reaches the server, and stacks store the URL"
	if w.terminal == nil {
		return fmt.Errorf("nothing was written, because %s: use --external-url with the URL that clients use, or --allow-loopback", found)
	}
	use, err := w.terminal.Confirm(ctx, found+". Use it nevertheless?")
	if err == nil && !use {
		err = errors.New("nothing was written")
	}
	return err
}

// confirmDatabase makes sure that the operator wants another database than SQLite, if the SQLite database has data.
func (w *writer) confirmDatabase(ctx context.Context, loaded config.Config) error {
	path := w.leftDatabase(loaded)
	if path == "" || w.AllowNewDatabase {
		return nil
	}
	if w.untouched(ctx, path) {
		fmt.Fprintf(w.Out, "Note: the SQLite database %s contains nothing to move. It is not used after the change, and remains.\n", path)
		return nil
	}
	found := "the server has a SQLite database, " + path + ", and this change moves no data to PostgreSQL"
	const move = "to move it, first write a backup with: workflow-server backup, and restore it after the change (docs/backup.md)"
	if w.terminal == nil {
		return fmt.Errorf("nothing was written, because %s: %s; then use --allow-new-database", found, move)
	}
	fmt.Fprintf(w.Out, "Note: %s; %s.\n", found, move)
	use, err := w.terminal.Confirm(ctx, "Change the database?")
	if err == nil && !use {
		err = errors.New("nothing was written")
	}
	return err
}

// untouched reports whether a SQLite database certainly contains no data of users.
func (w *writer) untouched(ctx context.Context, path string) bool {
	if w.Untouched == nil {
		return false
	}
	untouched, err := w.Untouched(ctx, path)
	return err == nil && untouched
}

// leftDatabase returns the existing SQLite database that a server no longer uses after the change, or "".
func (w *writer) leftDatabase(loaded config.Config) string {
	before, err := config.LoadText(w.Load, w.path, w.text)
	if err != nil || isSQLite(loaded) || !isSQLite(before) {
		return ""
	}
	if w.text == nil {
		before.DataDir = loaded.DataDir // a new file names the directory that the server has used
	}
	path := strings.TrimPrefix(before.DSN(), sqliteScheme)
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

const sqliteScheme = "sqlite:"

func isSQLite(c config.Config) bool { return strings.HasPrefix(c.DSN(), sqliteScheme) }

func onLoopback(c config.Config) bool {
	if c.ExternalURL == "" {
		return true
	}
	u, err := url.Parse(c.ExternalURL)
	return err == nil && protocol.IsLoopback(u.Host)
}

// checks lists the doctor's checks that run before the file is written. checksOf lists the checks that
// run after a response, by key.
var (
	checks   = []string{"files", "key", "certificate", "data", "disk", "database", "rights", "schema", "server"}
	checksOf = map[string][]string{
		"external_url": {"dns"}, "tls_key_file": {"files", "certificate"}, "listen": {"server"}, "data_dir": {"data", "disk"},
		"database": {"files", "database", "rights", "schema"}, "database_password": {"database", "rights", "schema"},
	}
)

// check runs the checks. If a check fails, check returns an error unless the operator confirms that the
// file must be written anyway.
func (w *writer) check(ctx context.Context, loaded config.Config, asking bool) error {
	if w.NoCheck {
		return nil
	}
	report, err := doctor.Run(ctx, doctor.Options{
		Config: loaded, Version: w.Version, Only: checks,
		Done: func(r checkup.Result) {
			if r.Status != checkup.StatusSkip {
				checkup.Print(w.Out, r, w.terminal.Coloured())
			}
		},
	})
	w.result.Checks = report.Checks
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return setup.ErrStopped
	case report.OK:
		return nil
	}
	if asking {
		write, err := w.terminal.Confirm(ctx, "A check failed. Write the file nevertheless?")
		if err != nil || write {
			return err
		}
	}
	return errors.New("nothing was written, because a check failed; fix the cause, or use --no-check")
}

func (w *writer) write(text []byte, changes []settings.Change, loaded config.Config) error {
	if err := os.MkdirAll(filepath.Dir(w.path), 0o755); err != nil {
		return fmt.Errorf("creating the directory of the configuration file: %w; nothing was changed", err)
	}
	written, err := setup.Edit{
		Path: w.path, Was: w.text, Text: text, Readers: doctor.Readers(loaded), Changes: changes, Source: loaded.Source,
	}.Write(w.Out)
	if err != nil || !written {
		return err
	}
	w.result.Written = true
	for _, change := range changes {
		w.result.Changed = append(w.result.Changed, change.Key)
	}
	fmt.Fprintln(w.Out, w.next())
	return nil
}

// next says what to do after the file was written.
func (w *writer) next() string {
	running := slices.ContainsFunc(w.result.Checks, func(r checkup.Result) bool {
		return r.Name == "server" && (r.Status == checkup.StatusOK || r.Finding == doctor.ServerSettings)
	})
	if running {
		return "Restart the running server to use it. To check everything else, run doctor."
	}
	return "Start the server with serve, or start or restart its service with systemctl restart workflow-server. The first\n" +
		"start prints a link that signs you in to the console, which shows the next steps. To check what clients see, run doctor then."
}

// dataDir returns the directory for the data of a new installation.
func (w *writer) dataDir() string {
	if w.Load.UID == 0 {
		return "/var/lib/workflow-server"
	}
	return filepath.Join(cmp.Or(w.Load.Home, w.Load.Cwd), "workflow-server-data")
}
