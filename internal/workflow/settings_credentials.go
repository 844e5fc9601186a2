package workflow

import (
	"encoding/json"
	"strings"
)

// credentialPlaces lists the parents of stored credentials, the members that contain them, and the
// addresses for which they were given.
var credentialPlaces = []struct {
	parent, member string
	address        func(*Settings) string
}{
	{"sourceContext.git", "gitAuth", (*Settings).gitAddress},
	{"sourceContext.hg", "hgAuth", (*Settings).hgAddress},
	{"sourceContext.template", "gitAuth", (*Settings).templateAddress},
	{imagePath, "credentials", (*Settings).registry},
}

// mergeSettings merges a patch into base. Stored credentials whose address changes are removed first.
// Otherwise a user who may change settings or start a deployment, but cannot read the credentials,
// could send them to any host.
func mergeSettings(base, patch map[string]any) (*Settings, error) {
	stored, err := settingsFromTree(base)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(base)
	if err != nil {
		return nil, err
	}
	tree, err := parseTree(data)
	if err != nil {
		return nil, err
	}
	mergeTree(tree, patch, "")
	merged, err := settingsFromTree(tree)
	if err != nil {
		return nil, err
	}
	for _, place := range credentialPlaces {
		if place.address(stored) != place.address(merged) {
			delete(memberAt(base, place.parent), place.member)
		}
	}
	mergeTree(base, patch, "")
	return settingsFromTree(base)
}

// SecretAddress returns the address to which the secret with a path is sent, or "" if it is not a
// credential. The server encrypts credentials for their addresses, so the addresses that an earlier
// version has returned for stored settings must not change.
func (s *Settings) SecretAddress(path string) string {
	for _, place := range credentialPlaces {
		if strings.HasPrefix(path, place.parent+"."+place.member+".") {
			return place.address(s)
		}
	}
	return ""
}

// memberAt returns the object at a path, or nil if there is none.
func memberAt(tree map[string]any, path string) map[string]any {
	for name := range strings.SplitSeq(path, ".") {
		tree, _ = tree[name].(map[string]any)
	}
	return tree
}

func (s *Settings) gitAddress() string {
	if g := s.Git(); g != nil && g.RepoURL != "" {
		return canonicalAddress(g.RepoURL)
	}
	address, err := s.repositoryURL()
	if err != nil { // only the integration knows the server
		t, _ := s.Triggers()
		return t.Provider + ":" + t.Repository
	}
	return canonicalAddress(address)
}

func (s *Settings) hgAddress() string {
	if c := s.SourceContext; c != nil && c.Hg != nil {
		return canonicalAddress(c.Hg.RepoURL)
	}
	return ""
}

func (s *Settings) templateAddress() string {
	if c := s.SourceContext; c != nil && c.Template != nil {
		return canonicalAddress(c.Template.SourceURL)
	}
	return ""
}

// canonicalAddress returns the scheme, host, port and path of a repository's address in one form. It
// returns an invalid address unchanged.
func canonicalAddress(address string) string {
	repo, err := ParseRepository(address)
	if err != nil {
		return address
	}
	return repo.Scheme + "://" + repo.Name()
}

// dockerHub is the registry of images whose reference names none.
const dockerHub = "docker.io"

// registry returns the registry of the image, or "" if the settings name no image. As for Docker, the
// first part of a reference is a registry if it could be a host. Some parsers also read one with
// capitals as a host, so it is not Docker Hub either.
func (s *Settings) registry() string {
	e := s.ExecutorContext
	if e == nil || e.ExecutorImage == nil || e.ExecutorImage.Reference == "" {
		return ""
	}
	host, _, ok := strings.Cut(e.ExecutorImage.Reference, "/")
	if !ok || !strings.ContainsAny(host, ".:") && host != "localhost" && host == strings.ToLower(host) || host == "index.docker.io" {
		return dockerHub
	}
	return host
}
