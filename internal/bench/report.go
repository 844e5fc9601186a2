package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"text/tabwriter"
	"time"
)

// goalKind says what a goal bounds.
type goalKind int

const (
	noGoal       goalKind = iota
	atMost                // the product's median
	ratioAtMost           // product / yardstick
	ratioAtLeast          // product / yardstick
	addsAtMost            // product - yardstick
)

// goal is what a figure should be. Only a gated one decides the exit code.
type goal struct {
	kind  goalKind
	limit float64
	gated bool
}

// row is one figure of the product beside its yardstick.
type row struct {
	measurement, figure, unit string
	product, yardstick        []float64 // samples; the yardstick may have none
	goal                      goal
}

// ratio is that of the medians, NaN without a yardstick.
func (r row) ratio() float64 { return median(r.product) / median(r.yardstick) }

// verdict says whether the goal is met, and the goal in words; "" without one.
func (r row) verdict() (met bool, words string) {
	product, limit := median(r.product), r.goal.limit
	switch r.goal.kind {
	case atMost:
		return product <= limit, fmt.Sprintf("≤ %s", number(limit))
	case ratioAtMost:
		return r.ratio() <= limit, fmt.Sprintf("≤ %sx", number(limit))
	case ratioAtLeast:
		return r.ratio() >= limit, fmt.Sprintf("≥ %sx", number(limit))
	case addsAtMost:
		return product-median(r.yardstick) <= limit, fmt.Sprintf("adds ≤ %s", number(limit))
	default:
		return true, ""
	}
}

// report collects the rows of a run.
type report struct {
	machine  string
	started  time.Time
	finished time.Time
	rows     []row
	skipped  []string
}

// missed returns an error that names the gated goals that were missed.
func (r *report) missed() error {
	var names []string
	for _, row := range r.rows {
		if met, _ := row.verdict(); !met && row.goal.gated {
			names = append(names, row.measurement+": "+row.figure)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("missed %d goals: %s", len(names), strings.Join(names, "; "))
}

// print writes the table.
func (r *report) print(w io.Writer) {
	fmt.Fprintf(w, "\n%s\n%s to %s\n\n", r.machine, r.started.UTC().Format(time.DateTime), r.finished.UTC().Format(time.TimeOnly))
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "measurement\tfigure\tproduct p50 (p95)\tyardstick p50 (p95)\tratio\tgoal\tresult")
	for _, row := range r.rows {
		met, words := row.verdict()
		result := ""
		if words != "" {
			result = "met"
			if !met {
				result = "MISSED"
			}
			if !row.goal.gated {
				result += " (reported)"
			}
		}
		ratio, yardstick := "", "-"
		if len(row.yardstick) > 0 {
			yardstick = spread(row.yardstick)
			if row.goal.kind == addsAtMost {
				ratio = fmt.Sprintf("%+.1f", median(row.product)-median(row.yardstick))
			} else if v := row.ratio(); !math.IsNaN(v) && !math.IsInf(v, 0) {
				ratio = fmt.Sprintf("%.2fx", v)
			}
		}
		fmt.Fprintf(table, "%s\t%s, %s\t%s\t%s\t%s\t%s\t%s\n",
			row.measurement, row.figure, row.unit, spread(row.product), yardstick, ratio, words, result)
	}
	_ = table.Flush()
	for _, line := range r.skipped {
		fmt.Fprintln(w, "skipped:", line)
	}
}

// spread shows the median, and the 95th percentile where there are enough samples.
func spread(samples []float64) string {
	if len(samples) < 10 {
		return number(median(samples))
	}
	return fmt.Sprintf("%s (%s)", number(median(samples)), number(quantile(samples, 0.95)))
}

// number shows a figure with about three digits.
func number(v float64) string {
	switch {
	case v == math.Trunc(v) && math.Abs(v) < 1e6, math.Abs(v) >= 100:
		return fmt.Sprintf("%.0f", v)
	case math.Abs(v) >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

// writeJSON writes everything, all samples included.
func (r *report) writeJSON(path string) error {
	type jsonRow struct {
		Measurement string    `json:"measurement"`
		Figure      string    `json:"figure"`
		Unit        string    `json:"unit"`
		Product     []float64 `json:"product"`
		Yardstick   []float64 `json:"yardstick,omitempty"`
		Goal        string    `json:"goal,omitempty"`
		Gated       bool      `json:"gated,omitempty"`
		Met         *bool     `json:"met,omitempty"`
	}
	out := struct {
		Machine  string    `json:"machine"`
		Started  time.Time `json:"started"`
		Finished time.Time `json:"finished"`
		Rows     []jsonRow `json:"rows"`
		Skipped  []string  `json:"skipped,omitempty"`
	}{Machine: r.machine, Started: r.started, Finished: r.finished, Skipped: r.skipped}
	for _, row := range r.rows {
		met, words := row.verdict()
		j := jsonRow{
			Measurement: row.measurement, Figure: row.figure, Unit: row.unit,
			Product: row.product, Yardstick: row.yardstick, Goal: words, Gated: row.goal.gated,
		}
		if words != "" {
			j.Met = &met
		}
		out.Rows = append(out.Rows, j)
	}
	data, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the figures: %w", err)
	}
	if err := os.WriteFile(path, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("writing the figures: %w", err)
	}
	return nil
}
