package runner

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/protocol"
)

type leaverFunc func(ctx context.Context) (protocol.HeartbeatResponse, error)

func (f leaverFunc) Heartbeat(ctx context.Context, phase protocol.Phase) (protocol.HeartbeatResponse, error) {
	if phase != protocol.PhaseStarting {
		return protocol.HeartbeatResponse{}, errors.New("wrong phase " + string(phase))
	}
	return f(ctx)
}

func TestAskLeave(t *testing.T) {
	down := errors.New("no route to host")
	for _, tc := range []struct {
		name      string
		answer    leaverFunc
		cancelled bool
		err       string
		took      time.Duration // longest time
	}{
		{"granted", func(context.Context) (protocol.HeartbeatResponse, error) {
			return protocol.HeartbeatResponse{Started: true}, nil
		}, false, "", 0},
		{"another server", func(context.Context) (protocol.HeartbeatResponse, error) {
			return protocol.HeartbeatResponse{}, nil
		}, false, "", 0},
		{"granted and cancelled", func(context.Context) (protocol.HeartbeatResponse, error) {
			return protocol.HeartbeatResponse{Started: true, CancelRequested: true}, nil
		}, true, "", 0},
		{"cancelled", func(context.Context) (protocol.HeartbeatResponse, error) {
			return protocol.HeartbeatResponse{CancelRequested: true}, nil
		}, false, "cancelled", 0},
		{"network down", func(context.Context) (protocol.HeartbeatResponse, error) {
			return protocol.HeartbeatResponse{}, down
		}, false, "within 10m0s; nothing was started", 10 * time.Minute},
		{"server hangs", func(ctx context.Context) (protocol.HeartbeatResponse, error) {
			<-ctx.Done()
			return protocol.HeartbeatResponse{}, ctx.Err()
		}, false, "within 10m0s; nothing was started", 10 * time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				quiet := logrus.New()
				quiet.SetOutput(io.Discard)
				began := time.Now()
				cancelled, err := askLeave(t.Context(), tc.answer, false, make(chan os.Signal), logrus.NewEntry(quiet))
				if cancelled != tc.cancelled || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
					t.Errorf("cancelled %v, %v", cancelled, err)
				}
				if took := time.Since(began); took > tc.took {
					t.Errorf("it took %s", took)
				}
			})
		})
	}
}
