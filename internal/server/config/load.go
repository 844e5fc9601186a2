package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"workflowagent/internal/server/api/clientaddr"
	"workflowagent/internal/server/backup"
	"workflowagent/internal/server/runners"
	"workflowagent/internal/settings"
	"workflowagent/internal/settings/conffile"
)

// FileName is the name of the configuration file, and Etc the directory of the machine's.
const (
	FileName = "workflow-server.yaml"
	Etc      = "/etc/workflow-server"
)

// atRisk is what users who can write the configuration file could change.
const atRisk = "the settings of this server"

// LoadOptions contains the inputs of [Load] other than the content of files.
type LoadOptions struct {
	// Path is the value of --config. If it is "", Load searches for a file.
	Path string
	// Cwd, Home and Etc are the directories to search. An empty name is skipped.
	Cwd, Home, Etc string
	// Binary is the path of the server's binary, with symbolic links resolved.
	Binary  string
	Environ []string
	UID     int
	// Flags contains the values of the given flags by key.
	Flags map[string]string
}

// ProcessOptions returns the options for the running process. The path is the value of --config, or
// "". Values that cannot be determined stay empty.
func ProcessOptions(path string, flags map[string]string) LoadOptions {
	o := LoadOptions{Path: path, Etc: Etc, Environ: os.Environ(), UID: os.Geteuid(), Flags: flags, Home: os.Getenv("HOME"), Binary: conffile.Program()}
	if o.Path == "" {
		o.Path = os.Getenv(envPrefix + "CONFIG")
	}
	if cwd, err := os.Getwd(); err == nil {
		o.Cwd = cwd
	}
	return o
}

// Dirs returns the base directories for relative paths.
func (o LoadOptions) Dirs() settings.Dirs { return settings.Dirs{Cwd: o.Cwd, Home: o.Home} }

// Find locates the configuration file without reading it. The file is the value of --config, which
// must exist, or the first existing file in the current directory, the home directory,
// /etc/workflow-server and the directory of the binary.
func Find(o LoadOptions) (conffile.Found, error) {
	dirs := []string{o.Cwd, o.Home, o.Etc}
	if o.Binary != "" {
		dirs = append(dirs, filepath.Dir(o.Binary))
	}
	var candidates []string
	for _, dir := range dirs {
		if dir != "" {
			candidates = append(candidates, filepath.Join(dir, FileName))
		}
	}
	return conffile.Find(o.Path, o.Dirs(), candidates)
}

// Target returns the path of the file to write: the value of --config, the existing file that a server
// would read, or the path of a new file. For root, a new file is in /etc/workflow-server, and for other
// users in the home directory.
func Target(o LoadOptions) (string, error) {
	if o.Path != "" {
		return o.Dirs().Absolute(o.Path)
	}
	found, err := Find(o)
	switch {
	case err != nil:
		return "", err
	case found.Path != "":
		return found.Path, nil
	case o.UID == 0 && o.Etc != "":
		return filepath.Join(o.Etc, FileName), nil
	case !filepath.IsAbs(o.Home):
		return "", errors.New("the home directory for the configuration file is unknown: name the file with --config")
	}
	return filepath.Join(o.Home, FileName), nil
}

// ReadText returns the text of a configuration file that is about to be changed, after the same
// checks as [Load]. It returns nil if the file does not exist.
func ReadText(path string, o LoadOptions) ([]byte, error) {
	return conffile.ReadText(path, o.UID, atRisk)
}

// Load finds and reads the configuration file, and applies the environment and the flags. Flags
// override the environment, which overrides the file, which overrides the defaults. The error lists
// every problem on a line of the form "FILE:LINE: key: problem: remedy".
func Load(o LoadOptions) (Config, error) {
	found, err := Find(o)
	if err != nil {
		return Config{}, err
	}
	var file conffile.File
	if found.Path != "" {
		if file, err = conffile.Read(found.Path, o.UID, atRisk); err != nil {
			return Config{}, err
		}
	}
	return load(o, found, file)
}

// LoadText is like [Load], but reads the configuration from text, which is about to be written to
// path.
func LoadText(o LoadOptions, path string, text []byte) (Config, error) {
	return load(o, conffile.Found{Path: path}, conffile.File{Path: path, Text: text})
}

func load(o LoadOptions, found conffile.Found, file conffile.File) (Config, error) {
	var c Config
	c.meta.file = found.Path
	c.meta.warnings = found.Warnings()
	t := table(&c)
	t.Dirs = o.Dirs()
	env := conffile.Environment(o.Environ)
	if dir := stateDirectory(env); dir != "" {
		for _, f := range t.Fields() {
			if f.Key == "data_dir" {
				f.Default = dir
			}
		}
	}
	t.SetDefaults()
	if found.Path != "" {
		t.ReadFile(found.Path, file.Text)
		c.meta.warnings = append(c.meta.warnings, t.Warnings...)
		hasSecret := slices.ContainsFunc(c.secrets(), func(s settings.Secret) bool { return !s.IsZero() }) || c.Database.HasPassword()
		if warning := file.Exposed("a secret"); hasSecret && warning != "" {
			c.meta.warnings = append(c.meta.warnings, warning)
		}
	}
	secrets := c.secrets()
	t.ReadEnv(func(name string) string { return env[name] })
	t.ReadFlags(o.Flags)
	t.ReadSecretFiles(env["CREDENTIALS_DIRECTORY"])
	if dirs := filepath.SplitList(env["RUNTIME_DIRECTORY"]); len(dirs) > 0 && filepath.IsAbs(dirs[0]) {
		c.meta.runtime = dirs[0]
	}
	c.meta.sources = t.Sources
	c.validate(&t.Problems)
	c.warnOfVariables(t, env)
	secrets = append(secrets, c.secrets()...)
	for i, warning := range c.meta.warnings {
		c.meta.warnings[i] = settings.Scrub(warning, secrets...)
	}
	return c, t.Problems.Err(secrets...)
}

func (c Config) secrets() []settings.Secret {
	return []settings.Secret{c.MetricsToken, c.DatabasePassword, c.ACMEKey, c.BackupPassphrase}
}

// stateDirectory returns the first directory that systemd provides for the service's data, or "".
func stateDirectory(env map[string]string) string {
	first, _, _ := strings.Cut(env["STATE_DIRECTORY"], ":")
	if !filepath.IsAbs(first) {
		return ""
	}
	return first
}

// validate adds the problems of settings that depend on each other.
func (c Config) validate(problems *settings.Problems) {
	fail := func(key, what string) { problems.Add(c.Source(key), key, what) }
	if c.Runners > 0 && c.RunnersTarget == runners.Process && !c.TrustAll {
		fail("runners_target", "is process, which does not isolate deployments from each other and from the machine: use docker, or add --i-trust-every-repository")
	}
	if c.Source("database").Kind == settings.FromFlag && c.Database.HasPassword() {
		fail("database", "contains a password, and other users can read a program's arguments: remove the password from the URL, and use database_password_file or "+envPrefix+"DATABASE_PASSWORD")
	}
	if c.MasterKeyFile != "" && c.MasterKeyCommand != "" {
		fail("master_key_command", "is set in addition to master_key_file: remove one of them")
	}
	if p := c.BackupPassphrase; !p.IsZero() && len(p.Reveal()) < backup.MinPassphrase {
		fail("backup_passphrase", fmt.Sprintf("has fewer than %d characters, so that others could guess it: use a longer one, such as from openssl rand -base64 32", backup.MinPassphrase))
	}
	c.validateTLS(fail)
	if err := c.Trust().Check(); err != nil {
		fail("client_address", err.Error())
	}
	onSocket := strings.HasPrefix(c.Listen, UnixPrefix)
	switch proxies := c.TrustedProxies; {
	case onSocket && c.Runners > 0:
		fail("listen", "is a unix socket, which the built-in runners cannot reach: listen on host:port, or run an agent instead")
	case onSocket && !proxies.Empty() && !proxies.Unix:
		fail("trusted_proxies", "must contain unix, because the server listens on a unix socket")
	case !onSocket && proxies.Unix:
		fail("trusted_proxies", "contains unix, but the server does not listen on a unix socket: remove it, or set listen to unix:PATH")
	}
	if c.Runners > 0 && c.ClientAddress == clientaddr.ProxyProtocol {
		fail("client_address", "is proxy-protocol, in which the built-in runners do not speak: use x-forwarded-for, or run an agent instead")
	}
	if c.Database.url() == nil && !c.Source("database_connections").IsDefault() {
		fail("database_connections", "is set, but the database is not PostgreSQL: remove it, or set database to postgres://USER@HOST/NAME")
	}
	if c.DatabasePassword.IsZero() {
		return
	}
	switch u := c.Database.url(); {
	case u == nil:
		fail("database_password", "is set, but the database is not PostgreSQL: remove it, or set database to postgres://USER@HOST/NAME")
	case u.User.Username() == "":
		fail("database", "names no user to whom database_password belongs: write it like postgres://USER@HOST/NAME")
	case c.Database.HasPassword():
		fail("database", "contains a password, in addition to database_password: remove one of them")
	}
}

func (c Config) validateTLS(fail func(key, what string)) {
	if (c.TLSCert == "") != (c.TLSKey == "") {
		fail("tls_cert_file", "needs tls_key_file, and tls_key_file needs it: set both, or none")
	}
	if c.RedirectListen != "" && !c.TLS() {
		fail("redirect_listen", "redirects to https, but the server does not use TLS: set tls_cert_file and tls_key_file, or acme_agree_to_terms")
	}
	const begins = "begins with http although the server uses TLS: begin it with https"
	if c.TLS() && strings.HasPrefix(c.ExternalURL, "http:") {
		fail("external_url", begins)
	}
	if c.TLS() && strings.HasPrefix(c.ConsoleURL, "http:") {
		fail("console_url", begins)
	}
	if !c.ACMETerms {
		for _, f := range acmeFields(&c)[1:] {
			if !c.Source(f.Key).IsDefault() {
				fail(f.Key, "has no effect without acme_agree_to_terms: set that to true if you agree to the terms of service of the authority, or remove this setting")
			}
		}
		return
	}
	if c.TLSCert != "" {
		fail("acme_agree_to_terms", "is true although tls_cert_file is set: remove one of them")
	}
	if strings.HasPrefix(c.Listen, UnixPrefix) {
		fail("listen", "is a unix socket, which the ACME authority cannot reach: listen on host:port, or use tls_cert_file")
	}
	if (c.ACMEKeyID == "") != c.ACMEKey.IsZero() {
		fail("acme_eab_key_id", "needs acme_eab_key, and acme_eab_key needs it: set both, or none")
	}
	key, what := "acme_names", "entry %d %w"
	if len(c.ACMENames) == 0 {
		key, what = "external_url", "host %d of external_url and console_url %w"
	}
	names := c.CertificateNames()
	if len(names) == 0 {
		fail(key, "is missing, so the server does not know the name for which it needs a certificate: set it, for example to https://deployments.example.com")
	}
	for i, name := range names {
		err := checkName(name)
		if err == nil && c.ACMEDirectory == LetsEncrypt && !strings.Contains(name, ".") {
			err = errPrivateName
		}
		if err != nil {
			fail(key, fmt.Errorf(what, i+1, err).Error())
		}
	}
}

// serviceVariable matches the variables that Kubernetes creates for a service that is called
// workflow-server.
var serviceVariable = regexp.MustCompile(`^` + envPrefix + `(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT(_[0-9]+_.*)?)$`)

// warnOfVariables warns of variables that look like settings but are none.
func (c *Config) warnOfVariables(t *settings.Table, env map[string]string) {
	known := map[string]bool{envPrefix + "CONFIG": true}
	for _, f := range t.Fields() {
		known[f.Env] = true
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if strings.HasPrefix(name, envPrefix) && !known[name] && strings.TrimSpace(env[name]) != "" && !serviceVariable.MatchString(name) {
			c.meta.warnings = append(c.meta.warnings, "the variable "+name+" is not one of this server's settings and has no effect")
		}
	}
}

// Advise adds what to do to the error of [Load] if the configuration file could not be read.
func Advise(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w; to read the machine's file, run this as root or as the user of the service; to read another, use --config FILE", err)
	}
	return err
}
