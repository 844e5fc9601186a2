package consoletest

import (
	"encoding/json"
	"net/http"
	"strings"

	"workflowagent/internal/dev/must"
)

// Update is an update of a stack by a client.
type Update struct {
	// Access is the access token; "" is that of the administrator.
	Access string
	// Stack is the name of the stack of [Org], in the form project/stack.
	Stack, Kind, Message string
	DryRun               bool
	// Events are those of the engine, without the summary of Changes.
	Events  []json.RawMessage
	Changes map[string]any
	// State is the deployment that the update stores; nil stores none.
	State any
	// Result is the status with which the update ends.
	Result string
}

// BeginUpdate starts an update, and returns its path in the API and the token of its client.
func (s *Server) BeginUpdate(u Update) (path, token string) {
	s.t.Helper()
	if u.Access == "" {
		u.Access = s.Token
	}
	project, _, _ := strings.Cut(u.Stack, "/")
	path = "/api/stacks/" + Org + "/" + u.Stack + "/" + u.Kind
	var made struct{ UpdateID string }
	s.call(u.Access, http.MethodPost, path, map[string]any{
		"name": project, "runtime": "yaml", "metadata": map[string]any{"message": u.Message}, "options": map[string]any{"dryRun": u.DryRun},
	}, &made)
	path += "/" + made.UpdateID
	var started struct{ Token string }
	s.call(u.Access, http.MethodPost, path, map[string]any{}, &started)
	return path, "update-token " + started.Token
}

// RunUpdate runs an update to its end.
func (s *Server) RunUpdate(u Update) {
	s.t.Helper()
	path, token := s.BeginUpdate(u)
	if u.State != nil {
		s.call(token, http.MethodPatch, path+"/checkpoint", map[string]any{"version": 3, "deployment": u.State}, nil)
	}
	events := u.Events
	if u.Changes != nil {
		summary := must.Get(json.Marshal(map[string]any{"sequence": len(events), "timestamp": 1764000000, "summaryEvent": map[string]any{"resourceChanges": u.Changes}}))(s.t)
		events = append(events, summary)
	}
	if len(events) > 0 {
		s.call(token, http.MethodPost, path+"/events/batch", map[string]any{"events": events}, nil)
	}
	s.call(token, http.MethodPost, path+"/complete", map[string]any{"status": u.Result}, nil)
}

func (s *Server) call(token, method, path string, in, out any) {
	s.t.Helper()
	if status, body := s.APIAs(token, method, path, in, out); status >= http.StatusMultipleChoices {
		s.t.Fatalf("%s %s: status %d: %s", method, path, status, body)
	}
}
