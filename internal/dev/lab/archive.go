package lab

import (
	"compress/gzip"
	"fmt"
	"io"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// archiveRepository is the registry that container runtimes add to a name without one.
const archiveRepository = "docker.io/"

// WriteArchive writes the image as a file of "docker save", which all container runtimes import,
// under its name with "docker.io/" before it.
func (i *Image) WriteArchive(w io.Writer) error {
	ref, err := i.Ref()
	if err != nil {
		return err
	}
	tag, err := name.NewTag(archiveRepository + ref)
	if err != nil {
		return fmt.Errorf("naming an image: %w", err)
	}
	packed, err := i.pack()
	if err != nil {
		return fmt.Errorf("creating the image %s: %w", ref, err)
	}
	if err := tarball.Write(tag, packed, w); err != nil {
		return fmt.Errorf("writing the image %s: %w", ref, err)
	}
	return nil
}

// pack returns the image for archives and registries.
func (i *Image) pack() (v1.Image, error) {
	return i.root.pack(runtime.GOARCH, v1.Config{Env: i.env, User: i.user, Cmd: i.command})
}

// pack returns an image with one layer, which is not compressed because it travels within this machine.
func (r *rootfs) pack(arch string, config v1.Config) (v1.Image, error) {
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		reader, writer := io.Pipe()
		go func() { writer.CloseWithError(r.writeTar(writer)) }()
		return reader, nil
	}, tarball.WithCompressionLevel(gzip.NoCompression))
	if err != nil {
		return nil, err
	}
	base, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
		OS: "linux", Architecture: arch, RootFS: v1.RootFS{Type: "layers"}, Config: config,
	})
	if err != nil {
		return nil, err
	}
	return mutate.AppendLayers(base, layer)
}
