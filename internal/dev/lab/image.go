package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
)

// Paths in the executor image. The home directory is writable by every user, so that jobs need not
// run as root.
const (
	imageTools = "/pulumi/bin"
	imageHome  = "/pulumi/home"
	imagePath  = imageTools + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

var certificates = []string{
	"/etc/ssl/certs/ca-certificates.crt", // Debian, Alpine, Arch
	"/etc/pki/tls/certs/ca-bundle.crt",   // Fedora
	"/etc/ssl/ca-bundle.pem",             // SUSE
}

// ExecutorImage ensures that the engine at host has an image in which jobs can run as any user, and
// returns its name. The image holds this machine's shell, git and ssh, and the given tools. Nothing
// is pulled from a registry.
func ExecutorImage(ctx context.Context, host string, tools Tools) (ref string, err error) {
	if runtime.GOOS != "linux" {
		return "", errors.New("creating an executor image requires Linux")
	}
	root := newRootfs()
	if err := addShell(ctx, root); err != nil {
		return "", err
	}
	if err := addGit(ctx, root); err != nil {
		return "", err
	}
	for _, bundle := range certificates {
		if _, err := os.Stat(bundle); err == nil {
			root.file(certificates[0], bundle)
			break
		}
	}
	for _, name := range []string{pulumiBinary, yamlBinary} {
		if err := root.program(ctx, path.Join(imageTools, name), filepath.Join(tools.Dir, name)); err != nil {
			return "", err
		}
	}
	root.dir(imageHome, 0o1777, 0)
	if tools.ProviderDir != "" {
		root.file(path.Join(imageHome, "plugins", pluginDir(providerBinary), providerBinary), tools.Provider())
	}
	changes := []string{"ENV PULUMI_HOME=" + imageHome}
	for _, variable := range tools.Quiet() {
		changes = append(changes, "ENV "+variable)
	}
	return importImage(ctx, host, "workflowagent/executor", root, changes)
}

// StubImage ensures that the engine at host has a small image like [ExecutorImage], but with a
// shell script in place of pulumi, and returns its name.
func StubImage(ctx context.Context, host, pulumi string) (ref string, err error) {
	root := newRootfs()
	if err := addShell(ctx, root); err != nil {
		return "", err
	}
	if err := addGit(ctx, root); err != nil {
		return "", err
	}
	root.script(path.Join(imageTools, pulumiBinary), pulumi)
	return importImage(ctx, host, "workflowagent/stub", root, nil)
}

// ShellImage ensures that the engine at host has a small image with a shell and busybox's commands,
// and returns its name.
func ShellImage(ctx context.Context, host string) (ref string, err error) {
	root := newRootfs()
	if err := addShell(ctx, root); err != nil {
		return "", err
	}
	return importImage(ctx, host, "workflowagent/shell", root, nil)
}

// addShell adds a static busybox under all of its names, and bash if this machine has it.
func addShell(ctx context.Context, root *rootfs) error {
	busybox, err := findProgram("busybox")
	if err != nil {
		return fmt.Errorf("finding a shell for the image: %w (install Debian's busybox-static)", err)
	}
	if err := root.program(ctx, "/bin/busybox", busybox); err != nil {
		return err
	}
	applets, err := command(ctx, busybox, "--list").Output()
	if err != nil {
		return fmt.Errorf("listing busybox's programs: %w", err)
	}
	for applet := range strings.FieldsSeq(string(applets)) {
		if applet != "busybox" {
			root.link("/bin/"+applet, "busybox")
		}
	}
	root.link("/usr/bin/env", "../../bin/busybox")
	if bash, err := findProgram("bash"); err == nil {
		return root.program(ctx, "/bin/bash", bash)
	}
	return nil
}

func addGit(ctx context.Context, root *rootfs) error {
	git, err := findProgram("git")
	if err != nil {
		return fmt.Errorf("finding git for the executor image: %w", err)
	}
	out, err := command(ctx, git, "--exec-path").Output()
	if err != nil {
		return fmt.Errorf("finding git's programs: %w", err)
	}
	libexec := strings.TrimSpace(string(out))
	if err := root.program(ctx, "/usr/bin/git", git); err != nil {
		return err
	}
	// Most git commands are links to git itself. These commands are separate large programs that no
	// job uses.
	useless := map[string]bool{
		"git-http-push": true, "scalar": true, "git-imap-send": true, "git-http-fetch": true,
		"git-http-backend": true, "git-daemon": true, "git-shell": true, "git": true,
	}
	if err := root.tree(ctx, libexec, libexec, func(name string) bool { return useless[name] }); err != nil {
		return fmt.Errorf("collecting git's programs: %w", err)
	}
	root.link(path.Join(libexec, "git"), "/usr/bin/git")
	root.dir("/usr/share/git-core/templates", 0o755, 0)
	if ssh, err := findProgram("ssh"); err == nil {
		return root.program(ctx, "/usr/bin/ssh", ssh)
	}
	return nil
}

// importImage imports an image into the engine, unless the engine already has an equal image.
func importImage(ctx context.Context, host, name string, root *rootfs, changes []string) (ref string, err error) {
	changes = append(changes, "ENV PATH="+imagePath, `CMD ["/bin/sh"]`)
	var key fingerprint
	if err := root.fingerprint(&key); err != nil {
		return "", err
	}
	key.add("changes", strings.Join(changes, "\n"))
	ref = name + ":" + key.sum()

	docker, err := client.New(client.WithHost(host))
	if err != nil {
		return "", fmt.Errorf("connecting to the Docker Engine: %w", err)
	}
	defer func() { _ = docker.Close() }()
	if _, err := docker.ImageInspect(ctx, ref); err == nil {
		return ref, nil
	} else if !errdefs.IsNotFound(err) {
		return "", fmt.Errorf("inspecting the image %s: %w", ref, err)
	}

	reader, writer := io.Pipe()
	written := make(chan struct{})
	go func() {
		defer close(written)
		writer.CloseWithError(root.writeTar(writer))
	}()
	defer func() {
		_ = reader.Close()
		<-written
	}()
	answer, err := docker.ImageImport(ctx, client.ImageImportSource{Source: reader, SourceName: "-"}, ref,
		client.ImageImportOptions{Changes: changes})
	if err != nil {
		return "", fmt.Errorf("importing the image %s: %w", ref, err)
	}
	defer func() { _ = answer.Close() }()
	if err := importError(answer); err != nil {
		return "", fmt.Errorf("importing the image %s: %w", ref, err)
	}
	return ref, nil
}

func importError(messages io.Reader) error {
	decoder := json.NewDecoder(messages)
	for {
		var message struct {
			Error string `json:"error"`
		}
		switch err := decoder.Decode(&message); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case message.Error != "":
			return errors.New(message.Error)
		}
	}
}
