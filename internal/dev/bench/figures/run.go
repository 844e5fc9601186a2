package figures

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// Run is a run of measurements.
type Run struct {
	Rounds int
	Quick  bool   // small loads
	Dir    string // holds everything except programs
	Bin    string // directory of the product's programs
	Stamp  string // path of the program that jobs run
	Stubs  string // holds Stamp under the name pulumi
	// PostgresSettings are further settings of PostgreSQL, such as "commit_delay=5000".
	PostgresSettings []string
	Report           Report

	measurement string
}

// Pick returns the load for a full run, or for a quick one.
func Pick[T any](r *Run, full, quick T) T {
	if r.Quick {
		return quick
	}
	return full
}

// Begin names the measurement of the rows that follow.
func (r *Run) Begin(measurement, what string) {
	r.measurement = measurement
	r.Say("%s: %s", measurement, what)
}

// Say prints a line of progress.
func (r *Run) Say(format string, args ...any) {
	fmt.Printf("%7.1fs  %s\n", time.Since(r.Report.Started).Seconds(), fmt.Sprintf(format, args...))
}

// Add adds a row to the report.
func (r *Run) Add(figure, unit string, product []float64, g Goal) {
	r.Compare(figure, unit, product, nil, g)
}

// Compare adds a row that compares the product with something else, which the figure names.
func (r *Run) Compare(figure, unit string, product, other []float64, g Goal) {
	r.Report.Rows = append(r.Report.Rows, Row{Measurement: r.measurement, Figure: figure, Unit: unit, Product: product, Other: other, Goal: g})
}

// Skip adds a row for a figure that could not be measured.
func (r *Run) Skip(figure, why string) {
	r.Say("%s was not measured: %s", figure, why)
	r.Report.Rows = append(r.Report.Rows, Row{Measurement: r.measurement, Figure: figure, Unmeasured: why})
}

// NewDir creates a directory for files of a measurement.
func (r *Run) NewDir() (string, error) {
	dir, err := os.MkdirTemp(r.Dir, "w")
	if err != nil {
		return "", fmt.Errorf("creating a directory for a measurement: %w", err)
	}
	return dir, nil
}

// Program returns the path of one of the product's programs.
func (r *Run) Program(name string) string { return filepath.Join(r.Bin, name) }

// Machine describes this machine and its load.
func Machine() string {
	model := ""
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			model = strings.Trim(name, "\t :\n")
			break
		}
	}
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	load, _ := os.ReadFile("/proc/loadavg")
	fields := strings.Fields(string(load))
	return fmt.Sprintf("%d x %s, Linux %s, %s %s/%s, load %s", runtime.NumCPU(), model, strings.TrimSpace(string(kernel)),
		runtime.Version(), runtime.GOOS, runtime.GOARCH, strings.Join(fields[:min(3, len(fields))], " "))
}

// Milliseconds returns a duration in milliseconds.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Megabytes returns a number of bytes in megabytes.
func Megabytes(n int64) float64 { return float64(n) / 1e6 }
