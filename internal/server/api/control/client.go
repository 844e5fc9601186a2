package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"workflowagent/internal/server/admin"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/sys/pathowner"
	"workflowagent/internal/sys/peercred"
	"workflowagent/internal/sys/unixsocket"
	"workflowagent/internal/termtext"
)

const (
	// aboutTime bounds the question who a server is, which needs no database, and callTime an operation, except those
	// that take as long as the caller waits.
	aboutTime = 10 * time.Second
	callTime  = 10 * time.Minute
)

// ErrNotRunning reports that no server answers commands.
var ErrNotRunning = errors.New("no server answers commands")

// Wanted is the server that a command is for.
type Wanted struct {
	// Version is that of the command's program.
	Version string
	// DataDir is the data directory, and Database the setting of the database, without its password; "" matches
	// every server.
	DataDir, Database string
	// OnBehalf is the name of the user who became the command's user, such as with sudo, or "".
	OnBehalf string
}

// matches returns an error if a server is not the wanted one.
func (w Wanted) matches(a About) error {
	if w.DataDir != "" && !sameDir(w.DataDir, a.DataDir) {
		return fmt.Errorf("its data directory is %s, and not %s", a.DataDir, w.DataDir)
	}
	if w.Database != "" && w.Database != a.Database {
		return fmt.Errorf("its database is %s, and not %s", databaseText(a.Database), w.Database)
	}
	return nil
}

func databaseText(database string) string {
	if database == "" {
		return "that in its data directory"
	}
	return database
}

func sameDir(a, b string) bool {
	if filepath.Clean(a) == filepath.Clean(b) {
		return true
	}
	x, err1 := os.Stat(a)
	y, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(x, y)
}

// Client runs operations in a running server. It implements [admin.Caller].
type Client struct {
	path    string
	trusted []int // ids of users
	wanted  Wanted
	about   About
	http    *http.Client
}

// Find returns a client of the running server whose socket is in one of the directories. It returns
// [ErrNotRunning] if no directory has a socket on which a wanted server listens. Every other error means that a
// server may run.
func Find(ctx context.Context, w Wanted, dirs ...string) (*Client, error) {
	for _, dir := range dirs {
		c, err := open(ctx, w, dir)
		if errors.Is(err, ErrNotRunning) {
			continue
		}
		return c, err
	}
	return nil, ErrNotRunning
}

func open(ctx context.Context, w Wanted, dir string) (*Client, error) {
	c := &Client{path: filepath.Join(dir, socketName), wanted: w}
	info, err := os.Lstat(c.path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return nil, ErrNotRunning
	case errors.Is(err, fs.ErrPermission):
		return nil, c.noAccess()
	case err != nil:
		return nil, fmt.Errorf("searching for the running server: %w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("%s is not a socket, so no command uses it: remove it, and find out who created it", c.path)
	}
	if c.trusted, err = trusted(dir, os.Geteuid()); err != nil {
		return nil, fmt.Errorf("not using the socket of a server: %w", err)
	}
	c.http = &http.Client{Transport: &http.Transport{DialContext: c.dial, MaxIdleConns: 1}}
	if err := c.ask(ctx); err != nil {
		c.Close()
		return nil, err
	}
	own := w.DataDir != "" && sameDir(w.DataDir, dir)
	if own {
		w.DataDir = "" // in a container, it can have another path
	}
	if err := w.matches(c.about); err != nil {
		c.Close()
		if !own {
			return nil, ErrNotRunning // another server of this machine
		}
		return nil, fmt.Errorf("the running server (process %d) has other settings than this command: %w; use the same settings, or restart the server", c.about.PID, err)
	}
	return c, nil
}

// trusted returns the users whose processes a command of a user believes to be a server with a socket in a directory.
func trusted(dir string, euid int) ([]int, error) {
	users := []int{0, euid}
	if euid != 0 {
		return users, nil
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	owner, err := pathowner.Of(dir)
	if err != nil {
		return nil, err
	}
	return append(users, owner.UID), nil
}

func (c *Client) noAccess() error {
	return fmt.Errorf("only root and the server's own user have access to %s: run this command as one of them, such as with sudo", c.path)
}

// untrustedError means that a process of another user listens on a socket.
type untrustedError struct {
	path string
	uid  int
}

func (e *untrustedError) Error() string {
	return fmt.Sprintf("a process of user %d listens on %s, which is not the server's user: not using it; find out who created it", e.uid, e.path)
}

// dial connects to the server, and checks who it is.
func (c *Client) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	conn, err := unixsocket.Dial(ctx, c.path)
	if err != nil {
		return nil, err
	}
	uid, err := peercred.UID(conn)
	if err == nil && !slices.Contains(c.trusted, uid) {
		err = &untrustedError{c.path, uid}
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// Close closes the connection.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// About returns what the server says about itself.
func (c *Client) About() About { return c.about }

// Pending returns which changes of its configuration the server has not applied. An earlier version does not say it.
func (c *Client) Pending(ctx context.Context) (p Pending, err error) {
	ctx, cancel := context.WithTimeout(ctx, aboutTime)
	defer cancel()
	status, answer, err := c.do(ctx, http.MethodGet, pendingPath, nil)
	switch {
	case err != nil:
		return p, err
	case status == http.StatusNotFound:
		return p, nil
	case status != http.StatusOK:
		return p, problemIn(answer)
	}
	return p, json.Unmarshal(answer, &p)
}

func (c *Client) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, aboutTime)
	defer cancel()
	status, answer, err := c.do(ctx, http.MethodGet, aboutPath, nil)
	if untrusted, ok := errors.AsType[*untrustedError](err); ok {
		return untrusted
	}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return ErrNotRunning // the socket of a server that has ended
	case errors.Is(err, fs.ErrPermission):
		return c.noAccess()
	case err != nil:
		return fmt.Errorf("the server with the socket %s does not answer: %w", c.path, err)
	case status != http.StatusOK:
		return fmt.Errorf("the server with the socket %s refuses this command: %w", c.path, problemIn(answer))
	}
	if err := json.Unmarshal(answer, &c.about); err != nil {
		return fmt.Errorf("the server with the socket %s gave an answer that this command does not understand: %w", c.path, err)
	}
	return nil
}

// do sends a request and returns the status and the body of the answer.
func (c *Client) do(ctx context.Context, method, path string, body []byte) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://server"+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, fmt.Errorf("creating a request: %w", err)
	}
	if c.wanted.OnBehalf != "" {
		req.Header.Set(sudoHeader, c.wanted.OnBehalf)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err == nil && len(answer) > maxAnswer {
		err = errors.New("the answer is too large")
	}
	return resp.StatusCode, answer, err
}

// Call implements [admin.Caller].
func (c *Client) Call(ctx context.Context, operation string, request []byte) ([]byte, error) {
	if !admin.Long(operation) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, callTime)
		defer cancel()
	}
	status, answer, err := c.do(ctx, http.MethodPost, callPath+operation, request)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the running server (process %d) did not answer, so the change may or may not have been made: look whether it has before you repeat the command: %w", c.about.PID, err)
	case status == http.StatusNotFound:
		return nil, fmt.Errorf("the running server has version %s, which does not know this command of version %s: restart the server if it was upgraded", termtext.OneLine(c.about.Version, 100), c.wanted.Version)
	case status != http.StatusOK:
		return nil, problemIn(answer)
	}
	return answer, nil
}

// maxMessage limits the message of a server, in bytes. The server's user could have replaced the server, and must not
// control the terminal of root.
const maxMessage = 4 << 10

// problemIn returns the error in an answer, as if it had happened in this process.
func problemIn(answer []byte) error {
	var p problem
	switch err := json.Unmarshal(answer, &p); {
	case err != nil || p.Message == "":
		return errors.New("the server gave an answer that this command does not understand")
	case p.Kind == "":
		return errors.New(termtext.OneLine(p.Message, maxMessage))
	}
	return fault.New(p.Kind, "%s", termtext.OneLine(p.Message, maxMessage))
}
