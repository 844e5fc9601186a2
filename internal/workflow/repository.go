package workflow

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Repository is the parsed address of a git repository. All programs use this parser: the server
// validates addresses with it, and the agent compares the result with allowed_repositories. The
// runner passes [Repository.String] to git, so git cannot connect to an address that the others did
// not check.
type Repository struct {
	// Scheme is https, http or ssh.
	Scheme string
	// Host is in lower case, with the port unless it is the scheme's default.
	Host string
	// User and Password are the credentials in the address.
	User, Password string

	path  string // decoded, without a leading slash unless short is set
	short bool   // the form is user@host:path, whose path starts in the user's home directory
	// escaped is set if the path of the short form has escapes, which the server decodes.
	escaped bool
}

// maxRepositoryURL limits the length of an address, in bytes.
const maxRepositoryURL = 2048

// ParseRepository parses https, http and ssh URLs and the form user@host:path. It returns an error
// for all other forms that git accepts, in particular local paths and transports that run commands.
// It also returns an error for an address that git, curl or ssh could parse differently. Errors
// contain no secret part of the address.
func ParseRepository(raw string) (*Repository, error) {
	raw = strings.TrimSpace(raw)
	switch {
	case raw == "":
		return nil, errors.New("it is empty")
	case len(raw) > maxRepositoryURL:
		return nil, fmt.Errorf("it is longer than %d bytes", maxRepositoryURL)
	case strings.HasPrefix(raw, "-") || !utf8.ValidString(raw) || strings.ContainsFunc(raw, isOddInURL):
		return nil, errors.New("it contains characters that are invalid in a URL")
	}
	var r *Repository
	var err error
	if strings.Contains(raw, "://") {
		r, err = parseLong(raw)
	} else {
		r, err = parseShort(raw)
	}
	if err != nil {
		return nil, err
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	return r, nil
}

// isOddInURL reports whether a character is invalid in an address or changes how it is displayed.
func isOddInURL(r rune) bool {
	return r == ' ' || isOddInPath(r)
}

func isOddInPath(r rune) bool {
	return !unicode.IsPrint(r) || r == '\\' || r == unicode.ReplacementChar
}

// parseLong parses scheme://[user[:password]@]host[:port]/path.
func parseLong(raw string) (*Repository, error) {
	u, err := url.Parse(raw)
	if err != nil {
		// The error from net/url repeats the URL, which can contain a password.
		return nil, errors.New("it cannot be read: use a form like https://example.com/group/project.git")
	}
	r := &Repository{Scheme: u.Scheme, User: u.User.Username()}
	r.Password, _ = u.User.Password()
	switch r.Scheme {
	case "https", "http", "ssh":
	case "git+ssh", "ssh+git":
		r.Scheme = "ssh"
	default:
		return nil, fmt.Errorf("it starts with %q, which is not allowed: use https://, http:// or ssh://", u.Scheme+":")
	}
	if u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.Contains(raw, "#") {
		return nil, errors.New("it has a query or a fragment, which git does not use and logs would show")
	}
	// Programs disagree on whether an escaped slash is a slash.
	if strings.Contains(strings.ToLower(u.EscapedPath()), "%2f") {
		return nil, errors.New("its path contains an escaped slash")
	}
	if r.Host, err = parseHost(u.Hostname(), u.Port(), r.Scheme); err != nil {
		return nil, err
	}
	r.path = strings.TrimPrefix(collapse(u.Path), "/")
	return r, nil
}

// parseShort parses [user@]host:path.
func parseShort(raw string) (*Repository, error) {
	before, path, found := strings.Cut(raw, ":")
	user, host, hasUser := strings.Cut(before, "@")
	if !hasUser {
		user, host = "", before
	}
	switch {
	// "ext::cmd" and "C:\dir" are not addresses, and "dir/a:b" is a path.
	case !found || strings.Contains(before, "/") || len(before) < 2 || hasUser && user == "":
		return nil, errors.New("it has no scheme: use https://, http:// or ssh://")
	case strings.HasPrefix(path, ":") || !hasUser && !strings.Contains(host, ".") && !strings.EqualFold(host, "localhost"):
		return nil, fmt.Errorf("it starts with %q, which is not allowed: use https://, http:// or ssh://", before+":")
	case strings.Contains(path, "%") && !slices.Contains(azureHosts, strings.ToLower(host)):
		return nil, errors.New("it has an escape sequence, which the form user@host:path does not support: use ssh://")
	}
	host, err := parseHost(host, "", "ssh")
	if err != nil {
		return nil, err
	}
	decoded, err := url.PathUnescape(path)
	if err != nil || strings.Count(decoded, "/") != strings.Count(path, "/") {
		return nil, errors.New("its path contains an invalid escape sequence")
	}
	return &Repository{Scheme: "ssh", Host: host, User: user, path: collapse(decoded), short: true, escaped: decoded != path}, nil
}

// defaultPorts are the default ports of the schemes.
var defaultPorts = map[string]string{"https": "443", "http": "80", "ssh": "22"}

// parseHost returns the normalized host. Names must be ASCII, because programs disagree on which
// Unicode characters become a dot or a slash in a DNS name.
func parseHost(name, port, scheme string) (string, error) {
	host := strings.ToLower(name)
	if strings.Contains(host, ":") {
		address, err := netip.ParseAddr(host)
		if err != nil || address.Zone() != "" {
			return "", errors.New("it has no valid host")
		}
		host = "[" + address.String() + "]"
	} else if strings.HasPrefix(host, "-") || strings.Trim(host, "abcdefghijklmnopqrstuvwxyz0123456789.-_") != "" || strings.Trim(host, ".") == "" {
		return "", errors.New("it has no valid host: use a form like https://example.com/group/project.git, with letters of ASCII only")
	}
	if port == "" || port == defaultPorts[scheme] {
		return host, nil
	}
	if len(port) > 5 || strings.HasPrefix(port, "0") {
		return "", errors.New("its port is invalid")
	}
	return host + ":" + port, nil
}

// collapse returns path with repeated slashes replaced by one, as servers treat them.
func collapse(path string) string {
	for strings.Contains(path, "//") {
		path = strings.ReplaceAll(path, "//", "/")
	}
	return path
}

func (r *Repository) check() error {
	if strings.HasPrefix(r.User, "-") || strings.ContainsFunc(r.User+r.Password, unicode.IsControl) || !utf8.ValidString(r.User+r.Password) {
		return errors.New("its user name or password contains an invalid character")
	}
	// ssh receives the user name on its command line.
	if r.Scheme == "ssh" && strings.Trim(r.User, alphanumeric+"._+-~") != "" {
		return errors.New("its user name contains characters that are invalid in an SSH address")
	}
	name := strings.Trim(r.path, "/")
	if strings.TrimSuffix(name, ".git") == "" {
		return errors.New("it has no path: use a form like https://example.com/group/project.git")
	}
	if r.short && strings.HasPrefix(r.path, "-") || strings.Contains(name, "%") || !utf8.ValidString(name) || strings.ContainsFunc(name, isOddInPath) {
		return errors.New("its path contains characters that are invalid in a repository's path")
	}
	elements := strings.Split(name, "/")
	if slices.Contains(elements, ".") || slices.Contains(elements, "..") {
		return errors.New(`its path has an element "." or ".."`)
	}
	return nil
}

// String returns the address without credentials. It includes the user of an SSH address, who is
// not a secret.
func (r *Repository) String() string {
	user := ""
	if r.Scheme == "ssh" && r.User != "" {
		user = r.User + "@"
	}
	if r.short {
		return user + r.Host + ":" + r.Path()
	}
	return r.Scheme + "://" + user + r.Host + (&url.URL{Path: "/" + r.path}).EscapedPath()
}

// Resolve returns the address that a repository's .gitmodules file gives as raw. It can be relative
// to the repository's own address. The result contains no credentials.
func (r *Repository) Resolve(raw string) (*Repository, error) {
	var to *Repository
	var err error
	if strings.HasPrefix(raw, "./") || strings.HasPrefix(raw, "../") {
		to = new(*r)
		to.path = strings.TrimPrefix(path.Join("/"+r.path, raw), "/")
		if strings.HasPrefix(r.path, "/") {
			to.path = "/" + to.path
		}
		to, err = ParseRepository(to.String())
	} else {
		to, err = ParseRepository(raw)
	}
	if err != nil {
		return nil, err
	}
	if to.Scheme != "ssh" {
		to.User = ""
	}
	to.Password = ""
	return to, nil
}

// OnOrigin returns the address of the same path on the origin of another address.
func (r *Repository) OnOrigin(of *Repository) *Repository {
	to := *r
	to.Scheme, to.Host, to.User, to.Password, to.short, to.escaped = of.Scheme, of.Host, "", "", false, false
	to.path = strings.TrimPrefix(to.path, "/")
	return &to
}

// Path returns the path that ssh clients send to the server's git. It is absolute, unless the
// address is user@host:path or its path begins with a home directory such as ~user.
func (r *Repository) Path() string {
	if r.escaped {
		return (&url.URL{Path: r.path}).EscapedPath()
	}
	if r.short || strings.HasPrefix(r.path, "~") {
		return r.path
	}
	return "/" + r.path
}

// Origin returns scheme://host[:port], the form in which git requests credentials.
func (r *Repository) Origin() string { return r.Scheme + "://" + r.Host }

// Name returns host/path without the scheme, the user, and the suffixes that git ignores. Patterns
// are matched with it.
func (r *Repository) Name() string {
	path := strings.TrimSuffix(strings.TrimSuffix(strings.Trim(r.path, "/"), ".git"), "/")
	return r.Host + "/" + path
}
