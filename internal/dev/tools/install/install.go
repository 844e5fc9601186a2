// Command install renders the agent's objects for Kubernetes from the chart in packaging/helm, or from
// the Pulumi program in packaging/kubernetes, so that a test can apply them in a cluster:
//
//	install chart NAMESPACE < VALUES
//	install program < CONFIGURATION
//
// The values of a chart are YAML; the configuration of the program is a JSON object of texts. The
// command runs in its own directory. Its tests check the ways in which the agent and the server are
// installed, and compare them.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := render(ctx, os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "install:", err)
		stop()
		os.Exit(1)
	}
}

func render(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	given, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	switch {
	case len(args) == 3 && args[0] == "chart":
		return renderChart(out, args[1], args[2], string(given))
	case len(args) == 1 && args[0] == "program":
		var config map[string]string
		if err := json.Unmarshal(given, &config); err != nil {
			return fmt.Errorf("reading the configuration: %w", err)
		}
		return renderProgram(ctx, out, config)
	}
	return errors.New("usage: install chart CHART NAMESPACE < VALUES, or install program < CONFIGURATION")
}

// renderChart writes the objects of a chart in the order in which Helm creates them.
func renderChart(out io.Writer, chart, namespace, values string) error {
	files, err := template(chart, namespace, values)
	if err != nil {
		return err
	}
	manifests, err := inOrder(files)
	if err != nil {
		return err
	}
	for _, text := range manifests {
		if _, err := fmt.Fprintf(out, "---\n%s\n", text); err != nil {
			return err
		}
	}
	return nil
}

// renderProgram writes the objects of the Pulumi program as a list.
func renderProgram(ctx context.Context, out io.Writer, config map[string]string) (err error) {
	dir, err := os.MkdirTemp("", "install-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	p, err := compile(ctx, dir, "")
	if err != nil {
		return err
	}
	items, err := p.objects(ctx, config)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(object{"apiVersion": "v1", "kind": "List", "items": items})
}
