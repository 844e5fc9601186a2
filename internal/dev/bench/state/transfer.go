package state

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"time"

	"github.com/klauspost/compress/gzip"

	"workflowagent/internal/dev/bench/figures"
)

// Transfer measures the import and export of large states, compared with gzip -1 of the same bytes.
func (b *Bench) Transfer(ctx context.Context) error {
	for _, n := range pick(b, []int{5000, 50_000}, []int{5000}) {
		if err := b.transfer(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

func (b *Bench) transfer(ctx context.Context, n int) error {
	p, err := b.startProduct(ctx)
	if err != nil {
		return err
	}
	defer p.close()
	if err := p.newStack(ctx, "large"); err != nil {
		return err
	}
	state := synthetic(n)
	packed, err := compress(state)
	if err != nil {
		return err
	}
	speed := func(d time.Duration) float64 { return float64(len(state)) / 1e6 / d.Seconds() }
	var in, out, floor, inCPU, outCPU []float64
	for range b.Rounds {
		took, used, err := p.timed(ctx, func() error { return p.importState(ctx, "large", packed) })
		if err != nil {
			return err
		}
		in, inCPU = append(in, speed(took)), append(inCPU, used/float64(len(state))*1e9)
		if took, used, err = p.timed(ctx, func() error { return p.download(ctx) }); err != nil {
			return err
		}
		out, outCPU = append(out, speed(took)), append(outCPU, used/float64(len(state))*1e9)
		if took, _, err = p.timed(ctx, func() error { return gzipProgram(ctx, state) }); err != nil {
			return err
		}
		floor = append(floor, speed(took))
	}
	peak, err := p.peak()
	if err != nil {
		return err
	}
	got, err := p.export(ctx, "large")
	if err != nil {
		return err
	}
	b.Say("  %d resources, %.1f MB: import %.0f MB/s, export %.0f MB/s, gzip -1 %.0f MB/s", n, float64(len(state))/1e6, last(in), last(out), last(floor))
	b.Add(fmt.Sprintf("import of %d resources, %.1f MB; gzip -1", n, float64(len(state))/1e6), "MB/s", in, floor, figures.Goal{})
	b.Add("CPU of the server", "s/GB", inCPU, nil, figures.Goal{})
	b.Add(fmt.Sprintf("export of %d; gzip -1", n), "MB/s", out, floor, figures.Goal{})
	b.Add("CPU of the server", "s/GB", outCPU, nil, figures.Goal{})
	b.Add("peak RSS of the server", "MB", []float64{peak}, nil, figures.Goal{})
	b.Add("resources missing in the exported state", "resources", []float64{float64(n - got.stashes)}, nil, figures.AtMost(0, true))
	return nil
}

// synthetic returns a state of n resources without secrets.
func synthetic(n int) []byte {
	var text bytes.Buffer
	text.WriteString(`{"version":3,"deployment":{"manifest":{"time":"2026-01-02T03:04:05Z","magic":"","version":"v3.255.0"},"resources":[`)
	const stack = "urn:pulumi:large::" + project + "::pulumi:pulumi:Stack::" + project + "-large"
	fmt.Fprintf(&text, `{"urn":%q,"custom":false,"type":"pulumi:pulumi:Stack"}`, stack)
	for i := range n {
		fmt.Fprintf(&text, `,{"urn":"urn:pulumi:large::%s::%s::r%05d","custom":true,"id":"id-%08x","type":%q,`+
			`"inputs":{"input":{"name":"resource %d","size":%d,"zone":"zone-%d"}},`+
			`"outputs":{"input":{"name":"resource %d","size":%d,"zone":"zone-%d"},"output":{"name":"resource %d","address":"10.%d.%d.%d"}},`+
			`"parent":%q,"propertyDependencies":{"input":[]},"created":"2026-01-02T03:04:05.%09dZ","modified":"2026-01-02T03:04:05.%09dZ"}`,
			project, stashType, i, uint32(i)*2654435761, stashType, i, i%512, i%3, i, i%512, i%3, i, i>>16&255, i>>8&255, i&255, stack, i*7919, i*104_729)
	}
	text.WriteString("]}}")
	return text.Bytes()
}

func compress(data []byte) ([]byte, error) {
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	if err != nil {
		return nil, fmt.Errorf("compressing a state: %w", err)
	}
	if _, err := z.Write(data); err != nil {
		return nil, fmt.Errorf("compressing a state: %w", err)
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("compressing a state: %w", err)
	}
	return packed.Bytes(), nil
}

// timed returns the duration of a call, and the CPU seconds that the server used during the call.
func (p *product) timed(ctx context.Context, do func() error) (took time.Duration, used float64, err error) {
	before, err := p.rested(ctx)
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	if err := do(); err != nil {
		return 0, 0, err
	}
	took = time.Since(began)
	after, err := p.rested(ctx)
	return took, after - before, err
}

func (p *product) importState(ctx context.Context, stack string, packed []byte) error {
	header := http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"gzip"}}
	resp, err := p.send(ctx, http.MethodPost, p.path(stack)+"/import", header, bytes.NewReader(packed))
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// download reads a state as the CLI does, but leaves it compressed.
func (p *product) download(ctx context.Context) error {
	resp, err := p.send(ctx, http.MethodGet, p.path("large")+"/export", http.Header{"Accept-Encoding": {"gzip"}}, nil)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return fmt.Errorf("reading a state: %w", err)
	}
	return nil
}

func gzipProgram(ctx context.Context, data []byte) error {
	cmd := exec.CommandContext(ctx, "gzip", "-1", "-c")
	cmd.Stdin, cmd.Stdout = bytes.NewReader(data), io.Discard
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("running gzip: %w", err)
	}
	return nil
}
