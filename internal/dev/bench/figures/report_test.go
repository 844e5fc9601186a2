package figures

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestGoals(t *testing.T) {
	for _, tt := range []struct {
		name               string
		product, yardstick []float64
		goal               Goal
		met                bool
	}{
		{"below a bound", []float64{10}, nil, AtMost(10, true), true},
		{"above a bound", []float64{10.1}, nil, AtMost(10, true), false},
		{"the median counts", []float64{1, 2, 99}, nil, AtMost(2, true), true},
		{"small ratio", []float64{5}, []float64{2}, RatioAtMost(2.5, true), true},
		{"big ratio", []float64{6}, []float64{2}, RatioAtMost(2.5, true), false},
		{"fast enough", []float64{50}, []float64{100}, RatioAtLeast(0.5, true), true},
		{"too slow", []float64{49}, []float64{100}, RatioAtLeast(0.5, true), false},
		{"nothing measured", nil, nil, AtMost(10, true), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := Row{Measurement: "m", Figure: "f", Unit: "u", Product: tt.product, Yardstick: tt.yardstick, Goal: tt.goal}
			if met, words := r.verdict(); met != tt.met || words == "" {
				t.Errorf("got %v (%s), want %v", met, words, tt.met)
			}
			gated := &Report{Rows: []Row{r}}
			if err := gated.Missed(); (err == nil) != tt.met {
				t.Errorf("gated: %v", err)
			}
			r.Goal.gated = false
			reported := &Report{Rows: []Row{r}}
			if err := reported.Missed(); err != nil {
				t.Errorf("only reported: %v", err)
			}
			var out strings.Builder
			reported.Print(&out)
			if strings.Contains(out.String(), "missed") == tt.met {
				t.Errorf("the table is:\n%s", out.String())
			}
		})
	}
}

func TestWritePage(t *testing.T) {
	r := &Report{Rows: []Row{
		{Measurement: "burst", Figure: "speed", Unit: "MB/s", Product: []float64{105}, Yardstick: []float64{235}, Goal: RatioAtLeast(0.25, false)},
		{Measurement: "burst", Figure: "lines lost", Unit: "lines", Product: []float64{1}, Goal: AtMost(0, true)},
		{Measurement: "burst", Figure: "lag", Unmeasured: "no clock"},
	}}
	path := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(path, []byte("before\n"+figuresBegin+"old\n"+figuresEnd+"after\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second write replaces the figures of the first
		if err := r.WritePage(path); err != nil {
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
			"|  | lag | not measured: no clock |  |  |  |  |\n",
		} {
			if strings.Count(page, want) != 1 {
				t.Errorf("the page does not have %q exactly once:\n%s", want, page)
			}
		}
		if strings.Contains(page, "old") {
			t.Errorf("the page still has the old figures:\n%s", page)
		}
	}
	if err := os.WriteFile(path, []byte("no place\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.WritePage(path); err == nil {
		t.Error("a page without the lines around the figures was accepted")
	}
}
