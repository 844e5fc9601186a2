package doctor

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"workflowagent/internal/checkup"
	"workflowagent/internal/reach"
	"workflowagent/internal/server/api/mirror"
	"workflowagent/internal/server/certfile"
	"workflowagent/internal/server/config"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/identity/signin/openid"
	"workflowagent/internal/server/store"
)

func (e *examination) checkConfig(context.Context) checkup.Result {
	if !e.readable {
		return fail(configInvalid, "no server can start with the configuration", "fix the reported lines, with configure or an editor", checkup.Lines(e.opts.ConfigErr)...)
	}
	file := cmp.Or(e.cfg.File(), "no file, the environment and the defaults")
	if e.cfg.ExternalURL == "" {
		return fail(urlMissing, file+": "+errNoURL.Error(), "set external_url to the URL that clients use, with configure or an editor")
	}
	if warnings := e.cfg.Warnings(); len(warnings) > 0 {
		return warn(configWarnings, file, "review the reported lines", warnings...)
	}
	return checkup.OK(file)
}

// externalURL returns the URL that a server with the configuration has, or "" if it cannot start.
func externalURL(c config.Config) string {
	if c.ExternalURL != "" {
		return c.ExternalURL
	}
	host, _, isTCP := strings.Cut(c.Listen, ":")
	if strings.HasPrefix(c.Listen, config.UnixPrefix) || !isTCP || host == "" || host == "0.0.0.0" || strings.HasPrefix(c.Listen, "[::]") {
		return ""
	}
	if c.TLS() {
		return "https://" + c.Listen
	}
	return "http://" + c.Listen
}

// namedFiles returns the files that the server's user must be able to read.
func namedFiles(c config.Config) []checkup.NamedFile {
	files := []checkup.NamedFile{
		{Key: "the configuration", Path: c.File()},
		{Key: "tls_cert_file", Path: c.TLSCert},
		{Key: "tls_key_file", Path: c.TLSKey},
		{Key: "master_key_file", Path: c.MasterKeyFile},
		{Key: "sign_in_file", Path: c.SignInFile},
		{Key: "database_password_file", Path: c.DatabasePasswordFile},
		{Key: "acme_ca_file", Path: c.ACMECAFile},
		{Key: "acme_eab_key_file", Path: c.ACMEKeyFile},
		{Key: "metrics_token_file", Path: c.MetricsTokenFile},
		{Key: "backup_passphrase_file", Path: c.BackupPassphraseFile},
	}
	if u, err := url.Parse(string(c.Database)); err == nil && !strings.HasPrefix(c.DSN(), "sqlite:") {
		for _, key := range []string{"sslrootcert", "sslcert", "sslkey"} {
			if path := u.Query().Get(key); path != "system" { // the authorities of the system
				files = append(files, checkup.NamedFile{Key: key + " in database", Path: path})
			}
		}
	}
	if c.SignInFile != "" {
		providers, _ := openid.Load(c.SignInFile) // checkFiles reports the error
		for _, p := range providers {
			files = append(files,
				checkup.NamedFile{Key: "client_secret_file of " + p.ID, Path: p.SecretFile},
				checkup.NamedFile{Key: "ca_certificate_file of " + p.ID, Path: p.AuthorityFile})
		}
	}
	return slices.DeleteFunc(files, func(f checkup.NamedFile) bool { return f.Path == "" })
}

// CheckReadable returns an error if the server's user cannot read all files that the configuration names.
func CheckReadable(c config.Config) error {
	if r := accountOf(c).Readable("the server's", namedFiles(c)); r.Status == checkup.StatusFail {
		return fmt.Errorf("%s:\n%s\n%s", r.Found, strings.Join(r.Details, "\n"), r.Advice)
	}
	return nil
}

// checkFiles checks that the server's user can read the files that the configuration names, and what the file with the
// providers of sign-in says. Other checks examine the content of other files.
func (e *examination) checkFiles(context.Context) checkup.Result {
	files := namedFiles(e.cfg)
	if _, err := os.Stat(e.cfg.File()); errors.Is(err, fs.ErrNotExist) { // configure has not written it yet
		files = slices.DeleteFunc(files, func(f checkup.NamedFile) bool { return f.Path == e.cfg.File() })
	}
	r := named(fileUnreadable, e.user.Readable("the server's", files))
	reads := os.Geteuid() == 0 || e.user.IsSelf()
	if r.Status == checkup.StatusOK && e.cfg.SignInFile != "" && reads {
		if _, err := openid.Load(e.cfg.SignInFile); err != nil {
			return fail(configInvalid, "sign_in_file cannot be used", "fix the reported lines", checkup.Lines(err)...)
		}
	}
	return r
}

func (e *examination) checkKey(ctx context.Context) checkup.Result {
	source := e.cfg.MasterKey()
	create := source.Create
	source.Create = false // an examination changes nothing
	master, err := source.Load(ctx)
	switch {
	case errors.Is(err, fs.ErrNotExist) && create:
		return checkup.Skip(source.File + " does not exist yet; the first start creates it")
	case errors.Is(err, fs.ErrNotExist):
		return fail(keyMissing, source.File+" does not exist", "restore the key; for a new installation, create it with: openssl rand -base64 32")
	case errors.Is(err, fs.ErrPermission):
		return fail(fileUnreadable, fmt.Sprintf("%s cannot be read: %v", source.File, checkup.Reason(err)), "run doctor as root or as the server's user")
	case err != nil && source.Command != "":
		return fail(keyInvalid, err.Error(), "correct master_key_command; doctor ran it as this user")
	case err != nil:
		return fail(keyInvalid, err.Error(), "restore the key from its copy: without it, all stacks lose their secrets")
	}
	e.master = master
	if e.key, err = keyring.Derive(master, mirror.Purpose); err != nil {
		return fail(keyInvalid, err.Error(), "restore the key from its copy")
	}
	if info, err := os.Stat(source.File); source.File != "" && err == nil && info.Mode().Perm()&0o007 != 0 {
		return warn(keyInvalid, fmt.Sprintf("%s can be read by other users (mode %04o)", source.File, info.Mode().Perm()), "run chmod o= on it; if others may have read it, create a new installation")
	}
	return checkup.OK(source.String() + " contains a master key")
}

// checkKeyRing checks that the master key is the database's.
func (e *examination) checkKeyRing(ctx context.Context) checkup.Result {
	if e.db == nil {
		return checkup.Skip("no server has set up the database yet")
	}
	if len(e.key) == 0 {
		return e.checkLostKey(ctx)
	}
	switch err := keyring.Check(ctx, e.db, e.master); {
	case errors.Is(err, store.ErrNotFound):
		return checkup.Skip("the first start creates the key ring")
	case err != nil:
		return fail(keyWrong, err.Error(), "set master_key_file to the key with which the database was created, or restore it from its copy")
	}
	return checkup.OK("the master key opens the database's key ring")
}

// checkLostKey checks that the first start may create the master key.
func (e *examination) checkLostKey(ctx context.Context) checkup.Result {
	source := e.cfg.MasterKey()
	if _, err := os.Stat(source.File); !source.Create || !errors.Is(err, fs.ErrNotExist) {
		return checkup.Skip("not checked, because of: master key")
	}
	exists, err := keyring.Exists(ctx, e.db)
	switch {
	case err != nil:
		return fail(databaseFailed, err.Error(), "check the log of the database")
	case exists:
		return fail(keyMissing, "the database has secrets, but "+source.File+", which opens them, does not exist: the server does not start",
			"restore the key from its copy; if it is lost, see workflow-server secrets discard --help")
	}
	return checkup.Skip("the first start creates the key ring")
}

// checkCertificate checks the files of the certificate. What clients receive is another check.
func (e *examination) checkCertificate(context.Context) checkup.Result {
	c := e.cfg
	switch {
	case c.ACMETerms:
		return checkup.Skip("the server obtains its certificate from " + c.ACMEDirectory)
	case c.TLSCert == "":
		return checkup.Skip("the server does not use TLS")
	}
	leaf, err := certfile.Leaf(c.TLSCert, c.TLSKey)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return checkup.Skip("not checked, because of: files")
	}
	if err != nil {
		return fail(certificateInvalid, err.Error(), "correct tls_cert_file and tls_key_file: PEM files with the certificate and its chain, and with its key")
	}
	now := time.Now()
	found := fmt.Sprintf("%s, for %s, valid until %s", c.TLSCert, strings.Join(leaf.DNSNames, ", "), leaf.NotAfter.Format(time.DateOnly))
	switch missing := missingHosts(leaf, c.ExternalURL, string(c.Console())); {
	case now.After(leaf.NotAfter):
		return fail(certificateExpired, found, "renew the certificate; the server uses new files from the next connection on")
	case len(missing) > 0:
		return fail(certificateNames, found+", but not for "+strings.Join(missing, " and "), "obtain a certificate for each host of external_url and console_url")
	case reach.ExpiresSoon(leaf.NotBefore, leaf.NotAfter, now):
		return warn(certificateExpires, found, fmt.Sprintf("renew the certificate, which expires in %d hours", int(leaf.NotAfter.Sub(now).Hours())))
	}
	if info, err := os.Stat(c.TLSKey); err == nil && info.Mode().Perm()&0o007 != 0 {
		return warn(certificateKeyOpen, fmt.Sprintf("%s can be read by other users (mode %04o)", c.TLSKey, info.Mode().Perm()), "run chmod o= on it")
	}
	return checkup.OK(found)
}

// missingHosts returns the hosts of URLs for which a certificate is not valid.
func missingHosts(leaf *x509.Certificate, urls ...string) []string {
	var missing []string
	for _, text := range urls {
		u, err := url.Parse(text)
		if err == nil && u.Hostname() != "" && leaf.VerifyHostname(u.Hostname()) != nil {
			missing = append(missing, u.Hostname())
		}
	}
	return missing
}

func (e *examination) checkData(context.Context) checkup.Result {
	dir := e.cfg.DataDir
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		parent := checkup.Existing(dir)
		if err := unix.Access(parent, unix.W_OK|unix.X_OK); err != nil {
			return fail(dataInvalid, fmt.Sprintf("%s does not exist and cannot be created in %s: %v", dir, parent, err), "create it for the server's user, or set data_dir")
		}
		return checkup.OK(dir + " does not exist yet and can be created")
	case err != nil:
		return fail(dataInvalid, fmt.Sprintf("%s cannot be examined: %v", dir, checkup.Reason(err)), "run doctor as root or as the server's user, or set data_dir")
	case !info.IsDir():
		return fail(dataInvalid, dir+" is not a directory", "remove it, or set data_dir")
	case info.Mode().Perm()&0o022 != 0:
		return fail(dataOpen, fmt.Sprintf("%s can be written by other users (mode %04o)", dir, info.Mode().Perm()), "run chmod 700 on it")
	}
	switch {
	case e.user.IsSelf():
		if err := checkup.Writable(dir); err != nil {
			return fail(dataInvalid, fmt.Sprintf("%s is not writable: %v", dir, checkup.Reason(err)), "check for a full or read-only disk, or set data_dir")
		}
	case os.Geteuid() != 0:
		return warn(dataUser, fmt.Sprintf("%s belongs to %s, and the doctor runs as user %d", dir, e.user, os.Geteuid()),
			"run doctor as root or as the server's user, for example with sudo -u: another user may get different results")
	}
	if strangers := foreignFiles(dir, e.user.UID); len(strangers) > 0 {
		return fail(dataForeign, fmt.Sprintf("%s contains files that do not belong to %s, such as those of a server that root has started", dir, e.user),
			fmt.Sprintf("stop the server, and run chown -R %d %s", e.user.UID, dir), strangers...)
	}
	return checkup.OK(dir + " belongs to the server's " + e.user.String())
}

// maxForeign bounds the reported files.
const maxForeign = 5

// foreignFiles returns files directly below a directory that belong to another user than uid.
func foreignFiles(dir string, uid int) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // only the server's user may read it
	}
	var out []string
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil {
			continue // it was removed meanwhile
		}
		if owner, ok := ownerOf(info); ok && owner != uid && len(out) < maxForeign {
			out = append(out, fmt.Sprintf("%s belongs to user %d", filepath.Join(dir, entry.Name()), owner))
		}
	}
	return out
}

func (e *examination) checkDisk(context.Context) checkup.Result {
	disks := checkup.Disks{Of: e.opts.Disk, Least: store.LeastSpace}
	dirs := []string{e.cfg.DataDir}
	if path, ok := strings.CutPrefix(e.cfg.DSN(), "sqlite:"); ok && filepath.Dir(path) != e.cfg.DataDir {
		dirs = append(dirs, filepath.Dir(path))
	}
	var worst checkup.Result
	for i, dir := range dirs {
		r := named(diskFull, disks.Space(checkup.Existing(filepath.Join(dir, "file")), "the server's data", "free up space, or move data_dir to a larger disk; see keep_states and keep_logs_for"))
		if i == 0 || r.Status == checkup.StatusFail || worst.Status == checkup.StatusOK {
			worst = r
		}
	}
	return worst
}
