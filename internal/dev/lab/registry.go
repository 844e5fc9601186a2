package lab

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log" //nolint:depguard // The registry's library accepts no other logger. The lab's logger discards its output.
	"net"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/moby/moby/api/pkg/authconfig"
	engineregistry "github.com/moby/moby/api/types/registry"
	"github.com/moby/moby/client"
)

// Registry is an image registry in this process. On loopback, engines do not require TLS.
type Registry struct {
	// Host is the registry's address, the first part of the image names.
	Host string

	options RegistryOptions
	server  *http.Server
	serving sync.WaitGroup

	mu    sync.Mutex
	held  chan struct{} // not nil while layers are held; closed by Release
	asked chan struct{} // receives a value for each held request
}

// RegistryOptions configure a [Registry].
type RegistryOptions struct {
	Username, Password string // "" = no authentication
	// Address is the IP address to listen on. The default is 127.0.0.1.
	Address string
}

// Picture is the content of an image for a [Registry].
type Picture struct {
	Arch  string            // amd64, arm64, …
	Files map[string]string // path to content, all world-readable
	Pad   []byte            // content of one more file, to lengthen the download
}

// StartRegistry starts a registry that keeps its images in memory.
func StartRegistry(ctx context.Context, o RegistryOptions) (*Registry, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(cmp.Or(o.Address, "127.0.0.1"), "0"))
	if err != nil {
		return nil, fmt.Errorf("starting an image registry: %w", err)
	}
	r := &Registry{Host: listener.Addr().String(), options: o, asked: make(chan struct{}, 1000)}
	images := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	r.server = &http.Server{
		Handler:           r.guard(images),
		ReadHeaderTimeout: 10 * time.Second,
	}
	r.serving.Go(func() { _ = r.server.Serve(listener) })
	return r, nil
}

// Close stops the registry and discards its images.
func (r *Registry) Close() error {
	r.Release()
	err := r.server.Close()
	r.serving.Wait()
	return err
}

// guard returns a handler that checks the credentials, and holds requests for layers until Release.
func (r *Registry) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if r.options.Username != "" && !r.knows(req) {
			w.Header().Set("WWW-Authenticate", `Basic realm="lab"`)
			http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`, http.StatusUnauthorized)
			return
		}
		if req.Method == http.MethodGet && strings.Contains(req.URL.Path, "/blobs/") {
			if err := r.wait(req.Context()); err != nil {
				return
			}
		}
		next.ServeHTTP(w, req)
	})
}

func (r *Registry) knows(req *http.Request) bool {
	user, password, ok := req.BasicAuth()
	return ok && user == r.options.Username &&
		subtle.ConstantTimeCompare([]byte(password), []byte(r.options.Password)) == 1
}

func (r *Registry) wait(ctx context.Context) error {
	r.mu.Lock()
	held := r.held
	r.mu.Unlock()
	if held == nil {
		return nil
	}
	select {
	case r.asked <- struct{}{}:
	default:
	}
	select {
	case <-held:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Hold makes the registry hold requests for layers until Release. The returned channel receives a
// value for each held request.
func (r *Registry) Hold() (asked <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held == nil {
		r.held = make(chan struct{})
	}
	return r.asked
}

// Release ends [Registry.Hold]: the registry processes the held requests.
func (r *Registry) Release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held != nil {
		close(r.held)
		r.held = nil
	}
}

// Push creates an image, stores it under repository:tag, and returns its references by tag and by
// digest.
func (r *Registry) Push(ctx context.Context, repository, tag string, p Picture) (tagged, pinned string, err error) {
	image, err := p.image()
	if err != nil {
		return "", "", fmt.Errorf("creating an image: %w", err)
	}
	ref, err := r.store(ctx, image, repository, tag)
	if err != nil {
		return "", "", err
	}
	digest, err := image.Digest()
	if err != nil {
		return "", "", fmt.Errorf("creating an image: %w", err)
	}
	return ref.Name(), ref.Context().Name() + "@" + digest.String(), nil
}

func (r *Registry) store(ctx context.Context, image v1.Image, repository, tag string) (name.Tag, error) {
	ref, err := name.NewTag(r.Host + "/" + repository + ":" + tag)
	if err != nil {
		return ref, fmt.Errorf("naming an image: %w", err)
	}
	auth := authn.Anonymous
	if r.options.Username != "" {
		auth = &authn.Basic{Username: r.options.Username, Password: r.options.Password}
	}
	if err := remote.Write(ref, image, remote.WithContext(ctx), remote.WithAuth(auth)); err != nil {
		return ref, fmt.Errorf("pushing the image %s: %w", ref, err)
	}
	return ref, nil
}

// Add stores an image under repository:tag and returns its name.
func (r *Registry) Add(ctx context.Context, image *Image, repository, tag string) (ref string, err error) {
	packed, err := image.pack()
	if err != nil {
		return "", fmt.Errorf("adding an image to a registry: %w", err)
	}
	stored, err := r.store(ctx, packed, repository, tag)
	return stored.Name(), err
}

// Take moves an image from an engine on this host to the registry, under repository:tag, and
// returns its name.
func (r *Registry) Take(ctx context.Context, engine *Engine, image, repository, tag string) (ref string, err error) {
	docker, err := engine.Client()
	if err != nil {
		return "", err
	}
	defer func() { _ = docker.Close() }()
	ref = r.Host + "/" + repository + ":" + tag
	if _, err := docker.ImageTag(ctx, client.ImageTagOptions{Source: image, Target: ref}); err != nil {
		return "", fmt.Errorf("naming the image %s: %w", ref, err)
	}
	auth, err := authconfig.Encode(engineregistry.AuthConfig{Username: r.options.Username, Password: r.options.Password})
	if err != nil {
		return "", fmt.Errorf("pushing the image %s: %w", ref, err)
	}
	pushed, err := docker.ImagePush(ctx, ref, client.ImagePushOptions{RegistryAuth: auth})
	if err != nil {
		return "", fmt.Errorf("pushing the image %s: %w", ref, err)
	}
	if err := errors.Join(importError(pushed), pushed.Close()); err != nil {
		return "", fmt.Errorf("pushing the image %s: %w", ref, err)
	}
	for _, name := range []string{ref, image} {
		if _, err := docker.ImageRemove(ctx, name, client.ImageRemoveOptions{Force: true}); err != nil {
			return "", fmt.Errorf("removing the image %s: %w", name, err)
		}
	}
	return ref, nil
}

func (p Picture) image() (v1.Image, error) {
	root := rootfs{entries: map[string]rootEntry{}}
	for name, content := range p.Files {
		root.script(path.Join("/", name), content)
	}
	if len(p.Pad) > 0 {
		root.text("/pad", string(p.Pad))
	}
	return root.pack(p.Arch, v1.Config{Env: []string{"PATH=/bin"}})
}
