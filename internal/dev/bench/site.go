package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// jobs runs jobs.
type jobs interface {
	// enqueue starts a job that runs shell text with BENCH_STAMP set to file.
	enqueue(ctx context.Context, command, file string) (job string, err error)
	// finished reports whether the job has finished; a failed job is an error.
	finished(ctx context.Context, job string) (bool, error)
	// page returns the text of the job's log from token on, or from the beginning if token is "".
	// next is the token for the next page. At the end of the log, next equals token if the log
	// might still grow, and is "" otherwise.
	page(ctx context.Context, job, token string) (text, next string, err error)
}

// site is a server with one agent that runs jobs: the product or the baseline.
type site interface {
	jobs
	agentPID() int
	serverPID() int
	// last returns the file that a job's last process stamps.
	last(file string) string
	close()
}

// newClient returns a client of the load generator. It keeps all of its connections open.
func newClient() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 1024
	transport.MaxIdleConns = 0
	transport.Proxy = nil
	return &http.Client{Transport: transport, Timeout: time.Minute}
}

// call sends one request. It returns the body of a 200 response, or nil for a 204 response.
func call(ctx context.Context, client *http.Client, method, url string, header http.Header, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if header != nil {
		req.Header = header
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s %s: %w", method, url, err)
	case resp.StatusCode == http.StatusNoContent:
		return nil, nil
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s %s: %s: %s", method, url, resp.Status, strings.TrimSpace(string(data)))
	}
	return data, nil
}

type times struct{ began, ended time.Time }

// parseTimes parses the output of stamp: two times in nanoseconds.
func parseTimes(text string) (times, error) {
	fields := strings.Fields(text)
	if len(fields) != 2 {
		return times{}, fmt.Errorf("parsing the stamp %q: it must have two times", text)
	}
	var at [2]time.Time
	for i, field := range fields {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return times{}, fmt.Errorf("parsing a stamp: %w", err)
		}
		at[i] = time.Unix(0, n)
	}
	return times{at[0], at[1]}, nil
}

func readTimes(file string) (times, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return times{}, fmt.Errorf("reading the job's stamp: %w", err)
	}
	return parseTimes(string(data))
}

type jobTimes struct {
	sent, queued time.Time // when the enqueue request was sent, and when it returned
	first, last  times     // stamps of the job's first and last process
	finished     time.Time // according to the server
}

// waitForJob enqueues a job and waits until it has finished. It polls the server at the interval. The
// interval must be longer for long jobs, because polling also loads the server.
func waitForJob(ctx context.Context, s jobs, command, file string, interval, patience time.Duration) (job string, t jobTimes, err error) {
	t.sent = time.Now()
	if job, err = s.enqueue(ctx, command, file); err != nil {
		return "", t, err
	}
	t.queued = time.Now()
	err = until(ctx, interval, patience, "the job's exit", func() (bool, error) { return s.finished(ctx, job) })
	t.finished = time.Now()
	return job, t, err
}

// runJob is like waitForJob, and reads the job's stamps.
func runJob(ctx context.Context, s site, command, file string, interval, patience time.Duration) (job string, t jobTimes, err error) {
	if job, t, err = waitForJob(ctx, s, command, file, interval, patience); err != nil {
		return job, t, err
	}
	if t.first, err = readTimes(file); err != nil {
		return job, t, err
	}
	t.last, err = readTimes(s.last(file))
	return job, t, err
}

// countLines reads a job's log and counts the errors in its numbered lines from 0 to n: each line
// must occur exactly once and in order.
func countLines(ctx context.Context, s jobs, job string, n int) (wrong int, err error) {
	next := 0
	err = lines(ctx, s, job, func(line string) {
		i, ok := lineNumber(line)
		switch {
		case !ok:
		case i == next:
			next++
		case i > next:
			wrong += i - next // the gap
			next = i + 1
		default:
			wrong++ // repeated, or out of order
		}
	})
	return wrong + max(0, n-next), err
}

func lineNumber(line string) (int, bool) {
	number, rest, ok := strings.Cut(line, " ")
	if !ok || len(number) != 8 || !strings.HasPrefix(rest, "the quick") {
		return 0, false
	}
	i, err := strconv.Atoi(number)
	return i, err == nil
}

func lines(ctx context.Context, s jobs, job string, f func(line string)) error {
	for token, begun := "", ""; ; {
		text, next, err := s.page(ctx, job, token)
		if err != nil {
			return err
		}
		begun = eachLine(begun+text, f)
		if next == "" || next == token && text == "" {
			if begun != "" {
				f(begun)
			}
			return nil
		}
		token = next
	}
}

// eachLine calls f with each whole line of text and returns the rest.
func eachLine(text string, f func(line string)) (rest string) {
	for {
		line, after, whole := strings.Cut(text, "\n")
		if !whole {
			return text
		}
		f(line)
		text = after
	}
}
