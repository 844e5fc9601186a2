// Package imageref parses references to container images with the parser of Docker and containerd.
package imageref

import (
	_ "crypto/sha256" // the digests of images
	_ "crypto/sha512"
	"errors"
	"fmt"
	"strings"

	"github.com/distribution/reference"
)

// maxSize is the maximum size of a reference in bytes.
const maxSize = 512

// Image is a parsed reference. Name includes the registry's host. Tag and Digest can be "".
type Image struct{ Name, Tag, Digest string }

// Parse parses a reference. It refuses references that programs read differently: "EVIL/x" is an image
// of the registry EVIL for nodes, and one of Docker Hub for others.
func Parse(text string) (Image, error) {
	if len(text) > maxSize {
		return Image{}, fmt.Errorf("an image reference has at most %d bytes", maxSize)
	}
	if strings.HasPrefix(text, "sha256:") {
		return Image{}, errors.New("the ID of an image does not name it: use its name")
	}
	named, err := reference.ParseNormalizedNamed(text)
	if err != nil {
		return Image{}, err
	}
	if host, _, ok := strings.Cut(text, "/"); ok && !IsRegistryHost(host) && strings.ToLower(host) != host {
		return Image{}, fmt.Errorf("%s can mean a registry or a user of Docker Hub: write the registry with its port, such as %[1]s:443", host)
	}
	i := Image{Name: named.Name()}
	if tagged, ok := named.(reference.Tagged); ok {
		i.Tag = tagged.Tag()
	}
	if digested, ok := named.(reference.Digested); ok {
		i.Digest = digested.Digest().String()
	}
	return i, nil
}

// IsRegistryHost reports whether the first element of an image's name is the host of a registry. All
// other elements are users of Docker Hub.
func IsRegistryHost(element string) bool {
	return strings.ContainsAny(element, ".:") || element == "localhost"
}
