package main

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"workflowagent/internal/dev/lab"
	"workflowagent/internal/retry"
)

// benchImage is the image in which the jobs of both sides run.
const benchImage = "workflowagent/bench:run"

// docker runs small jobs in containers, in turn on the product and with nothing
// but create and start.
func (b *bench) docker(ctx context.Context) (err error) {
	if reason, ok := lab.EngineAvailable(); !ok {
		b.skip(reason)
		return nil
	}
	engine, err := lab.NeedEngine(ctx, filepath.Join(b.dir, "e"))
	if err != nil {
		return err
	}
	defer func() {
		if stopErr := engine.Stop(); err == nil {
			err = stopErr
		}
	}()
	docker, err := engine.Client()
	if err != nil {
		return err
	}
	defer docker.Close()
	if err := b.makeImage(ctx, engine, docker); err != nil {
		return err
	}
	p, err := b.startProduct(ctx)
	if err != nil {
		return err
	}
	defer p.close()
	p.image = benchImage
	if err := p.startAgent(ctx, p.server.URL, "docker", map[string]string{"pull_image": "false"}, "DOCKER_HOST="+engine.Host); err != nil {
		return err
	}

	d := &dockerJobs{docker: docker, product: p}
	if err := d.both(ctx, &jobFigures{}, &jobFigures{}); err != nil { // warms up
		return err
	}
	var product, floor jobFigures
	for round := range b.rounds {
		for range pick(b, 8, 4) {
			if err := d.both(ctx, &product, &floor); err != nil {
				return err
			}
		}
		b.say("  round %d: to running %.0f and bare %.0f ms (medians so far)", round+1, median(product.start), median(floor.start))
	}
	b.add("queued to process running, beside create and start", "ms", product.start, floor.start, goal{addsAtMost, 15, false})
	b.add("process exit to finished, log complete", "ms", product.end, nil, goal{})
	b.add("between pre-run command and pulumi", "ms", product.between, nil, goal{})
	b.add("whole job", "ms", product.whole, nil, goal{})
	b.add("log lines missing at finished", "lines", product.missing, floor.missing, goal{atMost, 0, true})
	return nil
}

// makeImage makes an image with a shell, stamp, and stamp as pulumi.
func (b *bench) makeImage(ctx context.Context, engine *lab.Engine, docker *client.Client) error {
	shell, err := lab.ShellImage(ctx, engine.Host)
	if err != nil {
		return err
	}
	created, err := docker.ContainerCreate(ctx, client.ContainerCreateOptions{Config: &container.Config{Image: shell, Cmd: []string{"/bin/sh"}}})
	if err != nil {
		return fmt.Errorf("making the image of the jobs: %w", err)
	}
	var files bytes.Buffer
	if err := b.packImage(&files); err != nil {
		return err
	}
	_, err = docker.CopyToContainer(ctx, created.ID, client.CopyToContainerOptions{DestinationPath: "/", Content: &files})
	if err == nil {
		_, err = docker.ContainerCommit(ctx, created.ID, client.ContainerCommitOptions{Reference: benchImage})
	}
	if err == nil {
		_, err = docker.ContainerRemove(ctx, created.ID, client.ContainerRemoveOptions{Force: true})
	}
	if err != nil {
		return fmt.Errorf("making the image of the jobs: %w", err)
	}
	return nil
}

func (b *bench) packImage(w io.Writer) error {
	program, err := os.ReadFile(b.stamp())
	if err != nil {
		return fmt.Errorf("reading stamp: %w", err)
	}
	archive := tar.NewWriter(w)
	for _, file := range []struct {
		name string
		mode int64
		data []byte
	}{
		{"bin/stamp", 0o755, program},
		{"bin/pulumi", 0o755, program},
		{"Pulumi.yaml", 0o644, []byte("name: bench\nruntime: yaml\n")},
	} {
		if err := archive.WriteHeader(&tar.Header{Name: file.name, Mode: file.mode, Size: int64(len(file.data))}); err != nil {
			return fmt.Errorf("packing an image: %w", err)
		}
		if _, err := archive.Write(file.data); err != nil {
			return fmt.Errorf("packing an image: %w", err)
		}
	}
	return archive.Close()
}

// dockerJobs runs jobs in containers.
type dockerJobs struct {
	docker  *client.Client
	product *product
}

func (d *dockerJobs) both(ctx context.Context, product, floor *jobFigures) error {
	if err := d.deploy(ctx, product); err != nil {
		return err
	}
	if err := d.bare(ctx, floor); err != nil {
		return err
	}
	return retry.Sleep(ctx, jobPause)
}

// deploy runs one job on the product, whose stamps are in its log.
func (d *dockerJobs) deploy(ctx context.Context, f *jobFigures) error {
	job, t, err := runJob(ctx, d.product, fmt.Sprintf("/bin/stamp - %d", jobLines), "-", time.Millisecond, jobPatience)
	if err != nil {
		return err
	}
	missing, err := countLines(ctx, d.product, job, jobLines)
	if err != nil {
		return err
	}
	var stamps []times
	err = lines(ctx, d.product, job, func(line string) {
		if text, ok := strings.CutPrefix(line, "stamp "); ok {
			if s, err := parseTimes(text); err == nil {
				stamps = append(stamps, s)
			}
		}
	})
	if err != nil {
		return err
	}
	if len(stamps) != 2 {
		return fmt.Errorf("the log has %d stamps instead of 2", len(stamps))
	}
	t.first, t.last = stamps[0], stamps[1]
	f.add(t, missing)
	// The agent removes the container before it takes the next job.
	return until(ctx, 10*time.Millisecond, time.Minute, "the end of the job's container", func() (bool, error) {
		list, err := d.docker.ContainerList(ctx, client.ContainerListOptions{All: true})
		return len(list.Items) == 0, err
	})
}

// bare creates and starts a container that does the same.
func (d *dockerJobs) bare(ctx context.Context, f *jobFigures) (err error) {
	began := time.Now()
	yes := true
	created, err := d.docker.ContainerCreate(ctx, client.ContainerCreateOptions{
		Config:     &container.Config{Image: benchImage, Cmd: []string{"/bin/bash", "-c", fmt.Sprintf("/bin/stamp - %d", jobLines)}},
		HostConfig: &container.HostConfig{NetworkMode: "host", Init: &yes},
	})
	if err != nil {
		return fmt.Errorf("creating a bare container: %w", err)
	}
	defer func() {
		if _, removeErr := d.docker.ContainerRemove(ctx, created.ID, client.ContainerRemoveOptions{Force: true}); err == nil {
			err = removeErr
		}
	}()
	wait := d.docker.ContainerWait(ctx, created.ID, client.ContainerWaitOptions{Condition: container.WaitConditionNextExit})
	if _, err := d.docker.ContainerStart(ctx, created.ID, client.ContainerStartOptions{}); err != nil {
		return fmt.Errorf("starting a bare container: %w", err)
	}
	select {
	case err := <-wait.Error:
		return fmt.Errorf("waiting for a bare container: %w", err)
	case <-wait.Result:
	}
	logs, err := d.docker.ContainerLogs(ctx, created.ID, client.ContainerLogsOptions{ShowStdout: true})
	if err != nil {
		return fmt.Errorf("reading the log of a bare container: %w", err)
	}
	defer logs.Close()
	var out bytes.Buffer
	if _, err := stdcopy.StdCopy(&out, io.Discard, logs); err != nil {
		return fmt.Errorf("reading the log of a bare container: %w", err)
	}
	_, text, ok := strings.Cut(out.String(), "stamp ")
	if !ok {
		return fmt.Errorf("a bare container printed no stamp but %q", out.String())
	}
	stamp, err := parseTimes(text)
	if err != nil {
		return err
	}
	f.start = append(f.start, milliseconds(stamp.began.Sub(began)))
	f.missing = append(f.missing, float64(jobLines+1-strings.Count(out.String(), "\n")))
	return nil
}
