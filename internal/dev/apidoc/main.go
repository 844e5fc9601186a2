// Command apidoc generates docs/api.md from the server's routes and its list of absent features.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/api"
	"workflowagent/internal/server/api/absent"
	"workflowagent/internal/server/api/openapi"
	"workflowagent/internal/server/api/system"
)

//go:generate go run . ../../..

const file = "docs/api.md"

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: apidoc REPOSITORY")
		os.Exit(2)
	}
	doc, err := page()
	if err == nil {
		err = os.WriteFile(filepath.Join(os.Args[1], file), doc, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "apidoc:", err)
		os.Exit(1)
	}
}

const intro = `# The HTTP API

The server implements a part of Pulumi Cloud's public REST API. This page is generated from the server's routes: the
first table lists every operation of the public API for stacks and deployments. A request for an absent part gets 404
with the sentence "this server does not offer …". [protocol.md](protocol.md) describes where the server differs, and the
calls of agents and runners.

The server describes its own routes at ` + "`" + openapi.Path + "`" + `; ` + "`pulumi api list`" + ` prints them.

## Operations of the public API

| path | methods | state |
|---|---|---|
`

// page returns the content of docs/api.md.
func page() ([]byte, error) {
	routes, err := routesOfServer()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString(intro)
	var rows []row
	public := map[string]bool{}
	for _, op := range openapi.Operations() {
		public[openapi.Shape(op.Method, op.Path)] = true
		state := "built"
		if f, ok := absent.Match(op.Method, op.Path); ok {
			state = fmt.Sprintf("absent: %s (%s)", f.What, f.Why)
		} else if !slices.ContainsFunc(routes, func(r route) bool { return openapi.Shape(r.method, r.path) == openapi.Shape(op.Method, op.Path) }) {
			return nil, fmt.Errorf("%s %s is neither a route nor a part of an absent feature: add it to package absent", op.Method, op.Path)
		}
		rows = add(rows, op.Path, op.Method, state)
	}
	write(&b, rows)
	b.WriteString("\n## Absent parts\n\nThe paths include all longer paths. Without a method, all methods are absent.\n\n| path | not offered | reason |\n|---|---|---|\n")
	for _, f := range absent.Features() {
		if f.What != "" {
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", f.Path, f.What, f.Why)
		}
	}
	b.WriteString("\n## Further routes\n\n| path | methods |\n|---|---|\n")
	rows = nil
	for _, r := range routes {
		if !public[openapi.Shape(r.method, r.path)] {
			rows = add(rows, r.path, r.method, "")
		}
	}
	write(&b, rows)
	return b.Bytes(), nil
}

// row is a path with the methods that have the same state.
type row struct {
	path, state string
	methods     []string
}

func add(rows []row, path, method, state string) []row {
	if n := len(rows); n > 0 && rows[n-1].path == path && rows[n-1].state == state {
		rows[n-1].methods = append(rows[n-1].methods, method)
		return rows
	}
	return append(rows, row{path, state, []string{method}})
}

func write(b *bytes.Buffer, rows []row) {
	for _, r := range rows {
		fmt.Fprintf(b, "| `%s` | %s |", r.path, strings.Join(r.methods, " "))
		if r.state != "" {
			b.WriteString(" " + r.state + " |")
		}
		b.WriteByte('\n')
	}
}

type route struct{ method, path string }

func routesOfServer() ([]route, error) {
	handler := api.New(api.Deps{Log: logrus.NewEntry(logrus.New()), Server: system.Server{Metrics: prometheus.NewRegistry()}})
	tree, ok := handler.(chi.Routes)
	if !ok {
		return nil, errors.New("the server's handler does not list its routes")
	}
	var all []route
	err := chi.Walk(tree, func(method, path string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		all = append(all, route{method, path})
		return nil
	})
	slices.SortFunc(all, func(a, b route) int {
		return strings.Compare(a.path+" "+a.method, b.path+" "+b.method)
	})
	return all, err
}
