package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/admin"
	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/sys/filelock"
	"workflowagent/internal/sys/peercred"
	"workflowagent/internal/sys/unixsocket"
)

// Listen creates the socket in the first of the directories in which that succeeds. Closing the listener removes the
// socket. The error is that of the last directory.
func Listen(dirs ...string) (l net.Listener, err error) {
	for _, dir := range dirs {
		if l, err = listen(dir); err == nil {
			return l, nil
		}
	}
	return nil, err
}

func listen(dir string) (net.Listener, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the control socket: %w", err)
	}
	lock, err := filelock.Try(f)
	if _, held := errors.AsType[*filelock.HeldError](err); held {
		return nil, fmt.Errorf("another server answers the commands in %s: %w", dir, err)
	}
	if err != nil {
		return nil, err
	}
	l, err := unixsocket.Listen(filepath.Join(dir, socketName))
	if err != nil {
		lock.Release()
		return nil, err
	}
	return &listener{l, lock}, nil
}

// listener accepts connections together with the users of their processes.
type listener struct {
	net.Listener
	lock *filelock.Lock
}

// Close removes the socket before another server can create its own.
func (l *listener) Close() error {
	err := l.Listener.Close()
	if !errors.Is(err, net.ErrClosed) {
		l.lock.Release()
	}
	return err
}

// Accept implements [net.Listener].
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		socket, ok := c.(*net.UnixConn)
		if !ok {
			return nil, errors.Join(errors.New("the control socket is not a unix socket"), c.Close())
		}
		uid, err := peercred.UID(socket)
		if err != nil {
			c.Close() // the process has probably ended
			continue
		}
		return &conn{socket, uid}, nil
	}
}

type conn struct {
	*net.UnixConn
	uid int
}

type uidKey struct{}

// ConnContext returns the context of a connection's requests, for [http.Server.ConnContext].
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	if peer, ok := c.(*conn); ok {
		ctx = context.WithValue(ctx, uidKey{}, peer.uid)
	}
	return ctx
}

// Server is what the socket serves.
type Server struct {
	About  About
	Caller admin.Caller
	// Pending reads the configuration. It is required, and must be safe for concurrent use.
	Pending func() Pending
	// Memory bounds the memory of operations; nil means no limit.
	Memory *budget.Budget
	Log    *logrus.Entry
}

// Handler returns the handler of a server's requests. The server must use [Listen] and [ConnContext].
func Handler(s Server) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+aboutPath, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, s.About) })
	mux.HandleFunc("GET "+pendingPath, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, s.Pending()) })
	mux.HandleFunc("POST "+callPath+"{operation}", s.call)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		uid, known := r.Context().Value(uidKey{}).(int)
		if !known || uid != 0 && uid != os.Geteuid() {
			s.Log.WithField("uid", uid).Warn("refused a command of another user")
			writeJSON(w, http.StatusForbidden, problem{fault.KindForbidden, "only root and the server's own user may administer the server"})
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func (s Server) call(w http.ResponseWriter, r *http.Request) {
	request, err := readRequest(w, r)
	if err != nil {
		writeProblem(w, err)
		return
	}
	uid, _ := r.Context().Value(uidKey{}).(int) // checked before
	ctx, done := s.Memory.Begin(admin.By(r.Context(), uid, r.Header.Get(sudoHeader)))
	defer done()
	operation := r.PathValue("operation")
	answer, err := s.Caller.Call(ctx, operation, request)
	log := s.Log.WithFields(logrus.Fields{"operation": operation, "uid": uid})
	if err != nil {
		log.WithError(err).Info("a command failed")
		writeProblem(w, err)
		return
	}
	log.Info("ran a command")
	writeRaw(w, http.StatusOK, answer)
}

func writeProblem(w http.ResponseWriter, err error) {
	status := http.StatusUnprocessableEntity
	switch _, unknown := errors.AsType[*admin.UnknownError](err); {
	case unknown:
		status = http.StatusNotFound
	case fault.KindOf(err) == "":
		status = http.StatusInternalServerError
	}
	writeJSON(w, status, problem{fault.KindOf(err), err.Error()})
}
