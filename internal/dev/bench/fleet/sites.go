package fleet

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"workflowagent/internal/dev/bench/figures"
	"workflowagent/internal/dev/lab"
)

// Sites measures the example service when very many sites are created at once.
func (b *Bench) Sites(ctx context.Context) error {
	n := pick(b, 1000, 50)
	p, err := b.startProduct(ctx, "", 0)
	if err != nil {
		return err
	}
	defer p.close()
	dir, err := b.newDir()
	if err != nil {
		return err
	}
	port, err := lab.FreePort("127.0.0.1")
	if err != nil {
		return err
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	service, err := lab.StartProcess(ctx, b.Service,
		[]string{"-listen", address, "-org", p.server.Organization, "-settings", filepath.Join(b.Example, "settings.json")},
		append(os.Environ(), "PULUMI_BACKEND_URL="+p.server.URL, "PULUMI_ACCESS_TOKEN="+p.server.Token), filepath.Join(dir, "log"))
	if err != nil {
		return err
	}
	defer func() { _ = service.Stop(syscall.SIGTERM, stopPatience) }()
	ready, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	url := "http://" + address + "/sites"
	err = lab.Poll(ready, 20*time.Millisecond, func() (bool, error) { return p.post(ready, url, `{}`) == http.StatusBadRequest, nil })
	if err != nil {
		return fmt.Errorf("starting the example service: %w", err)
	}
	before, err := figures.FineCPU(p.pid())
	if err != nil {
		return err
	}
	began := time.Now()
	err = each(n, n, func(i int) error {
		if status := p.post(ctx, url, fmt.Sprintf(`{"id": "site-%d", "content": "Hello"}`, i)); status != http.StatusAccepted {
			return fmt.Errorf("creating a site: status %d", status)
		}
		return nil
	})
	took := time.Since(began)
	if err != nil {
		return fmt.Errorf("%w; the service's log:\n%s", err, lab.Tail(filepath.Join(dir, "log"), 10))
	}
	after, err := figures.FineCPU(p.pid())
	if err != nil {
		return err
	}
	var list struct {
		Total int `json:"total"`
	}
	if err := p.call(ctx, http.MethodGet, "/api/orgs/"+p.server.Organization+"/deployments?page=1&pageSize=1", nil, &list); err != nil {
		return err
	}
	b.Add(fmt.Sprintf("%d sites created at once through the example service", n), "s", []float64{took.Seconds()}, nil, figures.Goal{})
	b.Add("CPU of the server", "ms per site", []float64{milliseconds(after-before) / float64(n)}, nil, figures.Goal{})
	b.Add("deployments missing or doubled", "deployments", []float64{math.Abs(float64(n - list.Total))}, nil, figures.AtMost(0, true))
	return nil
}

// post returns the status of a request to the example service, or 0.
func (p *product) post(ctx context.Context, url, body string) int {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader([]byte(body)))
	if err != nil {
		return 0
	}
	resp, err := p.http.Do(req)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, resp.Body) // keeps the connection
	_ = resp.Body.Close()
	return resp.StatusCode
}
