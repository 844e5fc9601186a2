package image

import (
	"archive/tar"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Set contains one product's images for all processors.
type Set struct {
	Product
	Release
	Images map[string]v1.Image // by processor, in Go's spelling
}

// Tags returns the tags of a version: the version itself, and latest unless the version is a
// prerelease.
func Tags(version string) []string {
	if strings.Contains(version, "-") {
		return []string{version}
	}
	return []string{version, "latest"}
}

// Index returns the multi-platform image.
func (s Set) Index() (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range slices.Sorted(maps.Keys(s.Images)) {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: s.Images[arch], Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	annotated, ok := mutate.Annotations(index, s.labels(s.Product)).(v1.ImageIndex)
	if !ok {
		return nil, fmt.Errorf("building the index: unexpected type %T", index)
	}
	return annotated, nil
}

// Digests returns the multi-platform image and each processor's image in the form NAME:TAG@DIGEST.
func (s Set) Digests() ([]string, error) {
	index, err := s.Index()
	if err != nil {
		return nil, err
	}
	digest, err := index.Digest()
	if err != nil {
		return nil, fmt.Errorf("computing the checksum of an image: %w", err)
	}
	name := s.Repositories[0] + ":" + s.Version
	lines := []string{name + "@" + digest.String()}
	for _, arch := range slices.Sorted(maps.Keys(s.Images)) {
		if digest, err = s.Images[arch].Digest(); err != nil {
			return nil, fmt.Errorf("computing the checksum of an image: %w", err)
		}
		lines = append(lines, name+"-"+arch+"@"+digest.String())
	}
	return lines, nil
}

// Push writes the multi-platform image to a registry under PREFIX/NAME:TAG, for all names and tags.
// It writes each processor's image under PREFIX/NAME:TAG-PROCESSOR. Credentials come from Docker's
// configuration. It writes each tag after the content to which the tag refers, and returns the
// pushed references.
func (s Set) Push(ctx context.Context, prefix string) ([]string, error) {
	index, err := s.Index()
	if err != nil {
		return nil, err
	}
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	var pushed []string
	for _, repository := range s.Repositories {
		for _, tag := range Tags(s.Version) {
			for _, arch := range slices.Sorted(maps.Keys(s.Images)) {
				ref, err := reference(prefix, repository, tag+"-"+arch)
				if err != nil {
					return pushed, err
				}
				if err := remote.Write(ref, s.Images[arch], options...); err != nil {
					return pushed, fmt.Errorf("pushing %s: %w", ref, err)
				}
				pushed = append(pushed, ref.String())
			}
			ref, err := reference(prefix, repository, tag)
			if err != nil {
				return pushed, err
			}
			if err := remote.WriteIndex(ref, index, options...); err != nil {
				return pushed, fmt.Errorf("pushing %s: %w", ref, err)
			}
			pushed = append(pushed, ref.String())
		}
	}
	return pushed, nil
}

func reference(prefix, repository, tag string) (name.Tag, error) {
	ref, err := name.NewTag(strings.TrimRight(prefix, "/")+"/"+repository+":"+tag, name.StrictValidation)
	if err != nil {
		return name.Tag{}, fmt.Errorf("%q does not have the form REGISTRY/PREFIX: %w", prefix, err)
	}
	return ref, nil
}

// WriteArchive writes the images as one tar archive. The archive is an OCI image layout, for skopeo
// and podman, and also contains the manifest that every version of "docker load" reads.
func (s Set) WriteArchive(out io.Writer) error {
	index, err := s.Index()
	if err != nil {
		return err
	}
	a := &archive{blobs: map[string]func() (io.ReadCloser, int64, error){}}
	if err := s.collect(a, index); err != nil {
		return fmt.Errorf("archiving the images: %w", err)
	}
	w := tar.NewWriter(out)
	if err := a.write(w, s.Created); err != nil {
		return fmt.Errorf("archiving the images: %w", err)
	}
	return w.Close()
}

type archive struct {
	layout v1.IndexManifest // index.json
	docker []dockerImage    // manifest.json
	blobs  map[string]func() (io.ReadCloser, int64, error)
}

// dockerImage is an image in the manifest of "docker load".
type dockerImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// write writes all files in name order, with the same time.
func (a *archive) write(w *tar.Writer, at time.Time) error {
	for name, value := range map[string]any{"index.json": a.layout, "manifest.json": a.docker, "oci-layout": map[string]string{"imageLayoutVersion": "1.0.0"}} {
		text, err := json.Marshal(value)
		if err != nil {
			return err
		}
		a.blobs[name] = opener(text)
	}
	for _, name := range slices.Sorted(maps.Keys(a.blobs)) {
		content, size, err := a.blobs[name]()
		if err != nil {
			return err
		}
		header := tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644, ModTime: at.UTC().Truncate(time.Second), Format: tar.FormatPAX}
		if err = w.WriteHeader(&header); err == nil {
			_, err = io.Copy(w, content)
		}
		if cerr := content.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}
