package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"workflowagent/internal/dev/release/image"
	"workflowagent/internal/host/release"
)

// imagesFile is the file of a release that lists its container images by digest.
const imagesFile = "images.txt"

// images builds the container images from the Linux archives, writes them into the directory images
// next to the release, lists their digests in the release, and pushes them if requested. It also writes the release's
// composition of them.
func (m *maker) images(ctx context.Context) error {
	revision, err := git(ctx, m.root, "rev-parse", "HEAD")
	if err != nil {
		return err
	}
	about := image.Release{Version: m.version, Revision: revision, Source: m.home, Created: m.time}
	var digests []string
	for _, product := range []struct {
		image.Product
		archive func(version, goos, goarch string) (string, error)
	}{{image.Agent(), release.Archive}, {image.Server(), release.ServerArchive}} {
		set := image.Set{Product: product.Product, Release: about, Images: map[string]v1.Image{}}
		for _, p := range m.targets {
			if p.os != "linux" {
				continue
			}
			name, err := product.archive(m.version, p.os, p.arch)
			if err != nil {
				return err
			}
			dir, err := m.unpack(name)
			if err != nil {
				return err
			}
			if set.Images[p.arch], err = about.Image(product.Product, p.arch, dir); err != nil {
				return fmt.Errorf("%s for %s: %w", product.Repositories[0], p, err)
			}
		}
		if len(set.Images) == 0 {
			m.notes = append(m.notes, "no images were created: they require a Linux platform")
			return nil
		}
		lines, err := m.writeImages(ctx, set)
		if err != nil {
			return err
		}
		digests = append(digests, lines...)
	}
	if err := writeFile(filepath.Join(m.files, imagesFile), []byte(strings.Join(digests, "\n")+"\n")); err != nil {
		return err
	}
	return m.composition()
}

// writeImages returns the lines of a product's images in imagesFile.
func (m *maker) writeImages(ctx context.Context, set image.Set) (digests []string, err error) {
	file := filepath.Join(m.dist, "images", set.Repositories[0]+"-"+m.version+".tar")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return nil, fmt.Errorf("creating a directory: %w", err)
	}
	draft, err := renameio.NewPendingFile(file, renameio.WithStaticPermissions(0o644))
	if err != nil {
		return nil, fmt.Errorf("writing %s: %w", file, err)
	}
	if err := set.WriteArchive(draft); err != nil {
		return nil, errors.Join(fmt.Errorf("writing %s: %w", file, err), draft.Cleanup())
	}
	if err := draft.CloseAtomicallyReplace(); err != nil {
		return nil, fmt.Errorf("writing %s: %w", file, err)
	}
	if digests, err = set.Digests(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	fmt.Println(digests[0])
	if m.push == "" {
		return digests, nil
	}
	pushed, err := set.Push(ctx, m.push)
	for _, ref := range pushed {
		fmt.Println("pushed " + ref)
	}
	return digests, err
}

// unpack writes the regular files in the only directory of a release archive to a temporary
// directory, and returns that directory.
func (m *maker) unpack(name string) (dir string, err error) {
	file, err := os.Open(filepath.Join(m.files, name))
	if err != nil {
		return "", fmt.Errorf("reading an archive: %w", err)
	}
	defer file.Close()
	dir = filepath.Join(m.scratch, "images", name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("creating a directory: %w", err)
	}
	err = eachFile(file, func(header *tar.Header, content []byte) error {
		if path.Dir(path.Dir(header.Name)) != "." {
			return nil // a manual page in the subdirectory
		}
		return os.WriteFile(filepath.Join(dir, path.Base(header.Name)), content, 0o600)
	})
	if err != nil {
		return "", fmt.Errorf("unpacking %s: %w", name, err)
	}
	return dir, nil
}
