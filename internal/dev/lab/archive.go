package lab

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"
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
	layer, err := os.CreateTemp("", "layer-")
	if err != nil {
		return fmt.Errorf("writing the image %s: %w", ref, err)
	}
	defer func() {
		_ = layer.Close()
		_ = os.Remove(layer.Name())
	}()
	sum := sha256.New()
	if err := i.root.writeTar(io.MultiWriter(layer, sum)); err != nil {
		return fmt.Errorf("writing the image %s: %w", ref, err)
	}
	size, err := layer.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("writing the image %s: %w", ref, err)
	}
	if _, err := layer.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("writing the image %s: %w", ref, err)
	}

	const configName, layerName = "config.json", "layer.tar"
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config":       map[string]any{"Env": i.env, "User": i.user, "Cmd": i.command},
		"rootfs":       map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sum.Sum(nil))}},
	})
	if err != nil {
		return fmt.Errorf("writing the image %s: %w", ref, err)
	}
	manifest, err := json.Marshal([]map[string]any{{
		"Config": configName, "RepoTags": []string{archiveRepository + ref}, "Layers": []string{layerName},
	}})
	if err != nil {
		return fmt.Errorf("writing the image %s: %w", ref, err)
	}
	out := tar.NewWriter(w)
	for _, file := range []struct {
		name    string
		content []byte
	}{{"manifest.json", manifest}, {configName, config}} {
		err := out.WriteHeader(&tar.Header{Name: file.name, Mode: 0o644, Size: int64(len(file.content)), ModTime: time.Unix(0, 0)})
		if err != nil {
			return fmt.Errorf("writing the image %s: %w", ref, err)
		}
		if _, err := out.Write(file.content); err != nil {
			return fmt.Errorf("writing the image %s: %w", ref, err)
		}
	}
	if err := out.WriteHeader(&tar.Header{Name: layerName, Mode: 0o644, Size: size, ModTime: time.Unix(0, 0)}); err != nil {
		return fmt.Errorf("writing the image %s: %w", ref, err)
	}
	if _, err := io.Copy(out, layer); err != nil {
		return fmt.Errorf("writing the image %s: %w", ref, err)
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("writing the image %s: %w", ref, err)
	}
	return nil
}
