// Package control connects commands on the server's machine to the running server, which serves HTTP on a unix
// socket for them. The socket is in the server's runtime directory, or else in its data directory.
//
// Each side asks the kernel who is at the other end. The server accepts root and its own user. A command believes a
// server only if it runs as root, as the command's user or, for root, as the owner of the socket's directory.
package control

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"workflowagent/internal/server/fault"
)

const (
	socketName = "control.sock"
	lockName   = "control.lock"

	maxRequest = 64 << 20 // definitions of environments
	maxAnswer  = 64 << 20

	aboutPath   = "/about"
	pendingPath = "/pending"
	// callPath begins the path of an operation.
	callPath = "/operations/"

	// sudoHeader contains the name of the user who became root. Only root can lie about it.
	sudoHeader = "Workflow-On-Behalf"
)

// About is what a server says about itself.
type About struct {
	Version string `json:"version"`
	PID     int    `json:"pid"`
	DataDir string `json:"dataDir"`
	// Database is the setting without its password, or "" for the default in DataDir.
	Database string `json:"database"`
}

// Pending says which changes of its configuration a server has not applied.
type Pending struct {
	// Restart are the keys of the settings whose change needs a restart.
	Restart []string `json:"restart,omitempty"`
	// Error says why the server cannot read its configuration, or is "".
	Error string `json:"error,omitempty"`
}

// problem is an error in an answer.
type problem struct {
	Kind    fault.Kind `json:"kind,omitempty"`
	Message string     `json:"message"`
}

// errTooLarge is the error of a request that exceeds the limit.
var errTooLarge = fault.New(fault.KindTooLarge, "the request is too large")

// readRequest reads the body of a request.
func readRequest(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return nil, errTooLarge
	}
	return body, err
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	raw, err := json.Marshal(v)
	if err != nil {
		status, raw = http.StatusInternalServerError, []byte(`{"message":"the answer cannot be encoded"}`)
	}
	writeRaw(w, status, raw)
}

func writeRaw(w http.ResponseWriter, status int, raw []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(raw) //nolint:gosec // JSON for a command, which is no browser; one that went away gets nothing
}
