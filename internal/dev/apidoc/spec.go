package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode"

	"workflowagent/internal/dev/publicapi"
)

// specFile is the description of the server's routes that package openapi embeds.
const specFile = "internal/server/api/openapi/pulumi-spec.json"

// apiVersion is the version of the API. The server's own version would tell strangers which of its
// faults are not fixed yet.
const apiVersion = "1.0.0"

// components describes the body of errors. The CLI requires at least one schema.
const components = `{"schemas":{"Error":{"type":"object","required":["code","message"],` +
	`"properties":{"code":{"type":"integer"},"message":{"type":"string"}}}}}`

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

// spec returns the content of specFile, with one path per line.
func spec() ([]byte, error) {
	routes, err := routesOfServer()
	if err != nil {
		return nil, err
	}
	ids, public := map[string]string{}, map[string]string{}
	for _, op := range publicapi.Operations() {
		ids[publicapi.Shape(op.Method, op.Path)] = op.ID
		public[publicapi.Shape("", op.Path)] = op.Path
	}
	paths := map[string]map[string]operation{}
	for _, r := range routes {
		if !strings.HasPrefix(r.path, "/api/") {
			continue
		}
		op := publicapi.Operation{
			Method: r.method, ID: ids[publicapi.Shape(r.method, r.path)], Path: public[publicapi.Shape("", r.path)],
		}
		if op.ID == "" {
			op.ID = name(r.method, r.path)
		}
		if op.Path == "" {
			op.Path = publicNames.Replace(r.path)
		}
		if paths[op.Path] == nil {
			paths[op.Path] = map[string]operation{}
		}
		paths[op.Path][strings.ToLower(op.Method)] = describe(op)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"openapi":"3.0.3","info":{"title":"workflow-server","version":%q},"paths":{`, apiVersion)
	for i, path := range slices.Sorted(maps.Keys(paths)) {
		item, err := json.Marshal(paths[path])
		if err != nil {
			return nil, fmt.Errorf("encoding the description of %s: %w", path, err)
		}
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "\n%q:%s", path, item)
	}
	b.WriteString("\n},\"components\":" + components + "}\n")
	return b.Bytes(), nil
}

func describe(op publicapi.Operation) operation {
	group, _, _ := strings.Cut(strings.TrimPrefix(op.Path, "/api/"), "/")
	o := operation{
		OperationID: op.ID, Summary: sentence(op.ID), Tags: []string{group},
		Responses: map[string]response{
			"2XX":     {Description: "Success", Content: body("")},
			"default": {Description: "Error", Content: body("#/components/schemas/Error")},
		},
	}
	for _, m := range publicapi.Parameter.FindAllStringSubmatch(op.Path, -1) {
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
