package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"
)

type goalKind int

const (
	noGoal       goalKind = iota
	atMost                // the product's median
	ratioAtMost           // product / yardstick
	ratioAtLeast          // product / yardstick
)

// goal is the target for a figure. Only gated goals determine the exit code.
type goal struct {
	kind  goalKind
	limit float64
	gated bool
}

type row struct {
	measurement, figure, unit string
	product, yardstick        []float64 // samples; the yardstick may have none
	goal                      goal
}

// ratio returns the ratio of the medians, or NaN without a yardstick.
func (r row) ratio() float64 { return median(r.product) / median(r.yardstick) }

// verdict reports whether the goal is met. words describes the goal and is "" without a goal.
func (r row) verdict() (met bool, words string) {
	product, limit := median(r.product), r.goal.limit
	switch r.goal.kind {
	case atMost:
		return product <= limit, fmt.Sprintf("≤ %s", number(limit))
	case ratioAtMost:
		return r.ratio() <= limit, fmt.Sprintf("≤ %s×", number(limit))
	case ratioAtLeast:
		return r.ratio() >= limit, fmt.Sprintf("≥ %s×", number(limit))
	default:
		return true, ""
	}
}

type report struct {
	machine  string
	rounds   int
	quick    bool
	started  time.Time
	finished time.Time
	rows     []row
}

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

// print writes the table in Markdown, as in docs/performance.md.
func (r *report) print(w io.Writer) {
	load := "quick loads"
	if !r.quick {
		load = fmt.Sprintf("%d rounds", r.rounds)
	}
	fmt.Fprintf(w, "%s to %s UTC, %s; %s.\n", r.started.UTC().Format(time.DateTime), r.finished.UTC().Format(time.TimeOnly), r.machine, load)
	fmt.Fprint(w, "\n| | figure | product | yardstick | ratio | goal | |\n|---|---|---|---|---|---|---|\n")
	measurement := ""
	for _, row := range r.rows {
		name := row.measurement
		if name == measurement {
			name = ""
		}
		measurement = row.measurement
		fmt.Fprintf(w, "| %s |\n", strings.Join(append([]string{name}, row.cells()...), " | "))
	}
}

// cells returns the columns of a row after the measurement's name.
func (r row) cells() []string {
	met, words := r.verdict()
	result := ""
	switch {
	case words != "" && met:
		result = "met"
	case words != "":
		result = "**missed**"
	}
	if r.goal.gated {
		result += ", gated"
	}
	ratio, yardstick := "", ""
	if len(r.yardstick) > 0 {
		yardstick = spread(r.yardstick)
		if v := r.ratio(); !math.IsNaN(v) && !math.IsInf(v, 0) {
			ratio = number(v)
		}
	}
	return []string{r.figure + ", " + r.unit, spread(r.product), yardstick, ratio, words, result}
}

// The figures of a page are between these two lines.
const (
	figuresBegin = "<!-- figures: written by make bench -->\n"
	figuresEnd   = "<!-- end of the figures -->\n"
)

func (r *report) writePage(path string) error {
	page, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("writing the figures into a page: %w", err)
	}
	before, rest, begins := strings.Cut(string(page), figuresBegin)
	_, after, ends := strings.Cut(rest, figuresEnd)
	if !begins || !ends {
		return fmt.Errorf("writing the figures into %s: the page must have the lines %q and %q", path, strings.TrimSpace(figuresBegin), strings.TrimSpace(figuresEnd))
	}
	var text strings.Builder
	text.WriteString(before + figuresBegin)
	r.print(&text)
	text.WriteString(figuresEnd + after)
	if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
		return fmt.Errorf("writing the figures into a page: %w", err)
	}
	return nil
}

// spread formats the median and, if there are enough samples, the 95th percentile.
func spread(samples []float64) string {
	if len(samples) < 10 {
		return number(median(samples))
	}
	return fmt.Sprintf("%s (%s)", number(median(samples)), number(quantile(samples, 0.95)))
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
