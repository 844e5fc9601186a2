package service

import (
	"context"
	"fmt"
	"time"
)

// What launchctl's exit codes say; up to 106 they are those of errno.h.
const (
	exitIO         = 5   // EIO: a bootstrap while the label is still, or already, taken
	exitInProgress = 36  // EINPROGRESS: a bootout that goes on
	exitAlready    = 37  // EALREADY: what was asked for is so, or is being done
	exitNoDomain   = 112 // there is no such domain
	exitNoSession  = 125 // the domain cannot do this: the user has no session on the screen
)

// launchdTime is how long launchd may take to forget a service: its ExitTimeOut
// and some more. launchdPause is the time between two looks.
const (
	launchdTime  = 45 * time.Second
	launchdPause = 200 * time.Millisecond
)

func (l *launchd) ctl(ctx context.Context, args ...string) (string, error) {
	return l.commands.run(ctx, "launchctl", args...)
}

// loaded reports whether launchd knows the service, also as one that is leaving.
func (l *launchd) loaded(ctx context.Context) (bool, error) {
	_, err := l.ctl(ctx, "print", l.target())
	if exitCode(err) > 0 {
		return false, nil // print fails for what is not loaded, and for nothing else here
	}
	return err == nil, err
}

// bootstrap loads the service, which starts it. launchd answers the same (EIO, or
// EALREADY) for a label that it has not let go of since a bootout, perhaps seconds
// after print has ceased to know it, and for one that somebody else has loaded
// meanwhile; so the answer is not believed until it has not changed for a while.
func (l *launchd) bootstrap(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, launchdTime)
	defer cancel()
	tick := time.NewTicker(launchdPause)
	defer tick.Stop()
	for {
		_, err := l.ctl(ctx, "bootstrap", l.domain, l.File())
		switch exitCode(err) {
		case exitIO, exitAlready:
		case exitNoDomain, exitNoSession:
			return fmt.Errorf("%w: a service of a user is loaded into the user's session on the screen: log in there first", err)
		default:
			return err
		}
		if loaded, lerr := l.loaded(ctx); lerr != nil {
			return lerr
		} else if loaded {
			return l.kickstart(ctx)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("launchd did not load %s within %s: %w; plutil -lint %s and the system log say more", l.options.Name, launchdTime, err, l.File())
		}
	}
}

// kickstart starts a service that is loaded. For one that runs it does nothing.
func (l *launchd) kickstart(ctx context.Context) error {
	if _, err := l.ctl(ctx, "kickstart", l.target()); exitCode(err) != exitAlready {
		return err
	}
	return nil
}

// bootout unloads the service and waits until launchd has forgotten it, because a
// bootstrap before that fails. launchctl itself does not wait.
func (l *launchd) bootout(ctx context.Context) error {
	loaded, err := l.loaded(ctx)
	if err != nil || !loaded {
		return err
	}
	_, refused := l.ctl(ctx, "bootout", l.target())
	if exitCode(refused) == exitInProgress {
		refused = nil
	}
	ctx, cancel := context.WithTimeout(ctx, launchdTime)
	defer cancel()
	tick := time.NewTicker(launchdPause)
	defer tick.Stop()
	for {
		loaded, err := l.loaded(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			return err
		case err == nil && !loaded:
			return nil // also if it was gone before the bootout came
		case refused != nil:
			return refused
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("launchd did not unload %s within %s: see launchctl print %s", l.options.Name, launchdTime, l.target())
		}
	}
}
