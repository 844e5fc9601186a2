package runners

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// DefaultUser is the system user that the agent's packages create too.
const DefaultUser = "workflow-agent"

// account is the system user of the agent.
type account struct {
	name   string
	uid    uint32
	gid    uint32
	groups []uint32
}

// account returns the agent's user. It creates the default user if it is missing.
func (s *Service) account(ctx context.Context) (account, error) {
	name := s.opts.User
	if runtime.GOOS != "linux" {
		return account{}, errors.New("built-in runners require Linux: leave out --runners and run an agent next to the server")
	}
	if os.Geteuid() != 0 {
		return account{}, fmt.Errorf("built-in runners need a server that runs as root, which starts the agent as the user %s: start the server as root, or leave out --runners and run an agent next to the server", name)
	}
	found, err := user.Lookup(name)
	if _, unknown := errors.AsType[user.UnknownUserError](err); unknown && name == DefaultUser {
		out, createErr := exec.CommandContext(ctx, "useradd", "--system", "--user-group", "--no-create-home",
			"--home-dir", s.opts.Dir, "--shell", "/usr/sbin/nologin", name).CombinedOutput()
		if createErr != nil {
			return account{}, fmt.Errorf("creating the user %s: %w %s", name, createErr, firstLine(out))
		}
		s.opts.Log.WithField("user", name).Info("created the user of the built-in runners")
		found, err = user.Lookup(name)
	}
	if _, unknown := errors.AsType[user.UnknownUserError](err); unknown {
		return account{}, fmt.Errorf("--runners-user: the user %s does not exist: create it, for example with useradd --system %[1]s", name)
	}
	if err != nil {
		return account{}, fmt.Errorf("--runners-user: %w", err)
	}
	acc := account{name: name}
	if acc.uid, err = number(found.Uid); err == nil {
		acc.gid, err = number(found.Gid)
	}
	if err != nil {
		return account{}, fmt.Errorf("--runners-user: %w", err)
	}
	if acc.uid == 0 || int(acc.uid) == os.Geteuid() {
		return account{}, fmt.Errorf("--runners-user: the user %s is root or the server's own user: choose another one", name)
	}
	groups, err := found.GroupIds()
	if err != nil {
		return account{}, fmt.Errorf("--runners-user: %w", err)
	}
	for _, text := range groups {
		if gid, err := number(text); err == nil {
			acc.groups = append(acc.groups, gid)
		}
	}
	if gid, ok := engineGroup(s.opts.Getenv("DOCKER_HOST")); ok && s.opts.Target == Docker && !slices.Contains(acc.groups, gid) {
		acc.groups = append(acc.groups, gid)
	}
	return acc, nil
}

func number(text string) (uint32, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	return uint32(n), err
}

// engineGroup returns the group that may use the engine's socket, as root gives it to the agent of
// a service. A socket of the group root has no such group.
func engineGroup(dockerHost string) (uint32, bool) {
	path, ok := strings.CutPrefix(dockerHost, "unix://")
	if dockerHost == "" {
		path, ok = "/var/run/docker.sock", true
	}
	if !ok {
		return 0, false
	}
	info, err := os.Stat(path)
	if err != nil {
		return 0, false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return stat.Gid, ok && stat.Gid != 0
}
