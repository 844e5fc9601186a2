package service

import (
	"context"
	"os"
	"strconv"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Notify tells systemd that the service is up, and from then on what it does and,
// for as long as it is alive, that the watchdog has no cause to act. It returns
// when ctx has ended and systemd knows that the service stops. Without a service
// manager that listens it does nothing.
func Notify(ctx context.Context, alive func() bool, status func() string) {
	told := status()
	listening, err := daemon.SdNotify(false, daemon.SdNotifyReady+"\nSTATUS="+told)
	if !listening || err != nil {
		return
	}
	defer func() { _, _ = daemon.SdNotify(false, daemon.SdNotifyStopping) }() // nobody is left to tell
	interval, err := daemon.SdWatchdogEnabled(false)
	watched := err == nil && interval > 0
	if !watched {
		interval = time.Minute
	}
	tick := time.NewTicker(min(interval/3, 10*time.Second))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if watched && alive() {
			_, _ = daemon.SdNotify(false, daemon.SdNotifyWatchdog) // the next one may get through
		}
		if now := status(); now != told {
			if _, err := daemon.SdNotify(false, "STATUS="+now); err == nil {
				told = now
			}
		}
	}
}

// Managed reports whether a service manager started this process.
func Managed() bool {
	// launchd sets the second for everything in a user's session, to "0" for what
	// is not its own.
	label := os.Getenv("XPC_SERVICE_NAME")
	if os.Getenv("NOTIFY_SOCKET") != "" || label != "" && label != "0" {
		return true
	}
	// A unit that is not ours, such as Homebrew's, has no socket. The children of a
	// service inherit this variable with the number of another process.
	return os.Getenv("SYSTEMD_EXEC_PID") == strconv.Itoa(os.Getpid())
}
