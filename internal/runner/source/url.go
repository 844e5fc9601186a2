package source

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
)

// repository is where to fetch from, with any credentials taken out of its URL.
type repository struct {
	url      string // for git and for people
	scheme   string // https, http or ssh
	host     string // with a port if the URL has one
	user     string // from the URL; "" if none
	password string // from the URL; "" if none
}

// parseURL takes a repository URL apart. Only the protocols that talk to a server
// and are safe to hand to git are let through: git's own "ext::" runs commands,
// and a path would read what lies on the machine of the job.
func parseURL(raw string) (*repository, error) {
	raw = strings.TrimSpace(raw)
	if raw == "" {
		return nil, errors.New("the deployment has a git source without a repository URL: set sourceContext.git.repoUrl")
	}
	if strings.HasPrefix(raw, "-") || strings.ContainsFunc(raw, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return nil, errors.New("the repository URL holds characters that no URL has")
	}
	if user, host, path, ok := splitSCP(raw); ok {
		if host == "" || strings.HasPrefix(host, "-") || strings.HasPrefix(user, "-") || path == "" {
			return nil, fmt.Errorf("the repository URL %q cannot be read: use a form like git@example.com:group/project.git", raw)
		}
		return &repository{url: raw, scheme: "ssh", host: host, user: user}, nil
	}
	u, err := url.Parse(raw)
	if err != nil {
		// The error of net/url repeats the URL, which may hold a password.
		return nil, errors.New("the repository URL cannot be read: use a form like https://example.com/group/project.git")
	}
	scheme := strings.ToLower(u.Scheme)
	switch scheme {
	case "https", "http", "ssh":
	case "git+ssh", "ssh+git":
		scheme = "ssh"
	case "":
		return nil, fmt.Errorf("the repository URL %q has no scheme: use https://, http:// or ssh://", raw)
	default:
		return nil, fmt.Errorf("the repository URL starts with %q, which is not allowed: use https://, http:// or ssh://", u.Scheme+":")
	}
	if u.Opaque != "" || u.Hostname() == "" || strings.HasPrefix(u.Hostname(), "-") || strings.HasPrefix(u.User.Username(), "-") {
		return nil, errors.New("the repository URL names no host: use a form like https://example.com/group/project.git")
	}
	repo := &repository{scheme: scheme, host: u.Host, user: u.User.Username()}
	repo.password, _ = u.User.Password()
	u.Scheme, u.User, u.Fragment, u.RawFragment = scheme, nil, "", ""
	if scheme == "ssh" && repo.user != "" {
		u.User = url.User(repo.user) // the login name is part of the address and no secret
	}
	repo.url = u.String()
	return repo, nil
}

// splitSCP recognises the short form of ssh URLs, [user@]host:path.
func splitSCP(raw string) (user, host, path string, ok bool) {
	if strings.Contains(raw, "://") {
		return "", "", "", false
	}
	before, path, found := strings.Cut(raw, ":")
	// "ext::cmd" and "C:\dir" are not addresses; "dir/a:b" is a path.
	if !found || strings.HasPrefix(path, ":") || strings.ContainsAny(before, `/\`) || len(before) < 2 {
		return "", "", "", false
	}
	user, host, found = strings.Cut(before, "@")
	if !found {
		user, host = "", before
		if !strings.Contains(host, ".") && !strings.EqualFold(host, "localhost") {
			return "", "", "", false // more likely a scheme than a host
		}
	}
	return user, host, path, true
}

// URLSecrets returns the parts of a repository URL that must not show in a log.
func URLSecrets(raw string) []string {
	u, err := url.Parse(strings.TrimSpace(raw))
	if err != nil || u.User == nil {
		return nil
	}
	password, ok := u.User.Password()
	if ok && password != "" {
		return []string{password}
	}
	// https://TOKEN@host is a common way to give a token and nothing else.
	if name := u.User.Username(); name != "" && (u.Scheme == "https" || u.Scheme == "http") && len(name) >= minTokenLength {
		return []string{name}
	}
	return nil
}

// minTokenLength is the length from which the user name of an https URL without
// a password is taken for a token and not for somebody's name.
const minTokenLength = 20

// origin is the part of the URL that git and ssh name when they ask for
// credentials, without a user.
func (r *repository) origin() string { return r.scheme + "://" + r.host }

// cleartext reports whether credentials would cross a network unencrypted.
func (r *repository) cleartext() bool {
	if r.scheme != "http" {
		return false
	}
	name := r.host
	if host, _, err := net.SplitHostPort(r.host); err == nil {
		name = host
	}
	if strings.EqualFold(name, "localhost") {
		return false
	}
	ip := net.ParseIP(strings.Trim(name, "[]"))
	return ip == nil || !ip.IsLoopback()
}
