package states

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/stacks/journal"
	"workflowagent/internal/server/stacks/rawjson"
)

// maxSchema is the newest accepted schema version of states.
const maxSchema = 4

// emptySchema is the schema version reported for stacks without a state.
const emptySchema = 3

// State is a validated state of a stack.
type State struct {
	Schema     int64  // schema version of the deployment
	Features   []byte // raw JSON array; nil if absent
	Deployment []byte // raw JSON object, or null
	Resources  int64  // number of resources in the deployment
	body       []byte // as received
	packed     []byte // gzip-compressed body; nil if not compressed yet
}

// Parse validates a body of the form {version, features?, deployment}. packed is the
// gzip-compressed body if the client sent it compressed, otherwise nil. The state stores packed to
// avoid compressing a large body again. The state owns both slices.
func Parse(body, packed []byte) (*State, error) {
	if !json.Valid(body) {
		return nil, fault.Invalid("the body is not valid JSON")
	}
	st := &State{Schema: emptySchema, Deployment: []byte("null"), body: body, packed: packed}
	for k, v := range rawjson.Members(body) {
		switch k {
		case "version":
			n, err := strconv.ParseInt(string(v), 10, 64)
			if err != nil {
				return nil, fault.Invalid("member \"version\" of a state must be an integer")
			}
			st.Schema = n
		case "features":
			if string(v) != "null" {
				st.Features = v
			}
			if err := journal.CheckFeatures(v); err != nil {
				return nil, fault.Invalid("member \"features\" of a state %s", err)
			}
		case "deployment":
			st.Deployment = v
		}
	}
	if st.Schema < 1 || st.Schema > maxSchema {
		return nil, fault.Invalid("the state has the unsupported schema version %d; the server supports versions 1 to %d", st.Schema, maxSchema)
	}
	if !st.Empty() && st.Deployment[0] != '{' {
		return nil, fault.Invalid("member \"deployment\" of a state must be an object")
	}
	if err := journal.CheckMembers(st.Deployment); err != nil {
		return nil, fault.Invalid("member \"deployment\" of a state %s", err)
	}
	for range rawjson.Elements(rawjson.Member(st.Deployment, "resources")) {
		st.Resources++
	}
	return st, nil
}

// Empty reports whether the state contains no deployment.
func (s *State) Empty() bool { return string(s.Deployment) == "null" }

// MarshalJSON returns the state in the export format.
func (s *State) MarshalJSON() ([]byte, error) {
	var buf bytes.Buffer
	buf.Grow(len(s.Deployment) + 64)
	fmt.Fprintf(&buf, `{"version":%d,`, s.Schema)
	if s.Features != nil {
		buf.WriteString(`"features":`)
		buf.Write(s.Features)
		buf.WriteByte(',')
	}
	buf.WriteString(`"deployment":`)
	buf.Write(s.Deployment)
	buf.WriteByte('}')
	return buf.Bytes(), nil
}
