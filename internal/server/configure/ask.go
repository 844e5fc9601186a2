package configure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	"workflowagent/internal/checkup"
	"workflowagent/internal/server/api/clientaddr"
	"workflowagent/internal/server/config"
	"workflowagent/internal/server/doctor"
	"workflowagent/internal/settings"
	"workflowagent/internal/settings/setup"
	"workflowagent/internal/sys/boundedfile"
)

// interview asks for what a server needs before its first start.
type interview struct {
	*setup.Interview
	w   *writer
	now config.Config // what the file says
}

// ask prompts for the settings that a server needs. An empty response keeps the value in brackets.
func (w *writer) ask(ctx context.Context) ([]settings.Change, error) {
	// The prompts show the values in the file, regardless of the environment.
	fileOnly := w.Load
	fileOnly.Environ = nil
	now, err := config.LoadText(fileOnly, w.path, w.text)
	if err != nil {
		return nil, settings.Invalid(fmt.Errorf("correct the file first, or remove it:\n%w", err))
	}
	fmt.Fprintln(w.Out, "Press Enter to keep the value in [brackets]. Nothing is written before the last answer.")
	i := interview{&setup.Interview{Terminal: w.terminal, Out: w.Out, Table: config.Table(), Dirs: w.Load.Dirs(), Check: w.checkAnswer}, w, now}
	for _, part := range []func(context.Context) error{i.askURL, i.askTLS, i.askData, i.askDatabase} {
		if err := part(ctx); err != nil {
			return nil, err
		}
	}
	return i.Changes, nil
}

// value returns the value of a key with the changes so far.
func (i interview) value(key, now string) string {
	for _, change := range i.Changes {
		if change.Key == key {
			return change.Value
		}
	}
	return now
}

// explain prints what the next question is about, and what its proposal means.
func (i interview) explain(text string) { fmt.Fprintln(i.w.Out, "\n"+text) }

func (i interview) askURL(ctx context.Context) error {
	i.explain("Stacks store the URL, so it must stay the same: use a DNS name, and https:// for all but trials on this machine.")
	if err := i.Ask(ctx, "external_url", "URL under which browsers, agents and the pulumi CLI reach the server", i.now.ExternalURL); err != nil {
		return err
	}
	loaded := i.now
	loaded.ExternalURL = i.value("external_url", i.now.ExternalURL)
	return i.w.confirmURL(ctx, i.Changes, loaded)
}

// The ways in which clients get TLS.
const (
	tlsACME  = "acme"
	tlsFiles = "files"
	tlsProxy = "proxy"
	tlsNone  = "none"
)

func (i interview) askTLS(ctx context.Context) error {
	u, err := url.Parse(i.value("external_url", i.now.ExternalURL))
	if err != nil {
		return settings.Invalid(fmt.Errorf("external_url: %w", err))
	}
	way := tlsNone
	if u.Scheme == "https" {
		if way, err = i.chooseTLS(ctx); err != nil {
			return err
		}
	}
	if way != tlsACME {
		i.remove(acmeKeys()...)
	}
	port := cmp.Or(u.Port(), map[string]string{"https": "443", "http": "80"}[u.Scheme])
	switch way {
	case tlsACME:
		i.remove("tls_cert_file", "tls_key_file", "trusted_proxies", "client_address")
		return i.askAuthority(ctx, port)
	case tlsFiles:
		i.remove("trusted_proxies", "client_address")
		return i.askCertificate(ctx, port)
	case tlsProxy:
		i.remove("tls_cert_file", "tls_key_file", "redirect_listen")
		return i.askProxy(ctx)
	}
	i.remove("tls_cert_file", "tls_key_file", "redirect_listen")
	return i.askListen(ctx, net.JoinHostPort(cmp.Or(u.Hostname(), "127.0.0.1"), port))
}

// remove removes settings from the file that do not fit the answers.
func (i interview) remove(keys ...string) {
	for _, key := range keys {
		if !i.now.Source(key).IsDefault() {
			i.Set(settings.Change{Key: key})
		}
	}
}

func (i interview) chooseTLS(ctx context.Context) (string, error) {
	current := tlsProxy
	switch {
	case i.now.ACMETerms:
		current = tlsACME
	case i.now.TLSCert != "":
		current = tlsFiles
	}
	i.explain("acme: the server, with a certificate that it obtains; files: the server, with a certificate in files; proxy: a proxy in front.")
	for range setup.MaxTries {
		answer, err := i.w.terminal.Line(ctx, "Who terminates TLS: acme, files or proxy ["+current+"]: ")
		if err != nil {
			return "", err
		}
		switch answer = cmp.Or(strings.ToLower(strings.TrimSpace(answer)), current); answer {
		case tlsFiles, tlsProxy:
			return answer, nil
		case tlsACME:
			problem := i.noCertificate()
			if problem == "" {
				return answer, nil
			}
			fmt.Fprintln(i.w.Out, problem)
		default:
			fmt.Fprintln(i.w.Out, "Answer acme, files or proxy.")
		}
	}
	return "", settings.Invalid(fmt.Errorf("no valid answer in %d attempts; nothing was written", setup.MaxTries))
}

// acmeKeys returns the keys of the settings about ACME.
func acmeKeys() []string {
	var keys []string
	for _, f := range config.Table().Fields() {
		if strings.HasPrefix(f.Key, "acme_") {
			keys = append(keys, f.Key)
		}
	}
	return keys
}

var agreement = settings.Change{Key: "acme_agree_to_terms", Value: "true"}

// noCertificate returns why no authority issues a certificate for the external URL, or "".
func (i interview) noCertificate() string {
	_, _, err := i.w.apply(append(slices.Clone(i.Changes), agreement))
	if err == nil {
		return ""
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		if _, problem, found := strings.Cut(line, "external_url: "); found {
			return "external_url: " + problem
		}
	}
	return "" // later answers can correct the rest
}

// askAuthority asks for the authority from which the server obtains its certificate.
func (i interview) askAuthority(ctx context.Context, port string) error {
	i.explain("The default is Let's Encrypt, which must reach this server from the internet.")
	if err := i.Ask(ctx, "acme_directory", "URL of the authority's ACME directory", i.now.ACMEDirectory); err != nil {
		return err
	}
	if !i.now.ACMETerms {
		directory := i.value("acme_directory", i.now.ACMEDirectory)
		agree, err := i.w.terminal.Confirm(ctx, "Do you agree to the terms of service of the authority at "+directory+"?")
		if err != nil {
			return err
		}
		if !agree {
			return errors.New("nothing was written, because the authority issues no certificate without your agreement")
		}
		i.Set(agreement)
	}
	return i.askListen(ctx, "0.0.0.0:"+port)
}

func (i interview) askCertificate(ctx context.Context, port string) error {
	check := i.Check
	i.Check = i.w.checkReadable // the certificate and its key are checked together
	if err := i.Ask(ctx, "tls_cert_file", "File with the certificate and its chain (PEM)", i.now.TLSCert); err != nil {
		return err
	}
	i.Check = check
	if err := i.Ask(ctx, "tls_key_file", "File with the private key (PEM)", i.now.TLSKey); err != nil {
		return err
	}
	return i.askListen(ctx, "0.0.0.0:"+port)
}

func (i interview) askProxy(ctx context.Context) error {
	if err := i.askListen(ctx, "127.0.0.1:8800"); err != nil {
		return err
	}
	i.explain("The proxy states the addresses of clients, which limits and the audit log use. 127.0.0.1 and ::1 are a proxy on this machine.")
	proxies := "127.0.0.1, ::1"
	if strings.HasPrefix(i.value("listen", i.now.Listen), config.UnixPrefix) {
		proxies = "unix"
	}
	check := i.Check
	i.Check = nil // the two settings need each other
	defer func() { i.Check = check }()
	if err := i.propose(ctx, "trusted_proxies", "Addresses of the proxy, which may state the addresses of clients", i.now.TrustedProxies.String(), proxies); err != nil {
		return err
	}
	current := i.now.ClientAddress
	if current == clientaddr.Connection {
		current = ""
	}
	return i.propose(ctx, "client_address", "Where the proxy states them: "+strings.Join(clientaddr.Sources()[1:], ", "), current, clientaddr.XForwardedFor)
}

func (i interview) askListen(ctx context.Context, proposal string) error {
	current := ""
	if !i.now.Source("listen").IsDefault() {
		current = i.now.Listen
	}
	i.explain("127.0.0.1 accepts connections from this machine only, such as those of a proxy on it; 0.0.0.0 accepts them from all networks.")
	return i.propose(ctx, "listen", "Address to listen on, as host:port or unix:PATH", current, proposal)
}

// propose asks for a setting that the file may not contain yet.
func (i interview) propose(ctx context.Context, key, prompt, current, proposal string) error {
	if current != "" {
		return i.Ask(ctx, key, prompt, current)
	}
	return i.Propose(ctx, key, prompt, proposal)
}

func (i interview) askData(ctx context.Context) error {
	current := ""
	if !i.now.Source("data_dir").IsDefault() {
		current = i.now.DataDir
	}
	i.explain("The directory contains the master key, without which the secrets of stacks are lost, and the database if it is SQLite.")
	return i.propose(ctx, "data_dir", "Directory for keys and data", current, i.w.dataDir())
}

// sqlite is the answer that selects the default database.
const sqlite = "sqlite"

func (i interview) askDatabase(ctx context.Context) error {
	i.explain("sqlite is a file in that directory, for one server. PostgreSQL is for several servers, or if you back up and monitor one already.")
	configured := cmp.Or(i.now.Database.String(), sqlite)
	current := configured
	for range setup.MaxTries {
		answer, err := i.w.terminal.Line(ctx, "Database: sqlite, or postgres://USER@HOST/NAME ["+current+"]: ")
		if err != nil {
			return err
		}
		answer = cmp.Or(strings.TrimSpace(answer), current)
		switch {
		case answer == sqlite, answer == configured:
			i.forget("database", "database_password")
			if answer == sqlite {
				i.remove("database", "database_password", "database_password_file")
			}
			return nil
		case config.Database(answer).HasPassword():
			fmt.Fprintln(i.w.Out, "Write it without the password, which is asked for next.")
			continue
		}
		change, err := i.Table.Check(settings.Change{Key: "database", Value: answer}, i.Dirs)
		if err != nil {
			fmt.Fprintln(i.w.Out, err)
			continue
		}
		i.Set(change)
		given, err := i.askPassword(ctx)
		if err != nil {
			return err
		}
		if ok, err := i.w.checkAnswer(ctx, i.Changes); ok || err != nil {
			return err
		}
		if answer == current && !given {
			i.Keep("database")
			return nil // the operator keeps both answers
		}
		fmt.Fprintln(i.w.Out, "Correct the answers, or press Enter to keep them.")
		current = answer
	}
	return settings.Invalid(fmt.Errorf("database: no valid answer in %d attempts; nothing was written", setup.MaxTries))
}

// forget drops earlier answers.
func (i interview) forget(keys ...string) {
	i.Changes = slices.DeleteFunc(i.Changes, func(c settings.Change) bool { return slices.Contains(keys, c.Key) })
}

// askPassword asks for the password of the database. It reports whether the operator has given one.
func (i interview) askPassword(ctx context.Context) (given bool, err error) {
	if i.now.DatabasePasswordFile != "" {
		return false, nil
	}
	before, current := i.value("database_password", ""), "none"
	switch {
	case before != "":
		current = "the one just given"
	case !i.now.DatabasePassword.IsZero():
		current = "the configured one"
	}
	check := i.Check
	i.Check = nil // it is checked together with the database
	defer func() { i.Check = check }()
	err = i.Ask(ctx, "database_password", "Password of the role, not shown", current)
	return i.value("database_password", "") != before, err
}

// checkReadable checks that the file of the newest of the changes can be read.
func (w *writer) checkReadable(_ context.Context, changes []settings.Change) (bool, error) {
	_, err := boundedfile.Read(changes[len(changes)-1].Value, maxCertificate)
	if err != nil {
		fmt.Fprintln(w.Out, err)
	}
	return err == nil, nil
}

// maxCertificate is more than the size of files with certificates, in bytes.
const maxCertificate = 1 << 20

// checkAnswer checks the newest of the changes, and prints what fails.
func (w *writer) checkAnswer(ctx context.Context, changes []settings.Change) (bool, error) {
	key := changes[len(changes)-1].Key
	only := checksOf[key]
	if w.NoCheck || len(only) == 0 {
		return true, nil
	}
	_, loaded, err := w.apply(changes)
	if err != nil {
		if !strings.Contains(err.Error(), key+": ") {
			return true, nil // later answers can correct what does not fit together
		}
		fmt.Fprintln(w.Out, err)
		return false, nil
	}
	report, err := doctor.Run(ctx, doctor.Options{
		Config: loaded, Version: w.Version, Only: only,
		Done: func(r checkup.Result) {
			if r.Status == checkup.StatusFail {
				checkup.Print(w.Out, r, w.terminal.Coloured())
			}
		},
	})
	if ctx.Err() != nil {
		return false, setup.ErrStopped
	}
	return report.OK, err
}
