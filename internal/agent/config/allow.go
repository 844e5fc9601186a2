package config

import (
	"cmp"
	"path"
	"strings"
	"unicode"

	"workflowagent/internal/imageref"
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
	image, err := imageref.Parse(reference)
	if err != nil {
		return false
	}
	for _, pattern := range c.AllowedImages {
		p, ok := parseImagePattern(pattern)
		switch {
		case !ok || !workflow.MatchesPattern(p.Name, image.Name):
		case p.Digest != "":
			if p.Digest == image.Digest {
				return true
			}
		case p.Tag != "":
			if image.Digest == "" && workflow.MatchesPattern(p.Tag, cmp.Or(image.Tag, "latest")) {
				return true
			}
		default:
			return true
		}
	}
	return false
}

// parseImagePattern parses a pattern for images, in which elements can be wildcards. It reports
// whether the pattern can match an image.
func parseImagePattern(pattern string) (imageref.Image, bool) {
	if pattern == "" || strings.ContainsFunc(pattern, isOdd) {
		return imageref.Image{}, false
	}
	var i imageref.Image
	name, digest, hasDigest := strings.Cut(pattern, "@")
	if hasDigest && (digest == "" || strings.Contains(digest, "@")) {
		return imageref.Image{}, false
	}
	i.Digest = digest
	if colon := strings.LastIndexByte(name, ':'); colon > strings.LastIndexByte(name, '/') {
		name, i.Tag = name[:colon], name[colon+1:]
		if i.Tag == "" {
			return imageref.Image{}, false
		}
	}
	if name == "" || path.Clean("/"+name) != "/"+name {
		return imageref.Image{}, false // a name with an empty, "." or ".." element
	}
	host, rest, hasRest := strings.Cut(name, "/")
	switch {
	case host == "**":
		i.Name = name
	case !hasRest:
		i.Name = "docker.io/library/" + name
	case !imageref.IsRegistryHost(host):
		i.Name = "docker.io/" + name
		if strings.ToLower(host) != host {
			return imageref.Image{}, false // see [imageref.Parse]
		}
	case host == "index.docker.io":
		i.Name = "docker.io/" + rest
	default:
		i.Name = name
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
