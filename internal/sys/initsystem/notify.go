package initsystem

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"workflowagent/internal/retry"
)

// Managed reports whether a service manager started this process.
func Managed() bool {
	// launchd sets XPC_SERVICE_NAME in a user's entire session. For processes that are not
	// services, the value is "0".
	label := os.Getenv("XPC_SERVICE_NAME")
	if os.Getenv("NOTIFY_SOCKET") != "" || label != "" && label != "0" {
		return true
	}
	// Other units, such as Homebrew's, have no notify socket. The children of a service inherit
	// SYSTEMD_EXEC_PID, but it contains the ID of another process.
	return os.Getenv("SYSTEMD_EXEC_PID") == strconv.Itoa(os.Getpid())
}

// LiveLong changes two defaults of Go programs. First, a crash or the signal of systemd's watchdog
// would exit with code 2. For agent and server, this code means an invalid configuration, after which
// no service manager restarts them, so LiveLong makes a signal terminate the process instead. Second, a
// write to a log that has no reader, such as after a crash of journald, would terminate the process.
// LiveLong prevents this, because the work is more important.
func LiveLong() {
	debug.SetTraceback("crash")
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // children would inherit an ignored signal
}

// Supervision reports to the service manager a one-line status of the program, and whether the program
// is alive. The first status marks the service as ready.
type Supervision struct {
	mu    sync.Mutex
	line  func() string
	alive func() bool

	doing         atomic.Pointer[string] // while the service starts
	starting, end context.CancelFunc     // nil before Starting and Say
	notifier      sync.WaitGroup
}

// moreTime is the time that a service that starts requests again and again, until it is ready.
const moreTime = time.Minute

// Starting reports what the service does before it is ready, and that this takes time. It can be called again. The service
// manager waits until [Supervision.Say] or [Supervision.Close] is called, or the process ends.
func (s *Supervision) Starting(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end != nil {
		return
	}
	s.doing.Store(&line)
	if s.starting != nil {
		_, _ = daemon.SdNotify(false, "STATUS="+line) // otherwise, the notifier reports it later
		return
	}
	var ctx context.Context
	ctx, s.starting = context.WithCancel(context.Background())
	s.notifier.Go(func() {
		for {
			listening, err := daemon.SdNotify(false, "STATUS="+*s.doing.Load()+"\n"+extend(moreTime))
			if !listening || err != nil || retry.Sleep(ctx, moreTime/3) != nil {
				return
			}
		}
	})
}

// Say sets the functions that return the status and check whether the program is alive. If alive is
// nil, the program is waiting for something.
func (s *Supervision) Say(line func() string, alive func() bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line, s.alive = line, alive
	if s.end != nil {
		return
	}
	if s.starting != nil {
		s.starting()
		s.notifier.Wait()
	}
	var ctx context.Context
	ctx, s.end = context.WithCancel(context.Background())
	s.notifier.Go(func() { s.notify(ctx) })
}

// Reload reports that the service reloads its configuration while reload runs.
func (s *Supervision) Reload(reload func()) {
	listening, err := daemon.SdNotify(false, daemon.SdNotifyReloading+"\n"+daemon.SdNotifyMonotonicUsec())
	reload()
	s.mu.Lock()
	ready := s.end != nil
	s.mu.Unlock()
	if !listening || err != nil || !ready {
		return
	}
	line, _ := s.now()
	_, _ = daemon.SdNotify(false, daemon.SdNotifyReady+"\nSTATUS="+line) // systemd might no longer be listening
}

// Close reports that the service is stopping, if it was ready.
func (s *Supervision) Close() { s.Stopping(0) }

// Stopping is like [Supervision.Close], and requests time to stop.
func (s *Supervision) Stopping(within time.Duration) {
	s.mu.Lock()
	starting, end := s.starting, s.end
	s.mu.Unlock()
	if starting != nil {
		starting()
	}
	if end != nil {
		end()
	}
	s.notifier.Wait()
	if end != nil && within > 0 {
		_, _ = daemon.SdNotify(false, extend(within)) // the unit's own limit applies otherwise
	}
}

func (s *Supervision) now() (line string, alive bool) {
	s.mu.Lock()
	getLine, getAlive := s.line, s.alive
	s.mu.Unlock()
	return getLine(), getAlive == nil || getAlive()
}

// lineEvery is the longest time after which systemd knows a new status.
const lineEvery = 2 * time.Second

// notify reports to systemd that the service is ready. It then regularly reports the status and,
// while the program is alive, the watchdog's signal. When ctx is canceled, notify reports that the
// service is stopping and returns. If no service manager is listening, it does nothing.
func (s *Supervision) notify(ctx context.Context) {
	reported, _ := s.now()
	listening, err := daemon.SdNotify(false, daemon.SdNotifyReady+"\nSTATUS="+reported)
	if !listening || err != nil {
		return
	}
	defer func() { _, _ = daemon.SdNotify(false, daemon.SdNotifyStopping) }() // systemd might no longer be listening
	interval, err := daemon.SdWatchdogEnabled(false)
	watched := err == nil && interval > 0
	if !watched {
		interval = time.Minute
	}
	interval = min(interval/3, 10*time.Second)
	signalled := time.Now()
	for retry.Sleep(ctx, min(interval, lineEvery)) == nil {
		line, alive := s.now()
		if watched && alive && time.Since(signalled) >= interval {
			signalled = time.Now()
			_, _ = daemon.SdNotify(false, daemon.SdNotifyWatchdog) // the next signal can succeed
		}
		if line != reported {
			if _, err := daemon.SdNotify(false, "STATUS="+line); err == nil {
				reported = line
			}
		}
	}
}

func extend(d time.Duration) string { return fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", d.Microseconds()) }
