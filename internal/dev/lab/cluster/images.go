package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"workflowagent/internal/dev/lab"
)

// registry precedes the names of images in containerd that name no registry.
const registry = "docker.io/"

func (c *Cluster) containerd() string { return filepath.Join(c.Dir, "containerd.sock") }

// ctr runs containerd's client in the namespace of Kubernetes.
func (c *Cluster) ctr(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	binary, err := find("ctr")
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, binary, append([]string{"--address", c.containerd(), "--namespace", "k8s.io"}, args...)...)
	cmd.Stdin = stdin
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("ctr %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(problems.Bytes()))
	}
	return out.String(), nil
}

// Import imports an image into the node, unless the node already has an equal one, and returns its
// name for pods. Pods that pull the image only if it is missing never pull it.
func (c *Cluster) Import(ctx context.Context, image *lab.Image) (ref string, err error) {
	if ref, err = image.Ref(); err != nil {
		return "", err
	}
	present, err := c.ctr(ctx, nil, "images", "list", "--quiet", "name=="+registry+ref)
	if err != nil {
		return "", err
	}
	if strings.TrimSpace(present) != "" {
		return ref, nil
	}
	reader, writer := io.Pipe()
	written := make(chan error, 1)
	go func() {
		err := image.WriteArchive(writer)
		writer.CloseWithError(err)
		written <- err
	}()
	_, err = c.ctr(ctx, reader, "images", "import", "-")
	_ = reader.Close()
	if err := errors.Join(err, <-written); err != nil {
		return "", fmt.Errorf("importing the image %s: %w", ref, err)
	}
	return ref, nil
}

// PlainRegistry makes the node pull images of the registry at host, given as HOST:PORT, over HTTP
// without TLS.
func (c *Cluster) PlainRegistry(host string) error {
	dir := filepath.Join(c.Dir, "registries", host)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("naming a registry: %w", err)
	}
	config := fmt.Sprintf("server = %q\n[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n", "http://"+host, "http://"+host)
	if err := os.WriteFile(filepath.Join(dir, "hosts.toml"), []byte(config), 0o600); err != nil {
		return fmt.Errorf("naming a registry: %w", err)
	}
	return nil
}
