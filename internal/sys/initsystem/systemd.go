package initsystem

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/termtext"
)

// ErrNotInstalled means that the service manager does not know a service.
var ErrNotInstalled = errors.New("the service is not installed")

// State is the service manager's report about a service.
type State struct {
	Active    string    `json:"active"`           // active, activating, deactivating, inactive or failed
	Detail    string    `json:"detail,omitempty"` // description by the service manager
	Enabled   string    `json:"enabled,omitempty"`
	PID       int       `json:"pid,omitempty"`
	Restarts  int       `json:"restarts"` // number of restarts since the service was started manually or at boot
	Since     time.Time `json:"since,omitzero"`
	LastExit  string    `json:"lastExit,omitempty"`
	Installed string    `json:"file"` // path of the unit or the property list
}

// Booted reports whether systemd runs this machine, in the same way as sd_booted(3).
func Booted() bool {
	info, err := os.Lstat("/run/systemd/system")
	return err == nil && info.IsDir()
}

// Systemd controls services of the machine or, with User, of the current user.
type Systemd struct {
	Commands Runner
	User     bool
}

// Ctl runs systemctl.
func (s Systemd) Ctl(ctx context.Context, args ...string) (string, error) {
	if !s.User {
		return s.Commands.Run(ctx, "systemctl", args...)
	}
	out, err := s.Commands.Run(ctx, "systemctl", append([]string{"--user"}, args...)...)
	if err != nil && strings.Contains(err.Error(), "Failed to connect to") {
		err = fmt.Errorf("%w; %s", err, HowToSession())
	}
	return out, err
}

// HowToSession returns advice on how to start a user's systemd.
func HowToSession() string {
	name := "USER"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	return fmt.Sprintf("log in as that user (not through su or sudo), or let root run loginctl enable-linger %s and set XDG_RUNTIME_DIR=/run/user/%d", name, os.Getuid())
}

// Describe returns the state of a unit, or [ErrNotInstalled].
func (s Systemd) Describe(ctx context.Context, unit string) (State, error) {
	out, err := s.Ctl(ctx, "show", unit,
		"--property=LoadState,ActiveState,SubState,UnitFileState,MainPID,NRestarts,Result,StatusText,ExecMainCode,ExecMainStatus,StateChangeTimestamp")
	if err != nil {
		return State{}, err
	}
	values := map[string]string{}
	for line := range strings.Lines(out) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		values[key] = value
	}
	if values["LoadState"] == "not-found" {
		return State{}, ErrNotInstalled
	}
	state := State{
		Active: values["ActiveState"], Detail: values["SubState"], Enabled: values["UnitFileState"],
	}
	if values["LoadState"] == "masked" {
		state.Detail = "masked"
	}
	state.PID, _ = strconv.Atoi(values["MainPID"]) // absent means 0
	if text := values["StatusText"]; text != "" && state.PID > 0 {
		// Without a process, the text would come from a process that has exited. The text is
		// untrusted and can be displayed on root's terminal.
		state.Detail += ": " + string(termtext.Plain(nil, []byte(text)))
	}
	state.Restarts, _ = strconv.Atoi(values["NRestarts"]) // absent means 0
	// --timestamp=unix would be simpler, but is an error before systemd 251.
	if since, err := time.Parse("Mon 2006-01-02 15:04:05 MST", values["StateChangeTimestamp"]); err == nil {
		state.Since = since.Local()
	}
	if result := values["Result"]; result != "success" {
		state.LastExit = result
		switch values["ExecMainCode"] { // as in waitid(2)
		case "1":
			state.LastExit += ", exit code " + values["ExecMainStatus"]
		case "2", "3":
			state.LastExit += ", signal " + values["ExecMainStatus"]
		}
	}
	return state, nil
}

// Logs writes the last lines of a unit's log, oldest first. If follow is true, it then writes new lines
// until ctx is canceled.
func (s Systemd) Logs(ctx context.Context, out io.Writer, unit string, lines int, follow bool) error {
	args := []string{"--no-pager", "--output=cat", "--lines=" + strconv.Itoa(lines)}
	if s.User {
		args = append(args, "--user-unit="+unit)
	} else {
		args = append(args, "--unit="+unit)
	}
	if follow {
		args = append(args, "--follow")
	}
	return s.Commands.Stream(ctx, out, "journalctl", args...)
}

// Version returns the version of systemd.
func (s Systemd) Version(ctx context.Context) (int, error) {
	out, err := s.Commands.Run(ctx, "systemctl", "--version")
	if err != nil {
		return 0, fmt.Errorf("reading the version of systemd: %w", err)
	}
	fields := strings.Fields(out)
	if len(fields) < 2 {
		return 0, fmt.Errorf("systemctl --version prints %q, without a version", out)
	}
	version, err := strconv.Atoi(fields[1])
	if err != nil {
		return 0, fmt.Errorf("systemctl --version prints %q, without a version", out)
	}
	return version, nil
}
