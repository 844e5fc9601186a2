package docker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/moby/moby/api/types/jsonstream"
	"github.com/moby/moby/client"

	"workflowagent/internal/words"
	"workflowagent/internal/workflow"
)

const (
	defaultPullStall = 5 * time.Minute
	reportEvery      = 10 * time.Second
)

type image struct {
	ref  string
	id   string
	arch string // GOARCH value, such as amd64
	user string // the image's configured user; "" means root
}

func (e *Executor) ensureImage(ctx context.Context, engine *client.Client, want *workflow.Image, progress func(string)) (image, error) {
	if want == nil || want.Reference == "" {
		return image{}, failure(workflow.ReasonImage, "The job does not specify an image", nil)
	}
	ref, err := name.ParseReference(want.Reference, name.WeakValidation)
	if err != nil || strings.HasPrefix(want.Reference, "sha256:") {
		return image{}, failure(workflow.ReasonImage, fmt.Sprintf("%q is not the name of an image", want.Reference), nil)
	}
	if e.opts.PullImage {
		progress("Pulling image " + want.Reference)
		if err := e.pull(ctx, engine, ref, want, progress); err != nil {
			return image{}, err
		}
	}
	found, err := engine.ImageInspect(ctx, byName(want.Reference))
	switch {
	case errdefs.IsNotFound(err) && e.opts.PullImage:
		return image{}, failure(workflow.ReasonImage, "The image "+want.Reference+" is not on the agent's Docker Engine although it was pulled: it was removed immediately, or the engine stopped the pull", nil)
	case errdefs.IsNotFound(err):
		return image{}, failure(workflow.ReasonImage, fmt.Sprintf("The image %s is not on the agent's Docker Engine, and pull_image is false: pull it there, or set pull_image to true", want.Reference), nil)
	case err != nil:
		return image{}, failure(workflow.ReasonImage, "The image "+want.Reference+" could not be inspected", err)
	case found.Os != "" && found.Os != "linux":
		return image{}, failure(workflow.ReasonImage, fmt.Sprintf("The image %s is for %s, but jobs run in Linux containers", want.Reference, found.Os), nil)
	}
	img := image{ref: want.Reference, id: found.ID, arch: found.Architecture}
	if found.Config != nil {
		img.user = found.Config.User
	}
	return img, nil
}

// byName returns a reference that the engine cannot interpret as the prefix of an image ID. Such a
// prefix would select any image on the host, regardless of allowed_images.
func byName(reference string) string {
	if strings.ContainsAny(reference, ":@/") {
		return reference
	}
	return reference + ":latest"
}

// pull pulls the image. It stops only if the pull makes no progress for PullStall.
func (e *Executor) pull(ctx context.Context, engine *client.Client, ref name.Reference, want *workflow.Image, progress func(string)) error {
	login, err := e.logIn(ctx, ref, want.Credentials)
	if err != nil {
		return failure(workflow.ReasonImage, unpulled(want)+": reading the registry's credentials on the agent's host failed", err)
	}
	stalled := fmt.Errorf("no data arrived for %s", e.opts.PullStall)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(e.opts.PullStall, func() { cancel(stalled) })
	defer watchdog.Stop()
	err = e.receive(ctx, engine, want.Reference, login, progress, func() { watchdog.Reset(e.opts.PullStall) })
	switch {
	case ctx.Err() != nil:
		return failure(workflow.ReasonImage, unpulled(want), context.Cause(ctx))
	case err != nil:
		return pullFailure(ref, want, login, err)
	}
	return nil
}

// receive pulls the image and calls received for each message from the engine.
func (e *Executor) receive(ctx context.Context, engine *client.Client, reference string, login login, progress func(string), received func()) error {
	stream, err := engine.ImagePull(ctx, reference, client.ImagePullOptions{RegistryAuth: login.encoded})
	if err != nil {
		return err
	}
	defer stream.Close()
	report := pullReport{progress: progress, last: time.Now(), layers: map[string]jsonstream.Progress{}}
	for message, err := range stream.JSONMessages(ctx) {
		received()
		switch {
		case err != nil:
			return err
		case message.Error != nil:
			return message.Error
		}
		report.message(message)
	}
	return nil
}

func unpulled(want *workflow.Image) string {
	return "The image " + want.Reference + " could not be pulled"
}

func pullFailure(ref name.Reference, want *workflow.Image, login login, err error) error {
	what := unpulled(want)
	server := ref.Context().RegistryStr()
	text := strings.ToLower(err.Error())
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(text, word) })
	}
	switch {
	case has("no basic auth credentials", "unauthorized", "denied", "authentication required", "incorrect username or password"):
		what += fmt.Sprintf(": the registry %s rejects the agent with %s, or has no such image", server, login.origin)
	case has("manifest unknown", "name unknown", "repository does not exist", "not found"):
		what += ": the registry " + server + " does not have it"
	case has("no matching manifest", "no match for platform"):
		what += ": it is not available for the engine's platform"
	case has("connection refused", "no such host", "i/o timeout", "no route to host", "network is unreachable", "tls handshake timeout"):
		what += ": the registry " + server + " cannot be reached from the Docker Engine; if the engine has the image, pull_image: false uses that one"
	}
	return failure(workflow.ReasonImage, what, err)
}

type pullReport struct {
	progress func(string)
	last     time.Time
	layers   map[string]jsonstream.Progress
}

func (r *pullReport) message(m jsonstream.Message) {
	if m.ID == "" { // the message concerns the whole image, such as "Digest: …" or "Status: …"
		if m.Status != "" {
			r.progress(engineText(m.Status))
		}
		return
	}
	if m.Status == "Downloading" && m.Progress != nil {
		r.layers[m.ID] = *m.Progress
	}
	if time.Since(r.last) < reportEvery {
		return
	}
	r.last = time.Now()
	var current, total int64
	for _, l := range r.layers {
		current, total = current+l.Current, total+l.Total
	}
	if total > 0 {
		r.progress(fmt.Sprintf("Downloaded %s of %s", words.Bytes(current), words.Bytes(total)))
	}
}
