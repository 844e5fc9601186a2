// Package openapi describes the routes of this server in the form of OpenAPI 3. The command "pulumi
// api" finds the server's operations in that description.
package openapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"unicode"

	"github.com/go-chi/chi/v5"

	"workflowagent/internal/server/api/web"
)

// Path is the path at which clients expect the description.
const Path = "/api/openapi/pulumi-spec.json"

// Register adds a route that returns the description of all routes below /api.
func Register(rt *web.Router, routes chi.Routes) {
	describe := sync.OnceValues(func() ([]byte, error) { return Describe(routes) })
	rt.Public(http.MethodGet, Path, func(w http.ResponseWriter, r *http.Request) error {
		doc, err := describe()
		if err != nil {
			return err
		}
		return web.WriteRaw(w, r, http.StatusOK, doc)
	})
}

// apiVersion is the version of the API. The server's own version would tell strangers which of its
// faults are not fixed yet.
const apiVersion = "1.0.0"

type document struct {
	OpenAPI    string                          `json:"openapi"`
	Info       map[string]string               `json:"info"`
	Paths      map[string]map[string]operation `json:"paths"`
	Components json.RawMessage                 `json:"components"`
}

// components describes the body of errors. The CLI requires at least one schema.
const components = `{"schemas":{"Error":{"type":"object","required":["code","message"],
	"properties":{"code":{"type":"integer"},"message":{"type":"string"}}}}}`

type operation struct {
	OperationID string              `json:"operationId"`
	Summary     string              `json:"summary"`
	Tags        []string            `json:"tags"`
	Parameters  []pathParameter     `json:"parameters,omitempty"`
	RequestBody *requestBody        `json:"requestBody,omitempty"`
	Responses   map[string]response `json:"responses"`
}

type pathParameter struct {
	Name     string            `json:"name"`
	In       string            `json:"in"`
	Required bool              `json:"required"`
	Schema   map[string]string `json:"schema"`
}

type content map[string]map[string]schema

type schema struct {
	Ref string `json:"$ref,omitempty"`
}

type response struct {
	Description string  `json:"description"`
	Content     content `json:"content"`
}

type requestBody struct {
	Content content `json:"content"`
}

// body returns the content of JSON bodies with a schema; "" means any schema.
func body(ref string) content {
	return content{"application/json": {"schema": {ref}}}
}

// publicNames gives parameters the names that the CLI replaces by the names of the current stack.
var publicNames = strings.NewReplacer("{org}", "{orgName}", "{project}", "{projectName}", "{stack}", "{stackName}")

// Describe returns the description of the routes below /api.
func Describe(routes chi.Routes) ([]byte, error) {
	ids, paths := map[string]string{}, map[string]string{}
	for _, op := range Operations() {
		ids[Shape(op.Method, op.Path)] = op.ID
		paths[Shape("", op.Path)] = op.Path
	}
	doc := document{
		OpenAPI: "3.0.3", Paths: map[string]map[string]operation{}, Components: json.RawMessage(components),
		Info: map[string]string{"title": "workflow-server", "version": apiVersion},
	}
	err := chi.Walk(routes, func(method, path string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		if !strings.HasPrefix(path, "/api/") {
			return nil
		}
		op := Operation{Method: method, ID: ids[Shape(method, path)], Path: paths[Shape("", path)]}
		if op.ID == "" {
			op.ID = name(method, path)
		}
		if op.Path == "" {
			op.Path = publicNames.Replace(path)
		}
		if doc.Paths[op.Path] == nil {
			doc.Paths[op.Path] = map[string]operation{}
		}
		doc.Paths[op.Path][strings.ToLower(method)] = describe(op)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("listing the routes: %w", err)
	}
	out, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("encoding the description of the routes: %w", err)
	}
	return out, nil
}

func describe(op Operation) operation {
	group, _, _ := strings.Cut(strings.TrimPrefix(op.Path, "/api/"), "/")
	o := operation{
		OperationID: op.ID, Summary: sentence(op.ID), Tags: []string{group},
		Responses: map[string]response{
			"2XX":     {Description: "Success", Content: body("")},
			"default": {Description: "Error", Content: body("#/components/schemas/Error")},
		},
	}
	for _, m := range parameter.FindAllStringSubmatch(op.Path, -1) {
		o.Parameters = append(o.Parameters, pathParameter{Name: m[1], In: "path", Required: true, Schema: map[string]string{"type": "string"}})
	}
	switch op.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch:
		o.RequestBody = &requestBody{body("")}
	}
	return o
}

// name returns the identifier of a route that is not in the public API.
func name(method, path string) string {
	words := strings.FieldsFunc(strings.ToLower(method)+strings.TrimPrefix(path, "/api"), func(r rune) bool { return !unicode.IsLetter(r) })
	for i, w := range words {
		words[i] = strings.ToUpper(w[:1]) + w[1:]
	}
	return strings.Join(words, "")
}

// sentence returns the words of an identifier, such as "Get stack" for "GetStack".
func sentence(id string) string {
	var out strings.Builder
	for i, r := range id {
		next := strings.IndexFunc(id[i:], unicode.IsLower)
		switch {
		case r == '_':
			out.WriteByte(' ')
		case i > 0 && unicode.IsUpper(r) && (next == 1 || unicode.IsLower(rune(id[i-1]))):
			out.WriteByte(' ')
			if next == 1 {
				r = unicode.ToLower(r)
			}
			fallthrough
		default:
			out.WriteRune(r)
		}
	}
	return out.String()
}
