package docker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/moby/moby/api/pkg/authconfig"
	"github.com/moby/moby/api/types/jsonstream"
	"github.com/moby/moby/api/types/registry"
	"github.com/moby/moby/client"

	"workflowagent/internal/workflow"
)

const (
	// pullStall is how long a pull may make no progress at all.
	pullStall = 5 * time.Minute
	// reportEvery is how often the progress of a pull is told.
	reportEvery = 10 * time.Second
)

// image is what has to be known of a job's image.
type image struct {
	ref  string
	id   string
	arch string // amd64, arm64, …
	user string // as the image says it; "" is root
}

// ensureImage pulls the image if that is the policy, and looks at it.
func (e *Executor) ensureImage(ctx context.Context, engine *client.Client, want *workflow.Image, progress func(string)) (image, error) {
	if want == nil || want.Reference == "" {
		return image{}, failure(workflow.ReasonImage, "The job names no image to run in", nil)
	}
	ref, err := name.ParseReference(want.Reference, name.WeakValidation)
	if err != nil {
		return image{}, failure(workflow.ReasonImage, fmt.Sprintf("%q is not the name of an image", want.Reference), nil)
	}
	if e.opts.PullImage {
		progress("Pulling image " + want.Reference)
		if err := pull(ctx, engine, ref, want, progress); err != nil {
			return image{}, err
		}
	}
	found, err := engine.ImageInspect(ctx, want.Reference)
	switch {
	case errdefs.IsNotFound(err):
		return image{}, failure(workflow.ReasonImage, fmt.Sprintf("The image %s is not on the agent's Docker Engine, and pull_image is false: pull it there, or set pull_image to true", want.Reference), nil)
	case err != nil:
		return image{}, failure(workflow.ReasonImage, "The image "+want.Reference+" could not be looked at", err)
	case found.Os != "" && found.Os != "linux":
		return image{}, failure(workflow.ReasonImage, fmt.Sprintf("The image %s is for %s, and jobs run in Linux containers", want.Reference, found.Os), nil)
	}
	img := image{ref: want.Reference, id: found.ID, arch: found.Architecture}
	if found.Config != nil {
		img.user = found.Config.User
	}
	return img, nil
}

// pull pulls the image. The pull lasts as long as it makes progress.
func pull(ctx context.Context, engine *client.Client, ref name.Reference, want *workflow.Image, progress func(string)) error {
	what := "The image " + want.Reference + " could not be pulled"
	auth, err := credentials(ctx, ref, want.Credentials)
	if err != nil {
		return failure(workflow.ReasonImage, what+": the registry's credentials on the agent's host cannot be read", err)
	}
	stalled := fmt.Errorf("nothing arrived for %s", pullStall)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(pullStall, func() { cancel(stalled) })
	defer watchdog.Stop()

	stream, err := engine.ImagePull(ctx, want.Reference, client.ImagePullOptions{RegistryAuth: auth})
	if err != nil {
		return failure(workflow.ReasonImage, what, cause(ctx, err))
	}
	defer stream.Close()
	report := newPullReport(progress)
	for message, err := range stream.JSONMessages(ctx) {
		watchdog.Reset(pullStall)
		switch {
		case err != nil:
			return failure(workflow.ReasonImage, what, cause(ctx, err))
		case message.Error != nil:
			return failure(workflow.ReasonImage, what, message.Error)
		}
		report.message(message)
	}
	if err := context.Cause(ctx); err != nil {
		return failure(workflow.ReasonImage, what, err)
	}
	return nil
}

// cause returns why ctx ended, if it did, instead of what that broke.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// credentials returns the job's own credentials for the registry, else those of
// the docker configuration and credential helpers of the agent's user, encoded
// for the engine.
func credentials(ctx context.Context, ref name.Reference, own *workflow.ImageCredentials) (string, error) {
	server := ref.Context().RegistryStr()
	if server == name.DefaultRegistry {
		server = authn.DefaultAuthKey
	}
	config := registry.AuthConfig{ServerAddress: server}
	if own != nil && (own.Username != "" || own.Password != "") {
		config.Username, config.Password = own.Username, own.Password
		return authconfig.Encode(config)
	}
	found, err := authn.Resolve(ctx, authn.DefaultKeychain, ref.Context())
	if err != nil {
		return "", err
	}
	if found == authn.Anonymous {
		return "", nil
	}
	auth, err := authn.Authorization(ctx, found)
	if err != nil {
		return "", err
	}
	if auth == nil || *auth == (authn.AuthConfig{}) {
		return "", errors.New("they are empty")
	}
	config.Username, config.Password = auth.Username, auth.Password
	config.IdentityToken, config.RegistryToken = auth.IdentityToken, auth.RegistryToken
	return authconfig.Encode(config)
}

// pullReport turns the engine's flood of messages into a line now and then.
type pullReport struct {
	progress func(string)
	last     time.Time
	layers   map[string]layer
}

type layer struct{ current, total int64 }

func newPullReport(progress func(string)) *pullReport {
	return &pullReport{progress: progress, last: time.Now(), layers: map[string]layer{}}
}

func (r *pullReport) message(m jsonstream.Message) {
	if m.ID == "" { // of the whole image: Digest: …, Status: …
		if m.Status != "" {
			r.progress(oneLine(m.Status))
		}
		return
	}
	if m.Status == "Downloading" && m.Progress != nil {
		r.layers[m.ID] = layer{m.Progress.Current, m.Progress.Total}
	}
	if time.Since(r.last) < reportEvery {
		return
	}
	r.last = time.Now()
	var sum layer
	for _, l := range r.layers {
		sum.current += l.current
		sum.total += l.total
	}
	if sum.total > 0 {
		r.progress(fmt.Sprintf("Downloaded %d of %d MB", sum.current>>20, sum.total>>20))
	}
}
