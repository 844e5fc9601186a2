package pods

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
)

// Bare runs jobs in pods without the product. It keeps no log after the pod.
type Bare struct {
	place *Place
	// helpers is whether a pod also has the containers that the product adds: one that copies the
	// runner before the job, and one that runs next to it.
	helpers bool

	mu   sync.Mutex
	jobs map[string]*bareJob
}

// bareJob follows the output of a pod.
type bareJob struct {
	cancel context.CancelFunc
	done   chan struct{}

	mu   sync.Mutex
	text strings.Builder
	err  error
}

// Bare returns the baseline: pods with one container, or pods with the product's containers.
func (p *Place) Bare(helpers bool) *Bare {
	return &Bare{place: p, helpers: helpers, jobs: map[string]*bareJob{}}
}

// Create creates a pod that runs shell text.
func (b *Bare) Create(ctx context.Context, command string) (name string, err error) {
	name = fmt.Sprintf("bare-%d", b.place.number.Add(1))
	shell := func(name, script string) map[string]any {
		return map[string]any{
			"name": name, "image": b.place.Image, "imagePullPolicy": "Never", "command": []string{"/bin/sh", "-c", script},
			"volumeMounts": []map[string]any{{"name": "runner", "mountPath": "/mnt/runner"}},
		}
	}
	spec := map[string]any{
		"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "enableServiceLinks": false, "automountServiceAccountToken": false,
		"containers": []any{shell("main", command)},
		"volumes":    []map[string]any{{"name": "runner", "emptyDir": map[string]any{}}},
	}
	if b.helpers {
		sidecar := shell("sidecar", "trap exit TERM; sleep 86400 & wait")
		sidecar["restartPolicy"] = "Always"
		spec["initContainers"] = []any{shell("copy", "exec cp "+runnerCopy+" /mnt/runner/"), sidecar}
	}
	pod := map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name}, "spec": spec}
	return name, b.place.call(ctx, http.MethodPost, "pods", pod, nil)
}

// state returns whether the pod's container has started, and whether it has ended. A failed one is
// an error.
func (b *Bare) state(ctx context.Context, name string) (started, ended bool, err error) {
	var pod struct {
		Status struct {
			ContainerStatuses []struct {
				State struct {
					Running    *struct{} `json:"running"`
					Terminated *struct {
						ExitCode int    `json:"exitCode"`
						Reason   string `json:"reason"`
						Message  string `json:"message"`
					} `json:"terminated"`
				} `json:"state"`
			} `json:"containerStatuses"`
		} `json:"status"`
	}
	if err := b.place.call(ctx, http.MethodGet, "pods/"+name, nil, &pod); err != nil {
		return false, false, err
	}
	for _, status := range pod.Status.ContainerStatuses {
		switch end := status.State.Terminated; {
		case end != nil && end.ExitCode != 0:
			return true, true, fmt.Errorf("pod %s exited with code %d: %s %s", name, end.ExitCode, end.Reason, end.Message)
		case end != nil:
			return true, true, nil
		case status.State.Running != nil:
			return true, false, nil
		}
	}
	return false, false, nil
}

// Ended reports whether the pod's job has ended. A failed one is an error.
func (b *Bare) Ended(ctx context.Context, name string) (bool, error) {
	_, ended, err := b.state(ctx, name)
	return ended, err
}

// Text returns the pod's output from an offset on, and whether it is complete. The output of a
// running pod is complete as far as it has arrived.
func (b *Bare) Text(ctx context.Context, name string, offset int) (text string, complete bool, err error) {
	b.mu.Lock()
	j := b.jobs[name]
	b.mu.Unlock()
	if j == nil {
		started, ended, err := b.state(ctx, name)
		if !started || err != nil {
			return "", false, err
		}
		if j = b.follow(ctx, name); ended {
			<-j.done
		}
	}
	select {
	case <-j.done:
		complete = true
	default:
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()[offset:], complete, j.err
}

func (b *Bare) follow(ctx context.Context, name string) *bareJob {
	ctx, cancel := context.WithCancel(ctx)
	j := &bareJob{cancel: cancel, done: make(chan struct{})}
	b.mu.Lock()
	b.jobs[name] = j
	b.mu.Unlock()
	go func() {
		defer close(j.done)
		err := j.read(ctx, b.place, name)
		j.mu.Lock()
		defer j.mu.Unlock()
		j.err = err
	}()
	return j
}

func (j *bareJob) read(ctx context.Context, p *Place, name string) error {
	stream, err := p.stream(ctx, "pods/"+name+"/log?follow=true&container=main")
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	for lines := bufio.NewReader(stream); ; {
		line, err := lines.ReadString('\n')
		j.mu.Lock()
		j.text.WriteString(line)
		j.mu.Unlock()
		if err != nil { // io.EOF, or canceled by Remove
			return nil
		}
	}
}

// Remove begins to delete a pod.
func (b *Bare) Remove(ctx context.Context, name string) error {
	b.mu.Lock()
	j := b.jobs[name]
	delete(b.jobs, name)
	b.mu.Unlock()
	if j != nil {
		j.cancel()
		<-j.done
	}
	options := map[string]any{"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 1}
	return b.place.call(ctx, http.MethodDelete, "pods/"+name, options, nil)
}
