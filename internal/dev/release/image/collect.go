package image

import (
	"bytes"
	"io"
	"maps"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

func (s Set) collect(a *archive, index v1.ImageIndex) error {
	a.layout = v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex}
	text, err := index.RawManifest()
	if err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	a.blobs[blob(digest)] = opener(text)
	s.named(a, v1.Descriptor{MediaType: types.OCIImageIndex, Size: int64(len(text)), Digest: digest}, "")
	for _, arch := range slices.Sorted(maps.Keys(s.Images)) {
		if err := s.collectImage(a, arch); err != nil {
			return err
		}
	}
	return nil
}

func (s Set) collectImage(a *archive, arch string) error {
	image := s.Images[arch]
	manifest, err := image.RawManifest()
	if err != nil {
		return err
	}
	digest, err := image.Digest()
	if err != nil {
		return err
	}
	a.blobs[blob(digest)] = opener(manifest)
	s.named(a, v1.Descriptor{
		MediaType: types.OCIManifestSchema1, Size: int64(len(manifest)), Digest: digest, Platform: &v1.Platform{OS: "linux", Architecture: arch},
	}, "-"+arch)

	config, err := image.RawConfigFile()
	if err != nil {
		return err
	}
	configName, err := image.ConfigName()
	if err != nil {
		return err
	}
	a.blobs[blob(configName)] = opener(config)
	loaded := dockerImage{Config: blob(configName)}
	for _, repository := range s.Repositories {
		for _, tag := range Tags(s.Version) {
			loaded.RepoTags = append(loaded.RepoTags, repository+":"+tag+"-"+arch)
		}
	}
	layers, err := image.Layers()
	if err != nil {
		return err
	}
	for _, layer := range layers {
		digest, err := layer.Digest()
		if err != nil {
			return err
		}
		a.blobs[blob(digest)] = func() (io.ReadCloser, int64, error) {
			size, err := layer.Size()
			if err != nil {
				return nil, 0, err
			}
			content, err := layer.Compressed()
			return content, size, err
		}
		loaded.Layers = append(loaded.Layers, blob(digest))
	}
	a.docker = append(a.docker, loaded)
	return nil
}

// named adds a descriptor to the OCI layout for each name and tag. Only the first name's tags are
// reference names, because these must be unique. Engines that store images in containerd read the
// other annotation.
func (s Set) named(a *archive, d v1.Descriptor, suffix string) {
	for i, repository := range s.Repositories {
		for _, tag := range Tags(s.Version) {
			tag += suffix
			d.Annotations = map[string]string{"io.containerd.image.name": "docker.io/library/" + repository + ":" + tag}
			if i == 0 {
				d.Annotations["org.opencontainers.image.ref.name"] = tag
			}
			a.layout.Manifests = append(a.layout.Manifests, d)
		}
	}
}

func blob(digest v1.Hash) string { return "blobs/" + digest.Algorithm + "/" + digest.Hex }

func opener(text []byte) func() (io.ReadCloser, int64, error) {
	return func() (io.ReadCloser, int64, error) {
		return io.NopCloser(bytes.NewReader(text)), int64(len(text)), nil
	}
}
