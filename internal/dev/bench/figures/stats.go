package figures

import (
	"math"
	"slices"
)

// Quantile returns the q-quantile (0 to 1) of samples, interpolated between the nearest two. It
// returns NaN if there are no samples.
func Quantile(samples []float64, q float64) float64 {
	if len(samples) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(samples))
	at := q * float64(len(sorted)-1)
	low := int(math.Floor(at))
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (at-float64(low))*(sorted[high]-sorted[low])
}

// Median returns the median of samples, or NaN if there are none.
func Median(samples []float64) float64 { return Quantile(samples, 0.5) }
