// Command minbackend is the baseline for the state benchmarks. It acknowledges every call of an
// update, including journal entries, at once, and stores nothing except imported states. The CLI's
// time against it is the minimum for any server.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: minbackend ADDR")
		os.Exit(2)
	}
	b := &backend{states: map[string][]byte{}}
	server := &http.Server{Addr: os.Args[1], Handler: b.routes(), ReadHeaderTimeout: 10 * time.Second}
	fmt.Fprintln(os.Stderr, "minbackend:", server.ListenAndServe())
	os.Exit(1)
}

const organization = "bench"

type backend struct {
	mu     sync.Mutex
	states map[string][]byte // imported state by stack
}

type object map[string]any

func (b *backend) routes() http.Handler {
	const stack = "/api/stacks/{org}/{project}/{stack}"
	mux := http.NewServeMux()
	handle := func(pattern string, body any) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { reply(w, r, body) })
	}
	handle("GET /api/user", object{"githubLogin": organization, "organizations": []object{{"githubLogin": organization}}})
	handle("GET /api/user/organizations/default", object{"GitHubLogin": organization})
	handle("GET /api/cli/version", object{})
	handle("GET /api/capabilities", object{"capabilities": []object{
		{"capability": "batch-encrypt"},
		{"capability": "deployment-schema-version", "version": 1, "configuration": object{"version": 4}},
	}})
	handle("HEAD /api/stacks/{org}/{project}", object{})
	handle("POST /api/stacks/{org}/{project}", object{})
	mux.HandleFunc("GET "+stack, b.stack)
	mux.HandleFunc("GET "+stack+"/export", b.exportState)
	mux.HandleFunc("POST "+stack+"/import", b.importState)
	handle("POST "+stack+"/{kind}", object{"updateID": "1"})
	handle("GET "+stack+"/{kind}/{id}", object{"status": "succeeded", "events": []object{}})
	mux.HandleFunc("GET "+stack+"/updates/latest", http.NotFound)
	token := object{"token": "lease", "tokenExpiration": time.Now().Add(24 * time.Hour).Unix(), "version": 1, "journalVersion": 1}
	handle("POST "+stack+"/{kind}/{id}", token)
	handle("POST "+stack+"/{kind}/{id}/renew_lease", token)
	handle("POST "+stack+"/{kind}/{id}/events/batch", object{})
	handle("POST "+stack+"/{kind}/{id}/complete", nil)
	handle("PATCH "+stack+"/{kind}/{id}/journalentries", nil)
	return mux
}

// reply reads the request and sends a body. If body is nil, the response is empty.
func reply(w http.ResponseWriter, r *http.Request, body any) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return
	}
	if body == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body) // fails only if the client has disconnected
}

func (b *backend) stack(w http.ResponseWriter, r *http.Request) {
	reply(w, r, object{
		"id": r.PathValue("stack"), "orgName": r.PathValue("org"), "projectName": r.PathValue("project"),
		"stackName": r.PathValue("stack"), "tags": object{}, "version": 1,
	})
}

func path(r *http.Request) string { return r.URL.Path[:strings.LastIndexByte(r.URL.Path, '/')] }

func (b *backend) exportState(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	state, found := b.states[path(r)]
	b.mu.Unlock()
	if !found {
		state = []byte(`{"version":3,"deployment":null}`)
	}
	_, _ = w.Write(state) // fails only if the client has disconnected
}

func (b *backend) importState(w http.ResponseWriter, r *http.Request) {
	state, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	b.mu.Lock()
	b.states[path(r)] = state
	b.mu.Unlock()
	reply(w, r, object{"updateId": "1"})
}
