package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/client"
)

// Exhibit is data that is visible outside a job, where the job's secrets must not appear.
type Exhibit struct {
	Where   string
	Content []byte
	Pid     int // the process ID, or 0
}

// Visible returns an engine's reports on the containers and volumes with a label: descriptions,
// processes, stored output, and all events since a time.
func (e *Engine) Visible(ctx context.Context, label string, since time.Time) ([]Exhibit, error) {
	docker, err := e.Client()
	if err != nil {
		return nil, err
	}
	defer func() { _ = docker.Close() }()
	var seen []Exhibit
	filters := client.Filters{}.Add("label", label)
	list, err := docker.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: filters})
	if err != nil {
		return nil, fmt.Errorf("listing containers: %w", err)
	}
	for _, c := range list.Items {
		found, err := docker.ContainerInspect(ctx, c.ID, client.ContainerInspectOptions{})
		if err != nil {
			return nil, fmt.Errorf("inspecting the container %s: %w", c.ID, err)
		}
		top, err := docker.ContainerTop(ctx, c.ID, client.ContainerTopOptions{Arguments: []string{"auxww"}})
		if err != nil {
			return nil, fmt.Errorf("listing the processes of the container %s: %w", c.ID, err)
		}
		processes, err := json.Marshal(top)
		if err != nil {
			return nil, err
		}
		logs, err := docker.ContainerLogs(ctx, c.ID, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true})
		if err != nil {
			return nil, fmt.Errorf("reading the output of the container %s: %w", c.ID, err)
		}
		var output bytes.Buffer
		_, err = stdcopy.StdCopy(&output, &output, logs)
		if err := errors.Join(err, logs.Close()); err != nil {
			return nil, fmt.Errorf("reading the output of the container %s: %w", c.ID, err)
		}
		seen = append(seen,
			Exhibit{Where: "docker inspect", Content: found.Raw},
			Exhibit{Where: "docker top", Content: processes},
			Exhibit{Where: "docker logs", Content: output.Bytes()})
	}
	volumes, err := docker.VolumeList(ctx, client.VolumeListOptions{Filters: filters})
	if err != nil {
		return nil, fmt.Errorf("listing volumes: %w", err)
	}
	for _, v := range volumes.Items {
		description, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		seen = append(seen, Exhibit{Where: "docker volume inspect", Content: description})
	}
	events, err := events(ctx, docker, since)
	return append(seen, Exhibit{Where: "docker events", Content: events}), err
}

func events(ctx context.Context, docker *client.Client, since time.Time) ([]byte, error) {
	stream := docker.Events(ctx, client.EventsListOptions{
		Since: strconv.FormatInt(since.Unix(), 10), Until: strconv.FormatInt(time.Now().Unix()+1, 10),
	})
	var out bytes.Buffer
	for {
		select {
		case message := <-stream.Messages:
			line, err := json.Marshal(message)
			if err != nil {
				return nil, err
			}
			out.Write(append(line, '\n'))
		case err := <-stream.Err:
			if errors.Is(err, io.EOF) {
				return out.Bytes(), nil
			}
			return nil, fmt.Errorf("reading the engine's events: %w", err)
		}
	}
}

// Processes returns the arguments of all processes on this machine, as ps prints them, and their
// environments if readable.
func Processes() []Exhibit {
	var seen []Exhibit
	for _, name := range []string{"cmdline", "environ"} {
		files, _ := filepath.Glob("/proc/[0-9]*/" + name) // empty if the directory does not exist
		for _, file := range files {
			content, err := os.ReadFile(file)
			pid, numberErr := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			if err != nil || numberErr != nil {
				continue // exited, or unreadable
			}
			seen = append(seen, Exhibit{Where: file, Content: content, Pid: pid})
		}
	}
	return seen
}
