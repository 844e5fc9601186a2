package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestGoals(t *testing.T) {
	for _, tt := range []struct {
		name               string
		product, yardstick []float64
		goal               goal
		met                bool
	}{
		{"below a bound", []float64{10}, nil, goal{atMost, 10, true}, true},
		{"above a bound", []float64{10.1}, nil, goal{atMost, 10, true}, false},
		{"the median counts", []float64{1, 2, 99}, nil, goal{atMost, 2, true}, true},
		{"small ratio", []float64{5}, []float64{2}, goal{ratioAtMost, 2.5, true}, true},
		{"big ratio", []float64{6}, []float64{2}, goal{ratioAtMost, 2.5, true}, false},
		{"fast enough", []float64{50}, []float64{100}, goal{ratioAtLeast, 0.5, true}, true},
		{"too slow", []float64{49}, []float64{100}, goal{ratioAtLeast, 0.5, true}, false},
		{"nothing measured", nil, nil, goal{atMost, 10, true}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := row{"m", "f", "u", tt.product, tt.yardstick, tt.goal}
			if met, words := r.verdict(); met != tt.met || words == "" {
				t.Errorf("got %v (%s), want %v", met, words, tt.met)
			}
			gated := &report{rows: []row{r}}
			if err := gated.missed(); (err == nil) != tt.met {
				t.Errorf("gated: %v", err)
			}
			r.goal.gated = false
			reported := &report{rows: []row{r}}
			if err := reported.missed(); err != nil {
				t.Errorf("only reported: %v", err)
			}
			var out strings.Builder
			reported.print(&out)
			if strings.Contains(out.String(), "missed") == tt.met {
				t.Errorf("the table is:\n%s", out.String())
			}
		})
	}
}

func TestChoose(t *testing.T) {
	all, err := choose("")
	if err != nil || len(all) < 5 {
		t.Errorf("without a list: %d, %v", len(all), err)
	}
	if some, err := choose("burst,noop"); err != nil || len(some) != 2 {
		t.Errorf("with a list of two: %d, %v", len(some), err)
	}
	if _, err := choose("noop,nope"); err == nil || !strings.Contains(err.Error(), `"nope"`) {
		t.Errorf("with an unknown measurement: %v", err)
	}
}

type scripted struct {
	site
	log []string
}

func (s scripted) page(context.Context, string, string) (text, next string, err error) {
	return strings.Join(s.log, "\n"), "", nil
}

func TestCountLines(t *testing.T) {
	const zero, one, two = "00000000 the quick", "00000001 the quick", "00000002 the quick"
	for _, tt := range []struct {
		name string
		log  []string
		want int
	}{
		{"complete", []string{"+ stamp", zero, one, two, "stamp 1 2"}, 0},
		{"empty", nil, 3},
		{"gap", []string{zero, two}, 1},
		{"end missing", []string{zero, one}, 1},
		{"doubled", []string{zero, one, one, two}, 1},
		{"out of order", []string{one, zero, two}, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got, err := countLines(t.Context(), scripted{log: tt.log}, "1", 3); err != nil || got != tt.want {
				t.Errorf("got %d, %v, want %d", got, err, tt.want)
			}
		})
	}
}

func TestParseTimes(t *testing.T) {
	got, err := parseTimes("1000 2000\n")
	if err != nil || got.ended.Sub(got.began) != 1000 {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"", "1", "1 x", "1 2 3"} {
		if _, err := parseTimes(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestWritePage(t *testing.T) {
	r := &report{rows: []row{
		{"burst", "speed", "MB/s", []float64{105}, []float64{235}, goal{ratioAtLeast, 0.25, false}},
		{"burst", "lines lost", "lines", []float64{1}, nil, goal{atMost, 0, true}},
	}}
	path := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(path, []byte("before\n"+figuresBegin+"old\n"+figuresEnd+"after\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second write replaces the figures of the first
		if err := r.writePage(path); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		page := string(data)
		for _, want := range []string{
			"before\n" + figuresBegin, figuresEnd + "after\n",
			"| burst | speed, MB/s | 105 | 235 | 0.45 | ≥ 0.25× | met |\n",
			"|  | lines lost, lines | 1 |  |  | ≤ 0 | **missed**, gated |\n",
		} {
			if strings.Count(page, want) != 1 {
				t.Errorf("%q is not exactly once in the page:\n%s", want, page)
			}
		}
		if strings.Contains(page, "old") {
			t.Errorf("the page still has the old figures:\n%s", page)
		}
	}
	if err := os.WriteFile(path, []byte("no place\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.writePage(path); err == nil {
		t.Error("a page without the lines around the figures was accepted")
	}
}
