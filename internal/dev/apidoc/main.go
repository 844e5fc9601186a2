// Command apidoc generates docs/api.md from the server's routes and its list of absent features, and the
// description of the routes in the form of OpenAPI that the server shows to clients.
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

	"workflowagent/internal/dev/publicapi"
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
	if err := generate(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "apidoc:", err)
		os.Exit(1)
	}
}

func generate(root string) error {
	for name, content := range map[string]func() ([]byte, error){file: page, specFile: spec} {
		data, err := content()
		if err == nil {
			err = os.WriteFile(filepath.Join(root, name), data, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

const intro = `# The HTTP API

The server has every operation of Pulumi Cloud's public REST API for stacks and deployments, except the absent parts below,
and further routes. [protocol.md](protocol.md) describes where it differs, and the calls of agents and runners,
and [api-usage.md](api-usage.md) those that report usage and events.

The server describes its own routes, from which this page is generated, at ` + "`" + openapi.Path + "`" + `;
` + "`pulumi api list`" + ` prints them.

## Absent parts

A request for an absent part gets 404 with the sentence "this server does not offer …". Longer paths are
absent too; if no method is given, all methods are absent.
`

// page returns the content of docs/api.md.
func page() ([]byte, error) {
	routes, err := routesOfServer()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString(intro)
	public := map[string]bool{}
	for _, op := range publicapi.Operations() {
		public[publicapi.Shape(op.Method, op.Path)] = true
		if _, ok := absent.Match(op.Method, op.Path); ok {
			continue
		}
		if !slices.ContainsFunc(routes, func(r route) bool { return publicapi.Shape(r.method, r.path) == publicapi.Shape(op.Method, op.Path) }) {
			return nil, fmt.Errorf("%s %s is neither a route nor a part of an absent feature: add it to package absent", op.Method, op.Path)
		}
	}
	writeAbsent(&b, absent.Features())
	further := slices.DeleteFunc(routes, func(r route) bool { return public[publicapi.Shape(r.method, r.path)] })
	kinds, further := joinKinds(further)
	fmt.Fprintf(&b, "\n## Further routes\n\nIn the routes of integrations, `{kind}` is `%s`.\n", strings.Join(kinds, "`, `"))
	write(&b, further)
	return b.Bytes(), nil
}

// writeAbsent lists absent features by the reason for their absence.
func writeAbsent(b *bytes.Buffer, features []absent.Feature) {
	reasons := map[string]bool{"": true} // of a path that is offered
	listed := map[string]bool{"": true}
	for _, first := range features {
		if reasons[first.Why] {
			continue
		}
		reasons[first.Why] = true
		fmt.Fprintf(b, "\n%s:\n\n", strings.ToUpper(first.Why[:1])+first.Why[1:])
		for _, f := range features {
			if f.Why != first.Why || listed[f.What] {
				continue
			}
			listed[f.What] = true
			var paths []string
			for _, g := range features {
				if g.What == f.What && g.Why == f.Why {
					paths = append(paths, "`"+g.Path+"`")
				}
			}
			fmt.Fprintf(b, "* %s: %s\n", f.What, strings.Join(paths, ", "))
		}
	}
}

// joinKinds returns the kinds of integrations, and the routes with {kind} in place of the kind where
// all kinds have the route.
func joinKinds(routes []route) (kinds []string, joined []route) {
	const integrations = "/api/console/orgs/{org}/integrations/"
	has := map[route]bool{}
	for _, r := range routes {
		has[r] = true
		kind, ok := strings.CutPrefix(r.path, integrations)
		if ok && r.method == "POST" && !strings.Contains(kind, "/") {
			kinds = append(kinds, kind)
		}
	}
	for _, r := range routes {
		kind, below, _ := strings.Cut(strings.TrimPrefix(r.path, integrations), "/")
		of := func(kind string) route {
			return route{r.method, strings.TrimSuffix(integrations+kind+"/"+below, "/")}
		}
		every := slices.Contains(kinds, kind) && !slices.ContainsFunc(kinds, func(other string) bool { return !has[of(other)] })
		switch {
		case !every:
			joined = append(joined, r)
		case kind == kinds[0]:
			joined = append(joined, of("{kind}"))
		}
	}
	slices.SortFunc(joined, byPath)
	return kinds, joined
}

// write lists routes by path.
func write(b *bytes.Buffer, routes []route) {
	b.WriteString("\n```\n")
	for i, r := range routes {
		if i > 0 && routes[i-1].path == r.path {
			continue
		}
		b.WriteString(r.path)
		for _, other := range routes[i:] {
			if other.path == r.path {
				b.WriteString(" " + other.method)
			}
		}
		b.WriteByte('\n')
	}
	b.WriteString("```\n")
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
	slices.SortFunc(all, byPath)
	return all, err
}

func byPath(a, b route) int { return strings.Compare(a.path+" "+a.method, b.path+" "+b.method) }
