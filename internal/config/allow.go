package config

import (
	"net/url"
	"path"
	"regexp"
	"strings"
	"unicode"
)

// AllowsImage reports whether allowed_images lets a job run in the image of the reference. Short
// references mean Docker Hub, on both sides: pulumi/pulumi is docker.io/pulumi/pulumi.
//
// A pattern without a tag lets every tag and digest pass. A pattern with a tag lets only that tag
// pass and no digest, because an engine that is given both follows the digest.
func (c *Config) AllowsImage(reference string) bool {
	if c.AllowedImages == nil {
		return true
	}
	image, ok := parseImage(reference)
	if !ok {
		return false
	}
	for _, pattern := range c.AllowedImages {
		p, ok := parseImage(pattern)
		switch {
		case !ok || !matches(p.name, image.name):
		case p.digest != "":
			if p.digest == image.digest {
				return true
			}
		case p.tag != "":
			if image.digest == "" && matches(p.tag, image.tagOrLatest()) {
				return true
			}
		default:
			return true
		}
	}
	return false
}

// image is a reference in parts; the name is complete, with the registry's host in front.
type image struct {
	name, tag, digest string
}

func (i image) tagOrLatest() string {
	if i.tag == "" {
		return "latest"
	}
	return i.tag
}

// parseImage splits an image reference or a pattern of such.
func parseImage(reference string) (image, bool) {
	if reference == "" || strings.ContainsFunc(reference, isOdd) {
		return image{}, false
	}
	var i image
	name, digest, hasDigest := strings.Cut(reference, "@")
	if hasDigest && (digest == "" || strings.Contains(digest, "@")) {
		return image{}, false
	}
	i.digest = digest
	if colon := strings.LastIndexByte(name, ':'); colon > strings.LastIndexByte(name, '/') {
		name, i.tag = name[:colon], name[colon+1:]
		if i.tag == "" {
			return image{}, false
		}
	}
	if name == "" || path.Clean("/"+name) != "/"+name {
		return image{}, false // empty, "." and ".." elements
	}
	host, rest, hasRest := strings.Cut(name, "/")
	switch {
	case host == "**":
		i.name = name
	case !hasRest:
		i.name = "docker.io/library/" + name
	case !strings.ContainsAny(host, ".:") && host != "localhost":
		i.name = "docker.io/" + name
	case host == "index.docker.io":
		i.name = "docker.io/" + rest
	default:
		i.name = name
	}
	return i, true
}

// AllowsRepository reports whether allowed_repositories lets a job deploy from the git URL. What
// is compared is host/path without scheme, user, default port and .git; a path on the agent's own
// disk is compared as it is. A URL that git and this function could understand differently is not
// allowed.
func (c *Config) AllowsRepository(gitURL string) bool {
	if c.AllowedRepositories == nil {
		return true
	}
	name, ok := repositoryName(gitURL)
	if !ok {
		return false
	}
	for _, pattern := range c.AllowedRepositories {
		if matches(strings.TrimSuffix(strings.TrimSuffix(pattern, "/"), ".git"), name) {
			return true
		}
	}
	return false
}

// repositoryName returns the form of a git URL that patterns are compared with.
func repositoryName(gitURL string) (string, bool) {
	if gitURL == "" || gitURL[0] == '-' || strings.ContainsFunc(gitURL, isOdd) || strings.Contains(gitURL, "::") {
		return "", false
	}
	var host, dir string
	if !strings.Contains(gitURL, "://") {
		if gitURL[0] == '/' {
			return cleanRepository(gitURL)
		}
		// The short form of ssh: user@host:path.
		before, after, found := strings.Cut(gitURL, ":")
		if !found || strings.Contains(before, "/") || strings.Count(before, "@") > 1 {
			return "", false
		}
		host, dir = before[strings.IndexByte(before, '@')+1:], strings.TrimPrefix(after, "/")
	} else {
		u, err := url.Parse(gitURL)
		if err != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.RawPath != "" || u.Opaque != "" {
			return "", false
		}
		dir = strings.TrimPrefix(u.Path, "/")
		switch u.Scheme + ":" + u.Port() {
		case "https:", "https:443", "http:", "http:80", "ssh:", "ssh:22", "git:", "git:9418":
			host = u.Hostname()
		case "file:":
			if u.Host != "" {
				return "", false
			}
			return cleanRepository(u.Path)
		default:
			if u.Scheme != "https" && u.Scheme != "http" && u.Scheme != "ssh" && u.Scheme != "git" {
				return "", false
			}
			host = u.Host
		}
	}
	if host == "" {
		return "", false
	}
	return cleanRepository(strings.ToLower(host) + "/" + dir)
}

// cleanRepository removes the endings that git does not care about and refuses empty, "." and
// ".." elements.
func cleanRepository(name string) (string, bool) {
	name = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "/"), ".git"), "/")
	if strings.Contains(name, "%") || path.Clean("/"+name) != "/"+strings.TrimPrefix(name, "/") {
		return "", false
	}
	return name, true
}

// isOdd reports whether a character has no place in an image reference or a git URL.
func isOdd(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) || r == '\\' }

// matches reports whether name matches the whole pattern: * stands for any characters but the
// slash, ** for any characters.
func matches(pattern, name string) bool {
	expr := regexp.QuoteMeta(pattern)
	expr = strings.ReplaceAll(expr, `\*\*`, `.*`)
	expr = strings.ReplaceAll(expr, `\*`, `[^/]*`)
	re, err := regexp.Compile(`^(?:` + expr + `)$`)
	return err == nil && re.MatchString(name)
}
