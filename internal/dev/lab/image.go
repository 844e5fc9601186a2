package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"workflowagent/internal/dev/lab/child"

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

// Image is an image that is created from this machine's files. Nothing is pulled from a registry.
type Image struct {
	name string
	root *rootfs
	// env, user and command are those of the image's configuration.
	env     []string
	user    string
	command []string
}

// newImage returns an image with a shell as its command. Its content is the caller's to add.
func newImage(name string) *Image {
	return &Image{name: name, root: newRootfs(), env: []string{"PATH=" + imagePath}, command: []string{"/bin/sh"}}
}

// AsUser returns a copy of the image in which processes run as a user, given as UID or UID:GID.
func (i *Image) AsUser(user string) *Image {
	c := *i
	c.user = user
	return &c
}

// Running returns a copy of the image with another command.
func (i *Image) Running(command ...string) *Image {
	c := *i
	c.command = command
	return &c
}

// With returns a copy of the image with further files of this machine, such as static programs.
// files maps their paths in the image to their paths on this machine.
func (i *Image) With(files map[string]string) *Image {
	c := *i
	c.root = &rootfs{entries: maps.Clone(i.root.entries)}
	for inside, host := range files {
		c.root.file(inside, host)
	}
	return &c
}

// Copy adds programs with their libraries, and directories without test data, at their paths on this machine. A
// relative link remains one.
func (i *Image) Copy(ctx context.Context, paths ...string) error {
	for _, p := range paths {
		if target, err := os.Readlink(p); err == nil && !filepath.IsAbs(target) {
			i.root.link(p, target)
			continue
		}
		info, err := os.Stat(p)
		switch {
		case err != nil:
			return fmt.Errorf("adding a tool to an image: %w", err)
		case info.IsDir():
			err = i.root.tree(ctx, p, p, func(name string) bool { return path.Base(name) == "testdata" })
		default:
			err = i.root.program(ctx, p, p)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Link adds a symbolic link.
func (i *Image) Link(name, target string) { i.root.link(name, target) }

// Ref returns the image's name, with a tag that depends on all of its content.
func (i *Image) Ref() (string, error) {
	var key fingerprint
	if err := i.root.fingerprint(&key); err != nil {
		return "", err
	}
	key.add("changes", strings.Join(i.changes(), "\n"))
	return i.name + ":" + key.sum(), nil
}

// NewExecutorImage returns an image in which jobs can run as any user. The image holds this
// machine's shell, git and ssh, and the given tools.
func NewExecutorImage(ctx context.Context, tools Tools) (*Image, error) {
	if runtime.GOOS != "linux" {
		return nil, errors.New("creating an executor image requires Linux")
	}
	image := newImage("workflowagent/executor")
	root := image.root
	if err := addShell(ctx, root); err != nil {
		return nil, err
	}
	if err := addGit(ctx, root); err != nil {
		return nil, err
	}
	addCertificates(root)
	for _, name := range []string{pulumiBinary, yamlBinary} {
		if err := root.program(ctx, path.Join(imageTools, name), filepath.Join(tools.Dir, name)); err != nil {
			return nil, err
		}
	}
	root.dir(imageHome, 0o1777, 0)
	if tools.ProviderDir != "" {
		root.file(path.Join(imageHome, "plugins", pluginDir(providerBinary), providerBinary), tools.Provider())
	}
	image.env = append(append([]string{"PULUMI_HOME=" + imageHome}, tools.Quiet()...), image.env...)
	return image, nil
}

// NewStubImage returns a small image like [NewExecutorImage]'s, but with a shell script in place of
// pulumi.
func NewStubImage(ctx context.Context, pulumi string) (*Image, error) {
	image := newImage("workflowagent/stub")
	if err := addShell(ctx, image.root); err != nil {
		return nil, err
	}
	if err := addGit(ctx, image.root); err != nil {
		return nil, err
	}
	image.root.script(path.Join(imageTools, pulumiBinary), pulumi)
	return image, nil
}

// NewShellImage returns a small image with a shell and busybox's commands.
func NewShellImage(ctx context.Context) (*Image, error) {
	image := newImage("workflowagent/shell")
	return image, addShell(ctx, image.root)
}

// NewProgramImage returns an image called name that holds only static programs of this machine and
// the certificates of certificate authorities. programs maps their paths in the image to their paths
// on this machine.
func NewProgramImage(name string, programs map[string]string, command ...string) *Image {
	image := &Image{name: name, root: &rootfs{entries: map[string]rootEntry{}}, env: []string{"PATH=" + imagePath}, command: command}
	image.root.dir("/tmp", 0o1777, 0)
	addCertificates(image.root)
	return image.With(programs)
}

// NewAgentImage returns an image with the agent and the runner of bin, at the paths at which they are
// in the released image.
func NewAgentImage(bin string) *Image {
	return NewProgramImage("workflowagent/agent", map[string]string{
		"/usr/bin/customer-managed-workflow-agent": filepath.Join(bin, "customer-managed-workflow-agent"),
		"/usr/local/bin/workflow-runner":           filepath.Join(bin, "workflow-runner"),
	}, "/usr/bin/customer-managed-workflow-agent", "run")
}

// NewServerImage returns an image with the server of bin, as in the released image.
func NewServerImage(bin string) *Image {
	const server = "/usr/bin/workflow-server"
	image := NewProgramImage("workflowagent/server", map[string]string{
		server:                  filepath.Join(bin, "workflow-server"),
		"/usr/bin/workflow-esc": filepath.Join(bin, "workflow-esc"),
	}, server, "serve")
	image.env = append(image.env, "HOME=/var/lib/workflow-server", "WORKFLOW_SERVER_DATA_DIR=/var/lib/workflow-server", "WORKFLOW_SERVER_LISTEN=:8800")
	return image
}

// ExecutorImage ensures that the engine at host has [NewExecutorImage]'s image, and returns its
// name.
func ExecutorImage(ctx context.Context, host string, tools Tools) (ref string, err error) {
	image, err := NewExecutorImage(ctx, tools)
	if err != nil {
		return "", err
	}
	return image.Load(ctx, host)
}

// StubImage ensures that the engine at host has [NewStubImage]'s image, and returns its name.
func StubImage(ctx context.Context, host, pulumi string) (ref string, err error) {
	image, err := NewStubImage(ctx, pulumi)
	if err != nil {
		return "", err
	}
	return image.Load(ctx, host)
}

// ShellImage ensures that the engine at host has [NewShellImage]'s image, and returns its name.
func ShellImage(ctx context.Context, host string) (ref string, err error) {
	image, err := NewShellImage(ctx)
	if err != nil {
		return "", err
	}
	return image.Load(ctx, host)
}

func addCertificates(root *rootfs) {
	for _, bundle := range certificates {
		if _, err := os.Stat(bundle); err == nil {
			root.file(certificates[0], bundle)
			return
		}
	}
}

// addShell adds a static busybox under all of its names, and bash if this machine has it.
func addShell(ctx context.Context, root *rootfs) error {
	busybox, err := child.Find("busybox")
	if err != nil {
		return fmt.Errorf("finding a shell for the image: %w (install Debian's busybox-static)", err)
	}
	if err := root.program(ctx, "/bin/busybox", busybox); err != nil {
		return err
	}
	applets, err := child.Command(ctx, busybox, "--list").Output()
	if err != nil {
		return fmt.Errorf("listing busybox's programs: %w", err)
	}
	for applet := range strings.FieldsSeq(string(applets)) {
		if applet != "busybox" {
			root.link("/bin/"+applet, "busybox")
		}
	}
	root.link("/usr/bin/env", "../../bin/busybox")
	if bash, err := child.Find("bash"); err == nil {
		return root.program(ctx, "/bin/bash", bash)
	}
	return nil
}

func addGit(ctx context.Context, root *rootfs) error {
	git, err := child.Find("git")
	if err != nil {
		return fmt.Errorf("finding git for the executor image: %w", err)
	}
	out, err := child.Command(ctx, git, "--exec-path").Output()
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
	if ssh, err := child.Find("ssh"); err == nil {
		return root.program(ctx, "/usr/bin/ssh", ssh)
	}
	return nil
}

// changes returns the image's configuration as instructions of a Dockerfile.
func (i *Image) changes() []string {
	var changes []string
	for _, variable := range i.env {
		changes = append(changes, "ENV "+variable)
	}
	if i.user != "" {
		changes = append(changes, "USER "+i.user)
	}
	if len(i.command) > 0 {
		quoted := make([]string, len(i.command))
		for n, word := range i.command {
			quoted[n] = strconv.Quote(word)
		}
		changes = append(changes, "CMD ["+strings.Join(quoted, ", ")+"]")
	}
	return changes
}

// Load imports the image into the engine, unless the engine already has an equal image.
func (i *Image) Load(ctx context.Context, host string) (ref string, err error) {
	if ref, err = i.Ref(); err != nil {
		return "", err
	}
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
		writer.CloseWithError(i.root.writeTar(writer))
	}()
	defer func() {
		_ = reader.Close()
		<-written
	}()
	answer, err := docker.ImageImport(ctx, client.ImageImportSource{Source: reader, SourceName: "-"}, ref,
		client.ImageImportOptions{Changes: i.changes()})
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
