// Package mirror shows the doctor of a server how its requests arrive: at which server, from which
// address and with which headers. It contains both ends: the routes of the server, and the [Caller]
// that the doctor uses.
//
// Only a caller who knows the master key may ask, because the answers name proxies. The answer proves
// that the server knows the key too, so that the doctor can tell it from every other server.
package mirror

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/server/api/clientaddr"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/fault"
)

// The routes. They are not below /api, because only the doctor of this server uses them.
const (
	requestPath = "/workflow/doctor/request"
	streamPath  = "/workflow/doctor/stream"
	bodyPath    = "/workflow/doctor/body"
	readyPath   = "/readyz"
)

// Purpose is the purpose for which the key is derived from the master key.
const Purpose = "workflow-server doctor"

const (
	scheme = "doctor" // of the header Authorization
	// validFor bounds the time for which others can repeat a request. The clocks can differ.
	validFor = time.Hour
	// holdFor is the time for which the server holds a stream that its caller does not close.
	holdFor = 5 * time.Second
	// MaxBody is the size of the largest body that the server accepts, in bytes.
	MaxBody = 64 << 20
)

// Seen is a request as the server has seen it.
type Seen struct {
	// Instance identifies the server's process, and Host its machine.
	Instance string `json:"instance"`
	Host     string `json:"host"`
	Version  string `json:"version"`

	// Client is the client's address, without a port. Connection is the other end of the connection, with
	// its port. Trusted reports whether that is a trusted proxy.
	Client     string `json:"client"`
	Connection string `json:"connection"`
	Trusted    bool   `json:"trusted"`
	// Secure reports whether the connection uses TLS.
	Secure bool `json:"secure"`
	// RequestHost is the header Host.
	RequestHost string `json:"requestHost"`
	// ForwardedFor and Forwarded are the values of X-Forwarded-For and Forwarded.
	ForwardedFor []string `json:"forwardedFor"`
	Forwarded    []string `json:"forwarded"`
	// Header reports whether the header of the protocol between agent and server has arrived.
	Header bool `json:"header"`
}

// answer is the body of an answer. Proof covers the text of Seen.
type answer struct {
	Seen  json.RawMessage `json:"seen"`
	Proof []byte          `json:"proof"`
}

// Server describes the server to its doctor.
type Server struct {
	Key      []byte // derived from the master key, for [Purpose]
	Trust    clientaddr.Trust
	Instance string
	Host     string
	Version  string
}

// NewInstance returns the identity of a process.
func NewInstance() string { return rand.Text() }

// Register adds the routes.
func Register(rt *web.Router, s Server) {
	rt.Public(http.MethodGet, requestPath, s.admit(s.request))
	rt.Public(http.MethodGet, streamPath, s.admit(s.stream))
	rt.Public(http.MethodPost, bodyPath, s.admit(s.body))
}

type handler func(w http.ResponseWriter, r *http.Request, nonce string) error

// admit returns a handler for callers who know the key.
func (s Server) admit(h handler) func(w http.ResponseWriter, r *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		nonce, ok := check(s.Key, r.URL.Path, web.Bearer(r, scheme), time.Now())
		if !ok {
			return fault.NotFound("%s does not exist on this server", r.URL.Path)
		}
		return h(w, r, nonce)
	}
}

func (s Server) request(w http.ResponseWriter, r *http.Request, nonce string) error {
	seen := Seen{
		Instance: s.Instance, Host: s.Host, Version: s.Version,
		Client: web.Address(r), Connection: clientaddr.ConnectionOf(r), Trusted: s.Trust.Trusts(r),
		Secure: r.TLS != nil, RequestHost: r.Host,
		ForwardedFor: r.Header.Values("X-Forwarded-For"), Forwarded: r.Header.Values("Forwarded"), Header: r.Header.Get(header) != "",
	}
	text, err := json.Marshal(seen)
	if err != nil {
		return fmt.Errorf("encoding a request: %w", err)
	}
	w.Header().Set(header, nonce)
	return web.WriteJSON(w, r, http.StatusOK, answer{text, sign(s.Key, "answer", nonce, string(text))})
}

// header is a header of the form that proxies must pass in both directions.
const header = "X-Workflow-Doctor"

// stream sends one event at once, and holds the stream. A caller who receives the event ends it.
func (s Server) stream(w http.ResponseWriter, r *http.Request, _ string) error {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	io.WriteString(w, firstEvent)
	if err := http.NewResponseController(w).Flush(); err != nil {
		return nil // the caller has left
	}
	hold := time.NewTimer(holdFor)
	defer hold.Stop()
	select {
	case <-hold.C:
		io.WriteString(w, lastEvent)
	case <-r.Context().Done():
	}
	return nil
}

const firstEvent, lastEvent = "event: first\ndata: {}\n\n", "event: last\ndata: {}\n\n"

// body reads the body and answers with its size.
func (s Server) body(w http.ResponseWriter, r *http.Request, _ string) error {
	n, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, MaxBody))
	if err != nil {
		return fault.Wrap(fault.KindInvalid, err, "the body could not be read")
	}
	return web.WriteJSON(w, r, http.StatusOK, map[string]int64{"size": n})
}

// credential returns a credential for one request to a path, and its nonce.
func credential(key []byte, path string, now time.Time) (text, nonce string) {
	nonce = rand.Text()
	at := strconv.FormatInt(now.Unix(), 10)
	return at + "." + nonce + "." + base64.RawURLEncoding.EncodeToString(sign(key, "request", path, at, nonce)), nonce
}

// check returns the nonce of a credential, and whether the credential is valid for a path.
func check(key []byte, path, text string, now time.Time) (nonce string, ok bool) {
	parts := strings.Split(text, ".")
	if len(key) == 0 || len(parts) != 3 {
		return "", false
	}
	mac, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil || !hmac.Equal(mac, sign(key, "request", path, parts[0], parts[1])) {
		return "", false
	}
	at, err := strconv.ParseInt(parts[0], 10, 64)
	return parts[1], err == nil && now.Sub(time.Unix(at, 0)).Abs() < validFor
}

func sign(key []byte, parts ...string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(strings.Join(parts, "\n"))) // writing to a hash never fails
	return mac.Sum(nil)
}
