package figures

import (
	"math"
	"testing"
)

func TestQuantile(t *testing.T) {
	for _, tt := range []struct {
		name    string
		samples []float64
		q, want float64
	}{
		{"one sample", []float64{7}, 0.95, 7},
		{"odd median", []float64{9, 1, 5}, 0.5, 5},
		{"even median", []float64{4, 1, 3, 2}, 0.5, 2.5},
		{"minimum", []float64{4, 1, 3, 2}, 0, 1},
		{"maximum", []float64{4, 1, 3, 2}, 1, 4},
		{"between two", []float64{0, 10}, 0.95, 9.5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := append([]float64{}, tt.samples...)
			if got := Quantile(tt.samples, tt.q); math.Abs(got-tt.want) > 1e-9 {
				t.Errorf("got %v, want %v", got, tt.want)
			}
			for i := range before {
				if before[i] != tt.samples[i] {
					t.Fatal("the samples were reordered")
				}
			}
		})
	}
	if got := Median(nil); !math.IsNaN(got) {
		t.Errorf("the median of no samples is %v", got)
	}
}
