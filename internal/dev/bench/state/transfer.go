package state

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os/exec"

	"github.com/klauspost/compress/gzip"

	"workflowagent/internal/dev/bench/figures"
	"workflowagent/internal/dev/bench/site"
)

// Transfer measures the import and export of large states, compared with gzip -1 of the same bytes.
func Transfer(ctx context.Context, run *figures.Run) error {
	for _, n := range figures.Pick(run, []int{5000, 50_000}, []int{5000}) {
		if err := transfer(ctx, run, n); err != nil {
			return err
		}
	}
	return nil
}

func transfer(ctx context.Context, run *figures.Run, n int) error {
	s, err := site.Start(ctx, run, site.Options{})
	if err != nil {
		return err
	}
	defer s.Close()
	const stack = "large"
	if err := s.NewStack(ctx, stack); err != nil {
		return err
	}
	state := site.State(stack, n)
	packed, err := compress(state)
	if err != nil {
		return err
	}
	megabytes := float64(len(state)) / 1e6
	var speed, cpu [3][]float64
	for range run.Rounds {
		for i, do := range []func() error{
			func() error { return importState(ctx, s, stack, packed) },
			func() error { return download(ctx, s, stack) },
			func() error { return gzipProgram(ctx, state) },
		} {
			took, used, err := s.Timed(ctx, do)
			if err != nil {
				return err
			}
			speed[i], cpu[i] = append(speed[i], megabytes/took), append(cpu[i], used/megabytes*1000)
		}
	}
	_, peak, err := s.Memory()
	if err != nil {
		return err
	}
	_, stashes, err := export(ctx, s, stack)
	if err != nil {
		return err
	}
	for i, name := range []string{"import", "export"} {
		run.Compare(fmt.Sprintf("%s of %d resources, %.1f MB; gzip -1", name, n, megabytes), "MB/s", speed[i], speed[2], figures.AtLeast(50, false))
		run.Add("CPU of the server", "s/GB", cpu[i], figures.AtMost(25, true))
	}
	run.Add("peak RSS of the server", "MB", []float64{peak}, figures.AtMost(150, true))
	run.Add("resources missing in the exported state", "resources", []float64{float64(n - stashes)}, figures.AtMost(0, true))
	return nil
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

func importState(ctx context.Context, s *site.Site, stack string, packed []byte) error {
	header := http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"gzip"}}
	resp, err := s.Send(ctx, http.MethodPost, s.StackPath(stack)+"/import", header, bytes.NewReader(packed))
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// download reads a state as the CLI does, but leaves it compressed.
func download(ctx context.Context, s *site.Site, stack string) error {
	resp, err := s.Send(ctx, http.MethodGet, s.StackPath(stack)+"/export", http.Header{"Accept-Encoding": {"gzip"}}, nil)
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
