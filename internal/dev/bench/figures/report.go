// Package figures reads the CPU time and memory use of processes from /proc, and prints a table of
// samples, ratios and goals.
package figures

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"
)

type kind int

const (
	noGoal kind = iota
	atMost
	atLeast
	ratioAtMost
)

// Goal is the target for a figure. Only gated goals determine the exit code.
type Goal struct {
	kind  kind
	limit float64
	gated bool
}

// AtMost returns a goal that limits the product's median.
func AtMost(limit float64, gated bool) Goal { return Goal{atMost, limit, gated} }

// AtLeast returns a goal with a lower bound for the product's median.
func AtLeast(limit float64, gated bool) Goal { return Goal{atLeast, limit, gated} }

// RatioAtMost returns a goal that limits the product's median divided by the other median.
func RatioAtMost(limit float64, gated bool) Goal { return Goal{ratioAtMost, limit, gated} }

// Row is a line of the table.
type Row struct {
	Measurement, Figure, Unit string
	Product                   []float64 // samples
	Other                     []float64 // samples of what the product is compared with, if any
	Goal                      Goal
	Unmeasured                string // reason why there are no samples
}

// ratio returns the ratio of the medians, or NaN if the row compares nothing.
func (r Row) ratio() float64 { return Median(r.Product) / Median(r.Other) }

// verdict reports whether the goal is met. words describes the goal and is "" without a goal.
func (r Row) verdict() (met bool, words string) {
	product, limit := Median(r.Product), r.Goal.limit
	switch r.Goal.kind {
	case atMost:
		return product <= limit, fmt.Sprintf("≤ %s", number(limit))
	case atLeast:
		return product >= limit, fmt.Sprintf("≥ %s", number(limit))
	case ratioAtMost:
		return r.ratio() <= limit, fmt.Sprintf("≤ %s×", number(limit))
	default:
		return true, ""
	}
}

// Report is the table of a run.
type Report struct {
	Machine  string
	Rounds   int
	Quick    bool
	Started  time.Time
	Finished time.Time
	Rows     []Row
}

// Missed returns an error that names the missed gated goals, or nil.
func (r *Report) Missed() error {
	var names []string
	for _, row := range r.Rows {
		if met, _ := row.verdict(); !met && row.Goal.gated {
			names = append(names, row.Measurement+": "+row.Figure)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("missed %d goals: %s", len(names), strings.Join(names, "; "))
}

// Print writes the table in Markdown.
func (r *Report) Print(w io.Writer) {
	load := "quick loads"
	if !r.Quick {
		load = fmt.Sprintf("%d rounds", r.Rounds)
	}
	fmt.Fprintf(w, "%s to %s UTC, %s; %s.\n", r.Started.UTC().Format(time.DateTime), r.Finished.UTC().Format(time.TimeOnly), r.Machine, load)
	fmt.Fprint(w, "\n| | figure | product | other | ratio | goal | |\n|---|---|---|---|---|---|---|\n")
	measurement := ""
	for _, row := range r.Rows {
		name := row.Measurement
		if name == measurement {
			name = ""
		}
		measurement = row.Measurement
		fmt.Fprintf(w, "| %s |\n", strings.Join(append([]string{name}, row.cells()...), " | "))
	}
}

// cells returns the columns of a row after the measurement's name.
func (r Row) cells() []string {
	if r.Unmeasured != "" {
		return []string{r.Figure, "not measured: " + r.Unmeasured, "", "", "", ""}
	}
	met, words := r.verdict()
	result := ""
	switch {
	case words != "" && met:
		result = "met"
	case words != "":
		result = "**missed**"
	}
	if r.Goal.gated {
		result += ", gated"
	}
	ratio, other := "", ""
	if len(r.Other) > 0 {
		other = spread(r.Other)
		if v := r.ratio(); !math.IsNaN(v) && !math.IsInf(v, 0) {
			ratio = number(v)
		}
	}
	return []string{r.Figure + ", " + r.Unit, spread(r.Product), other, ratio, words, result}
}

// spread returns the median and, if there are enough samples, the 95th percentile.
func spread(samples []float64) string {
	if len(samples) < 10 {
		return number(Median(samples))
	}
	return fmt.Sprintf("%s (%s)", number(Median(samples)), number(Quantile(samples, 0.95)))
}

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
