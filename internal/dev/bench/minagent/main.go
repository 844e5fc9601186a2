// Command minagent is the baseline for the agent benchmarks. It long-polls minserver, runs each job
// in a shell, up to a given number concurrently, and posts the raw output in chunks of at most 1
// MiB within 50 ms. It has no spool, masking, timestamps, isolation, lease or TLS, because it
// measures the minimum cost.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

func main() {
	slots, err := 0, error(nil)
	if len(os.Args) == 3 {
		slots, err = strconv.Atoi(os.Args[2])
	}
	if slots < 1 || err != nil {
		fmt.Fprintln(os.Stderr, "usage: minagent URL SLOTS")
		os.Exit(2)
	}
	var workers sync.WaitGroup
	for range slots {
		workers.Go(func() { work(os.Args[1]) })
	}
	workers.Wait()
}

func work(base string) {
	for {
		if err := once(base); err != nil {
			fmt.Fprintln(os.Stderr, "minagent:", err)
			<-time.After(time.Second)
		}
	}
}

var client = &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}

func once(base string) error {
	resp, err := client.Get(base + "/poll") //nolint:noctx // the client has a timeout
	if err != nil {
		return err
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || resp.StatusCode == http.StatusNoContent {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("poll: %s", resp.Status)
	}
	id, command, _ := strings.Cut(string(body), "\n")
	return run(base, id, command)
}

func run(base, id, command string) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd := exec.Command("bash", "-c", command) //nolint:noctx // the baseline never cancels
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		return err
	}
	_ = w.Close()
	shipped := make(chan error, 1)
	go func() { shipped <- ship(base, id, r) }()
	code := 0
	if err := cmd.Wait(); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			return err
		}
		code = exit.ExitCode()
	}
	if err := <-shipped; err != nil {
		return err
	}
	return post(base+"/finish?job="+id, strings.NewReader(fmt.Sprint(code)))
}

// ship posts a job's output. It reads while it posts, so that the job blocks only while 1 MiB is
// unsent.
func ship(base, id string, r *os.File) error {
	defer func() { _ = r.Close() }()
	chunks := make(chan []byte, 16)
	go func() {
		defer close(chunks)
		for {
			buf := make([]byte, 64<<10)
			n, err := r.Read(buf)
			if n > 0 {
				chunks <- buf[:n]
			}
			if err != nil {
				return
			}
		}
	}()
	var pending bytes.Buffer
	timer := time.NewTimer(time.Hour)
	for open := true; open || pending.Len() > 0; {
		select {
		case chunk, ok := <-chunks:
			if !ok {
				open, chunks = false, nil
			} else {
				if pending.Len() == 0 {
					timer.Reset(50 * time.Millisecond)
				}
				pending.Write(chunk)
				if pending.Len() < 960<<10 {
					continue
				}
			}
		case <-timer.C:
		}
		if pending.Len() > 0 {
			if err := post(base+"/log?job="+id, bytes.NewReader(pending.Bytes())); err != nil {
				return err
			}
			pending.Reset()
		}
	}
	return nil
}

func post(url string, body io.Reader) error {
	resp, err := client.Post(url, "application/octet-stream", body) //nolint:noctx // the client has a timeout
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	return nil
}
