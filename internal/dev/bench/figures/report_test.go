package figures

import (
	"strings"
	"testing"
)

func TestGoals(t *testing.T) {
	for _, tt := range []struct {
		name           string
		product, other []float64
		goal           Goal
		met            bool
	}{
		{"below a bound", []float64{10}, nil, AtMost(10, true), true},
		{"above a bound", []float64{10.1}, nil, AtMost(10, true), false},
		{"the median counts", []float64{1, 2, 99}, nil, AtMost(2, true), true},
		{"small ratio", []float64{5}, []float64{2}, RatioAtMost(2.5, true), true},
		{"big ratio", []float64{6}, []float64{2}, RatioAtMost(2.5, true), false},
		{"fast enough", []float64{50}, nil, AtLeast(50, true), true},
		{"too slow", []float64{49}, nil, AtLeast(50, true), false},
		{"nothing measured", nil, nil, AtMost(10, true), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := Row{Measurement: "m", Figure: "f", Unit: "u", Product: tt.product, Other: tt.other, Goal: tt.goal}
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

func TestPrint(t *testing.T) {
	r := &Report{Rows: []Row{
		{Measurement: "output", Figure: "speed", Unit: "MB/s", Product: []float64{105}, Other: []float64{210}, Goal: RatioAtMost(1.5, false)},
		{Measurement: "output", Figure: "lines lost", Unit: "lines", Product: []float64{1}, Goal: AtMost(0, true)},
		{Measurement: "output", Figure: "lag", Unmeasured: "no clock"},
	}}
	var out strings.Builder
	r.Print(&out)
	for _, want := range []string{
		"| output | speed, MB/s | 105 | 210 | 0.50 | ≤ 1.50× | met |\n",
		"|  | lines lost, lines | 1 |  |  | ≤ 0 | **missed**, gated |\n",
		"|  | lag | not measured: no clock |  |  |  |  |\n",
	} {
		if strings.Count(out.String(), want) != 1 {
			t.Errorf("the table does not have %q exactly once:\n%s", want, out.String())
		}
	}
}
