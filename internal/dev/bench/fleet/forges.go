package fleet

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"workflowagent/internal/dev/bench/figures"
	"workflowagent/internal/retry"
)

// Forges measures the polls of many repositories, and then webhooks while deployments run.
func (b *Bench) Forges(ctx context.Context) error {
	stacks, hosts := pick(b, 1000, 200), pick(b, 10, 2)
	interval := pick(b, time.Minute, 12*time.Second) // the same number of polls per second
	const tags = 9
	p, err := b.startProduct(ctx, "", stacks, "--forge-poll", interval.String())
	if err != nil {
		return err
	}
	defer p.close()
	list, err := p.startForges(ctx, hosts, stacks, tags)
	if err != nil {
		return err
	}
	defer func() {
		for _, f := range list {
			f.host.close()
		}
	}()
	if err := b.polls(ctx, p, list, stacks, tags+1, interval); err != nil {
		return err
	}
	return b.deliveries(ctx, p, list, stacks)
}

// polls measures the server while it only polls.
func (b *Bench) polls(ctx context.Context, p *product, list []*forge, stacks, refs int, interval time.Duration) error {
	if err := polled(ctx, list, 2*interval+time.Minute); err != nil {
		return err
	}
	// The polls of one interval spread out before they are measured.
	if err := retry.Sleep(ctx, interval); err != nil {
		return err
	}
	count := func() (n int64) {
		for _, f := range list {
			n += f.host.lists.Load()
		}
		return n
	}
	var cpu, rate []float64
	for range b.Rounds {
		before, err := figures.FineCPU(p.pid())
		if err != nil {
			return err
		}
		began, listed := time.Now(), count()
		if err := retry.Sleep(ctx, interval); err != nil {
			return err
		}
		after, err := figures.FineCPU(p.pid())
		if err != nil {
			return err
		}
		took := time.Since(began)
		cpu = append(cpu, (after-before).Seconds()/took.Seconds())
		rate = append(rate, float64(count()-listed)/took.Minutes())
	}
	b.Add(fmt.Sprintf("%d refs of %d repositories on %d hosts, polled every %s: CPU", refs*stacks, stacks, len(list), interval), "cores", cpu, nil, figures.AtMost(0.2, false))
	b.Add("lists of refs", "1/min", rate, nil, figures.AtMost(1.1*float64(stacks)/interval.Minutes(), true))
	return nil
}

// perMinute is the number of deliveries per minute, and running that of deployments at the same time.
const perMinute, running = 1000, 20

// deliveries measures the answers to webhooks while deployments run that earlier ones caused.
func (b *Bench) deliveries(ctx context.Context, p *product, list []*forge, stacks int) error {
	total := pick(b, 1000, 200)
	active := make(chan struct{}, running)
	finished := make(chan struct{}, total)
	agents := gather(ctx, p, running, 0, func(ctx context.Context, j job) error {
		if err := j.start(ctx); err != nil {
			return err
		}
		active <- struct{}{}
		for range 10 {
			if err := j.write(ctx, []byte("a line of output\n")); err != nil {
				return err
			}
			if err := retry.Sleep(ctx, 100*time.Millisecond); err != nil {
				return err
			}
		}
		<-active
		finished <- struct{}{}
		return j.finish(ctx)
	})
	took, busy, err := b.deliver(ctx, p, list, stacks, total, active)
	if err == nil {
		_, err = collect(ctx, agents, finished, total)
	}
	if err = errors.Join(err, agents.dismiss()); err != nil {
		return err
	}
	// Nothing is lost or deployed twice.
	var page struct{ Total int }
	if err := p.call(ctx, http.MethodGet, "/api/orgs/"+p.server.Organization+"/deployments?pageSize=1", nil, &page); err != nil {
		return err
	}
	if page.Total != total {
		return fmt.Errorf("%d pushes caused %d deployments", total, page.Total)
	}
	b.Add(fmt.Sprintf("%d webhooks at %d per minute while up to %d deployments run: answered, p95", total, perMinute, running), "ms",
		[]float64{figures.Quantile(took, 0.95)}, nil, figures.AtMost(100, !b.Quick))
	b.Add("running deployments meanwhile", "n", busy, nil, figures.Goal{})
	return nil
}

// deliver sends the deliveries of pushes at a constant rate, and returns the times of the answers and
// the numbers of deployments that ran.
func (b *Bench) deliver(ctx context.Context, p *product, list []*forge, stacks, total int, active <-chan struct{}) (took, busy []float64, err error) {
	var mu sync.Mutex
	var all sync.WaitGroup
	tick := time.NewTicker(time.Minute / perMinute)
	defer tick.Stop()
	for i := range total {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		all.Go(func() {
			began := time.Now()
			failed := p.deliver(ctx, list[i%len(list)], i%stacks/len(list))
			mu.Lock()
			defer mu.Unlock()
			took, busy = append(took, milliseconds(time.Since(began))), append(busy, float64(len(active)))
			err = errors.Join(err, failed)
		})
	}
	all.Wait()
	return took, busy, errors.Join(err, context.Cause(ctx))
}

// deliver pushes to a repository, and sends the delivery of its hook.
func (p *product) deliver(ctx context.Context, f *forge, repo int) error {
	name := f.repos[repo]
	before, after := f.host.push(name)
	body, err := json.Marshal(map[string]any{
		"event": "push", "branch": "main", "before": before, "commit": after, "repoUrl": f.host.url + "/" + name, "deliveryId": name + after, "sender": "ada",
	})
	if err != nil {
		return err
	}
	mac := hmac.New(sha256.New, []byte(f.secret))
	mac.Write(body)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.server.URL+"/workflow/generic-vcs", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Generic-VCS-Integration-ID", f.id)
	req.Header.Set("X-Generic-VCS-Signature", "v1="+hex.EncodeToString(mac.Sum(nil)))
	resp, err := p.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // read to the end
	text, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != http.StatusAccepted || !bytes.Contains(text, []byte(`"accepted":1`))) {
		err = fmt.Errorf("a delivery was answered with %s: %s", resp.Status, text)
	}
	return err
}
