package config

import (
	"path"
	"strings"
	"unicode"

	"workflowagent/internal/workflow"
)

// AllowsImage reports whether allowed_images permits jobs with the referenced image. In patterns
// and references, a name without a host refers to Docker Hub: pulumi/pulumi means
// docker.io/pulumi/pulumi.
//
// A pattern without a tag allows every tag and digest. A pattern with a tag allows only that tag
// and no digest, because an engine that receives both follows the digest.
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
		case !ok || !workflow.MatchesPattern(p.name, image.name):
		case p.digest != "":
			if p.digest == image.digest {
				return true
			}
		case p.tag != "":
			if image.digest == "" && workflow.MatchesPattern(p.tag, image.tagOrLatest()) {
				return true
			}
		default:
			return true
		}
	}
	return false
}

// image is a parsed reference. The name includes the registry's host.
type image struct {
	name, tag, digest string
}

func (i image) tagOrLatest() string {
	if i.tag == "" {
		return "latest"
	}
	return i.tag
}

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
		return image{}, false // a name with an empty, "." or ".." element
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

// RepositoryPatterns returns allowed_repositories, for [workflow.AllowsRepository].
func (c *Config) RepositoryPatterns() []string { return c.AllowedRepositories }

// isRepositoryPattern reports whether a pattern can match a repository. A pattern with escapes or
// with empty, "." or ".." elements cannot.
func isRepositoryPattern(pattern string) bool {
	pattern = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(pattern, "/"), ".git"), "/")
	return !strings.Contains(pattern, "%") && path.Clean("/"+pattern) == "/"+strings.TrimPrefix(pattern, "/")
}

func isOdd(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) || r == '\\' }
