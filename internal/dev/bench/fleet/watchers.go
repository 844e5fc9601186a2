package fleet

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"time"

	"workflowagent/internal/dev/bench/figures"
	"workflowagent/internal/protocol"
	"workflowagent/internal/retry"
	"workflowagent/internal/workflow"
)

// pagesPerUser is less than the number of open pages that the server permits for each user.
const pagesPerUser = 40

// Watchers measures the log of a running deployment that many pages show: a permalink into a long
// log, the delay of a line in a page and at the API, and the memory of open pages.
func (b *Bench) Watchers(ctx context.Context) error {
	lines, pages, rounds := pick(b, 1_000_000, 100_000), pick(b, 500, 80), pick(b, 100, 20)
	p, err := b.startProduct(ctx, "", 1)
	if err != nil {
		return err
	}
	defer p.close()
	if err := p.enqueue(ctx, 0); err != nil {
		return err
	}
	claimed, err := p.poll(ctx, 0)
	if err != nil {
		return err
	}
	j, ok := claimed.(*productJob)
	if !ok {
		return errors.New("the server handed out no job")
	}
	if err := j.start(ctx); err != nil {
		return err
	}
	// The API returns the lines of a step when the previous one has ended.
	now := time.Now()
	for step, status := range []workflow.StepStatus{workflow.StepSucceeded, workflow.StepRunning} {
		if err := j.client.StepStatus(ctx, step, protocol.StepStatusRequest{Status: status, StartedAt: &now}); err != nil {
			return err
		}
	}
	if err := j.writeLines(ctx, numberedLines(0, lines)); err != nil {
		return err
	}
	session, err := p.signIn(ctx, p.server.Token)
	if err != nil {
		return err
	}
	deployment := "/" + p.server.Organization + "/" + project + "/" + p.stack(0) + "/deployments/1"
	if err := b.permalink(ctx, session, deployment, lines); err != nil {
		return err
	}

	before, err := figures.Memory(p.pid(), "VmRSS")
	if err != nil {
		return err
	}
	w := &watchers{grown: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(ctx)
	defer w.done.Wait()
	defer cancel()
	for opened := 0; opened < pages; opened += pagesPerUser {
		if session, err = b.newUser(ctx, p, fmt.Sprintf("watcher%d", opened)); err != nil {
			return err
		}
		for range min(pagesPerUser, pages-opened) {
			if err := w.open(ctx, session, deployment+"?view=log"); err != nil {
				return err
			}
		}
	}
	if _, err := w.wait(ctx, pages, int64(lines)); err != nil {
		return err
	}
	// Garbage of the first rendering is collected meanwhile.
	if err := retry.Sleep(ctx, pick(b, 30*time.Second, 2*time.Second)); err != nil {
		return err
	}
	after, err := figures.Memory(p.pid(), "VmRSS")
	if err != nil {
		return err
	}
	b.Add(fmt.Sprintf("memory of the server per open page, %d pages of a running deployment", pages), "KB",
		[]float64{float64(after-before) / 1000 / float64(pages)}, nil, figures.AtMost(100, false))

	var api, page, all []float64
	reader, err := p.tail(ctx, j, int64(lines))
	if err != nil {
		return err
	}
	for i := range rounds {
		sent := time.Now()
		if err := j.writeLines(ctx, numberedLines(lines+i, 1)); err != nil {
			return err
		}
		arrived := make(chan time.Time, 1)
		go func() {
			at, err := reader.next(ctx)
			if err == nil {
				arrived <- at
			}
			close(arrived)
		}()
		last, err := w.wait(ctx, pages, int64(lines+i+1))
		if err != nil {
			return err
		}
		all = append(all, milliseconds(last.Sub(sent)))
		// One of the pages then reads the line.
		first := w.first(int64(lines + i + 1))
		began := time.Now()
		if _, err := session.read(ctx, fmt.Sprintf("%s/log/%d?from=%d&count=1", deployment, logStep+1, lines+i), "application/json"); err != nil {
			return err
		}
		page = append(page, milliseconds(first.Sub(sent)+time.Since(began)))
		at, ok := <-arrived
		if !ok {
			return errors.New("the API did not return a line")
		}
		api = append(api, milliseconds(at.Sub(sent)))
	}
	what := fmt.Sprintf("line written to visible in a page, with %d open pages", pages)
	b.Add(what+", p50; at the API", "ms", []float64{figures.Median(page)}, []float64{figures.Median(api)}, figures.Goal{})
	b.Add(what+", p95; at the API", "ms", []float64{figures.Quantile(page, 0.95)}, []float64{figures.Quantile(api, 0.95)}, figures.Goal{})
	b.Add("the page behind the API, p95", "ms", []float64{figures.Quantile(page, 0.95) - figures.Quantile(api, 0.95)}, nil, figures.AtMost(100, false))
	b.Add("line written to announced in all of them, p95", "ms", []float64{figures.Quantile(all, 0.95)}, nil, figures.Goal{})
	return nil
}

// permalink measures the time until a line in the middle of a long log is readable: the page, then the
// lines.
func (b *Bench) permalink(ctx context.Context, session *browser, deployment string, lines int) error {
	var first, again []float64
	for i := range 10 {
		began := time.Now()
		if _, err := session.read(ctx, deployment+"?view=log", "text/html"); err != nil {
			return err
		}
		text, err := session.read(ctx, fmt.Sprintf("%s/log/%d?from=%d&count=500", deployment, logStep+1, lines/2), "application/json")
		if err != nil {
			return err
		}
		if want := fmt.Sprintf("%07d ", lines/2); !strings.Contains(string(text), want) {
			return fmt.Errorf("line %s is missing in the log", want)
		}
		if took := milliseconds(time.Since(began)); i == 0 {
			first = append(first, took)
		} else {
			again = append(again, took)
		}
	}
	b.Add(fmt.Sprintf("first lines at a permalink into %d, which are indexed", lines), "ms", first, nil, figures.AtMost(500, false))
	b.Add("the same again, p95", "ms", []float64{figures.Quantile(again, 0.95)}, nil, figures.AtMost(500, false))
	return nil
}

var tokenText = regexp.MustCompile(`pul-[0-9a-f]{40,}`)

// newUser creates a user and signs the user in.
func (b *Bench) newUser(ctx context.Context, p *product, login string) (*browser, error) {
	cmd := exec.CommandContext(ctx, b.Server, "user", "create", login, "--data-dir", p.server.DataDir, "--member-of", p.server.Organization)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("creating a user: %w\n%s", err, out)
	}
	return p.signIn(ctx, tokenText.FindString(string(out)))
}

// writeLines appends lines to the log.
func (j *productJob) writeLines(ctx context.Context, lines [][]byte) error {
	const most = 256 << 10
	for at := 0; at < len(lines); {
		framed := j.framed[:0]
		for at < len(lines) && len(framed) < most {
			framed = protocol.AppendFrame(framed, time.Now(), false, lines[at])
			at++
		}
		if err := j.send(ctx, framed); err != nil {
			return err
		}
	}
	return nil
}

// watchers are open pages of a running deployment.
type watchers struct {
	done  sync.WaitGroup
	mu    sync.Mutex
	lines []int64     // number of lines that each page knows
	at    []time.Time // and since when
	err   error
	grown chan struct{} // signals a change; capacity 1
}

// open opens a page's event stream.
func (w *watchers) open(ctx context.Context, session *browser, path string) error {
	resp, err := session.open(ctx, path, "text/event-stream")
	if err != nil {
		return err
	}
	w.mu.Lock()
	n := len(w.lines)
	w.lines, w.at = append(w.lines, 0), append(w.at, time.Time{})
	w.mu.Unlock()
	w.done.Go(func() {
		defer func() { _ = resp.Body.Close() }()
		err := w.follow(n, resp)
		if ctx.Err() == nil {
			w.mu.Lock()
			w.err = errors.Join(w.err, fmt.Errorf("the stream of page %d ended: %w", n, err))
			w.mu.Unlock()
			w.signal()
		}
	})
	return nil
}

// follow notes the numbers of lines that the events of a page contain.
func (w *watchers) follow(n int, resp *http.Response) error {
	in := bufio.NewReaderSize(resp.Body, 4096)
	isLog := false
	for {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			continue // of an element
		}
		if err != nil {
			return err
		}
		text := strings.TrimSpace(string(line))
		if name, ok := strings.CutPrefix(text, "event: "); ok {
			isLog = name == "log"
			continue
		}
		data, ok := strings.CutPrefix(text, "data: ")
		if !ok || !isLog {
			continue
		}
		var event struct{ Step, Lines int64 }
		if err := json.Unmarshal([]byte(data), &event); err != nil {
			return err
		}
		if event.Step != logStep+1 {
			continue
		}
		w.mu.Lock()
		w.lines[n], w.at[n] = event.Lines, time.Now()
		w.mu.Unlock()
		w.signal()
	}
}

func (w *watchers) signal() {
	select {
	case w.grown <- struct{}{}:
	default:
	}
}

// wait waits until all pages know a number of lines, and returns the time of the last one.
func (w *watchers) wait(ctx context.Context, pages int, lines int64) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		w.mu.Lock()
		known, last, err := 0, time.Time{}, w.err
		for i, n := range w.lines {
			if n < lines {
				continue
			}
			known++
			if w.at[i].After(last) {
				last = w.at[i]
			}
		}
		w.mu.Unlock()
		if err != nil || known >= pages {
			return last, err
		}
		select {
		case <-w.grown:
		case <-ctx.Done():
			return last, fmt.Errorf("%d of %d pages know %d lines: %w", known, pages, lines, ctx.Err())
		}
	}
}

// first returns the time at which the first page knew a number of lines.
func (w *watchers) first(lines int64) (first time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, n := range w.lines {
		if n >= lines && (first.IsZero() || w.at[i].Before(first)) {
			first = w.at[i]
		}
	}
	return first
}

// tail reads the log at its end, as a client of the API that follows it.
type tail struct {
	p     *product
	path  string
	token string
}

func (p *product) tail(ctx context.Context, j *productJob, lines int64) (*tail, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	t := &tail{p: p, path: p.deployments(j.stack) + "/" + j.deployment + "/logs"}
	for seen := int64(0); seen < lines; {
		n, err := t.read(ctx)
		if err != nil {
			return nil, err
		}
		seen += n
	}
	return t, nil
}

// read returns the number of lines in the next page of the log.
func (t *tail) read(ctx context.Context) (int64, error) {
	var page struct {
		Lines     []struct{ Header string }
		NextToken string
	}
	if err := t.p.call(ctx, http.MethodGet, t.path+"?continuationToken="+url.QueryEscape(t.token), nil, &page); err != nil {
		return 0, err
	}
	if page.NextToken != "" {
		t.token = page.NextToken
	}
	n := int64(0)
	for _, line := range page.Lines {
		if line.Header == "" {
			n++
		}
	}
	return n, nil
}

// next waits for a line, and returns the time at which it was read.
func (t *tail) next(ctx context.Context) (time.Time, error) {
	for {
		n, err := t.read(ctx)
		if err != nil || n > 0 {
			return time.Now(), err
		}
	}
}
