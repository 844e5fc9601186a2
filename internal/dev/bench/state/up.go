package state

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"

	"github.com/klauspost/compress/gzip"

	"workflowagent/internal/dev/bench/figures"
)

// side is a backend to compare.
type side struct {
	name string
	cli  *cli
	// needsInit reports whether the CLI must create the stacks.
	needsInit bool
}

// setting contains the environment and arguments of the CLI for one comparison.
type setting struct {
	name  string
	env   []string
	args  []string
	sides []string
}

// samples are wall-clock and CPU seconds by side and setting.
type samples struct{ wall, cpu map[string][]float64 }

func newSamples() samples { return samples{map[string][]float64{}, map[string][]float64{}} }

func (s samples) add(key string, u usage) {
	s.wall[key] = append(s.wall[key], u.wall)
	s.cpu[key] = append(s.cpu[key], u.cpu)
}

// Up creates many resources in new stacks, with each backend in turn.
func (b *Bench) Up(ctx context.Context) error {
	n := pick(b, 1000, 200)
	u, err := b.newComparison(ctx, n)
	if err != nil {
		return err
	}
	defer u.close()
	settings := []setting{
		{"CLI defaults", nil, nil, []string{"server", "stub", "files", "engine"}},
		{"batch period 2 ms", fast(), nil, []string{"server", "stub"}},
		{"--parallel 100", nil, []string{"--parallel=100"}, []string{"server", "stub", "engine"}},
	}
	if b.Quick {
		settings = settings[1:2]
	}
	for round := range b.Rounds {
		for _, s := range settings {
			if err := u.up(ctx, s, fmt.Sprintf("up%d-%d", round, len(s.sides))); err != nil {
				return err
			}
			b.Say("  round %d, %s: server %.1f s, stub %.1f s, server CPU %.2f s", round+1, s.name,
				last(u.wall["server "+s.name]), last(u.wall["stub "+s.name]), last(u.server[s.name]))
		}
	}
	u.report(n, settings)
	return nil
}

type comparison struct {
	b       *Bench
	product *product
	stub    *stub
	sides   map[string]side
	samples
	server  map[string][]float64 // CPU seconds by setting
	missing float64
	n       int
}

func (b *Bench) newComparison(ctx context.Context, n int) (_ *comparison, err error) {
	u := &comparison{b: b, samples: newSamples(), server: map[string][]float64{}, n: n}
	defer func() {
		if err != nil {
			u.close()
		}
	}()
	if u.product, err = b.startProduct(ctx); err != nil {
		return u, err
	}
	if u.stub, err = b.startStub(ctx); err != nil {
		return u, err
	}
	c, err := b.newCLIs(ctx, n)
	if err != nil {
		return u, err
	}
	server, err := c.forProduct(u.product)
	if err != nil {
		return u, err
	}
	toStub, err := c.forStub(u.stub)
	if err != nil {
		return u, err
	}
	files, err := c.forFiles()
	if err != nil {
		return u, err
	}
	u.sides = map[string]side{
		"server": {"server", server, true},
		"stub":   {"stub", toStub, false},
		"files":  {"files", files, true},
		"engine": {"engine", files.with(engineAlone()), true},
	}
	return u, nil
}

func (u *comparison) close() {
	if u.stub != nil {
		u.stub.close()
	}
	if u.product != nil {
		u.product.close()
	}
}

func (u *comparison) up(ctx context.Context, s setting, stack string) error {
	for _, name := range s.sides {
		side := u.sides[name]
		stack := stack + name
		if side.needsInit {
			if err := side.cli.init(ctx, stack); err != nil {
				return err
			}
		}
		before, err := u.product.rested(ctx)
		if err != nil {
			return err
		}
		used, err := side.cli.with(s.env).on(ctx, stack, append([]string{"up", "--yes", "--skip-preview"}, s.args...)...)
		if err != nil {
			return err
		}
		u.add(name+" "+s.name, used)
		if name != "server" {
			continue
		}
		after, err := u.product.rested(ctx)
		if err != nil {
			return err
		}
		u.server[s.name] = append(u.server[s.name], after-before)
		state, err := u.product.export(ctx, stack)
		if err != nil {
			return err
		}
		u.missing += math.Abs(float64(u.n - state.stashes))
	}
	return nil
}

// wallGoals returns the maximum wall-clock ratios of [Bench.Up], by setting and baseline. 0 means
// that the ratio has no limit.
func wallGoals() map[string]map[string]float64 {
	return map[string]map[string]float64{
		"CLI defaults":      {"stub": 1.15, "files": 1.0 / 3, "engine": 0},
		"batch period 2 ms": {"stub": 1.3, "files": 0.1, "engine": 1.5},
		"--parallel 100":    {"stub": 0, "engine": 1.5},
	}
}

func (u *comparison) report(n int, settings []setting) {
	words := map[string]string{"stub": "stub", "files": "file backend", "engine": "engine without checkpoints"}
	for _, s := range settings {
		for _, name := range []string{"stub", "files", "engine"} {
			limit, compared := wallGoals()[s.name][name]
			yardstick := u.wall[name+" "+s.name]
			if len(yardstick) == 0 { // the batch period has no effect without a server
				yardstick = u.wall[name+" CLI defaults"]
			}
			if !compared || len(yardstick) == 0 {
				continue
			}
			goal := figures.Goal{}
			if limit > 0 {
				goal = figures.RatioAtMost(limit, false)
			}
			u.b.Add(fmt.Sprintf("up of %d, %s; %s", n, s.name, words[name]), "s", u.wall["server "+s.name], yardstick, goal)
		}
		u.b.Add("CPU of the CLI; stub", "s", u.cpu["server "+s.name], u.cpu["stub "+s.name], figures.Goal{})
		u.b.Add("CPU of the server", "s", u.server[s.name], nil, figures.AtMost(pick(u.b, 3, 0.6), true))
	}
	u.b.Add("resources missing in the stored state", "resources", []float64{u.missing}, nil, figures.AtMost(0, true))
}

// document is an exported state.
type document struct {
	body    []byte
	stashes int
}

// export returns the state of a stack.
func (p *product) export(ctx context.Context, stack string) (document, error) {
	resp, err := p.send(ctx, http.MethodGet, p.path(stack)+"/export", http.Header{"Accept-Encoding": {"gzip"}}, nil)
	if err != nil {
		return document{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	var body io.Reader = resp.Body
	if resp.Header.Get("Content-Encoding") == "gzip" {
		if body, err = gzip.NewReader(resp.Body); err != nil {
			return document{}, fmt.Errorf("reading a state: %w", err)
		}
	}
	data, err := io.ReadAll(body)
	if err != nil {
		return document{}, fmt.Errorf("reading a state: %w", err)
	}
	var state struct {
		Deployment struct {
			Resources []struct {
				Type string `json:"type"`
			} `json:"resources"`
		} `json:"deployment"`
	}
	if err := json.Unmarshal(data, &state); err != nil {
		return document{}, fmt.Errorf("reading a state: %w", err)
	}
	d := document{body: data}
	for _, resource := range state.Deployment.Resources {
		if resource.Type == stashType {
			d.stashes++
		}
	}
	return d, nil
}

const stashType = "pulumi:index:Stash"

// prime imports the state of one of the product's stacks into the stub.
func (s *stub) prime(ctx context.Context, p *product, stack string) error {
	state, err := p.export(ctx, stack)
	if err != nil {
		return err
	}
	body := bytes.ReplaceAll(state.body, []byte(p.URL), []byte(s.url))
	return request(ctx, http.MethodPost, s.url+"/api/stacks/bench/"+project+"/"+stack+"/import", bytes.NewReader(body))
}

func last(samples []float64) float64 { return samples[len(samples)-1] }
