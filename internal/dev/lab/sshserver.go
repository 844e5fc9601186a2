package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"workflowagent/internal/dev/lab/child"
)

const (
	sshStart = 2 * time.Minute
	// sshRunDir must be an empty directory for sshd to run as root.
	sshRunDir = "/run/sshd"
)

const sshCommand = `#!/bin/sh
case "$SSH_ORIGINAL_COMMAND" in
"git-upload-pack "*) exec git shell -c "$SSH_ORIGINAL_COMMAND" ;;
esac
echo "this server only serves repositories for reading" >&2
exit 1
`

// SSHServer is an OpenSSH server from which git reads repositories. It accepts only the current
// user, with the server's login key.
type SSHServer struct {
	// PrivateKey is the login key, in OpenSSH's format.
	PrivateKey string
	// KnownHosts is the server's line in the format of a known_hosts file.
	KnownHosts string

	user    string
	port    int
	process *child.Process
}

// SSHAvailable reports whether [StartSSHServer] works on this machine, and if not, why.
func SSHAvailable() (reason string, ok bool) {
	for _, name := range []string{"sshd", "ssh-keygen"} {
		if _, err := child.Find(name); err != nil {
			return err.Error() + " (Debian's openssh-server)", false
		}
	}
	return "", true
}

// StartSSHServer starts an ssh server on loopback with its files in dir. A non-empty passphrase
// protects its login key. The caller must close the server.
func StartSSHServer(ctx context.Context, dir, passphrase string) (*SSHServer, error) {
	s := new(SSHServer)
	if err := s.start(ctx, dir, passphrase); err != nil {
		s.Close()
		return nil, fmt.Errorf("starting an ssh server: %w", err)
	}
	return s, nil
}

// RepoURL returns the URL of a repository on this server.
func (s *SSHServer) RepoURL(repo *Repo) string {
	return fmt.Sprintf("ssh://%s@127.0.0.1:%d%s", s.user, s.port, repo.Dir())
}

// Close stops the server.
func (s *SSHServer) Close() {
	if s.process != nil {
		_ = s.process.Stop(syscall.SIGTERM, child.Patience)
	}
}

func (s *SSHServer) start(ctx context.Context, dir, passphrase string) error {
	if reason, ok := SSHAvailable(); !ok {
		return errors.New(reason)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	account, err := user.Current()
	if err != nil {
		return err
	}
	s.user = account.Username
	if os.Geteuid() == 0 {
		if err := os.MkdirAll(sshRunDir, 0o755); err != nil {
			return err
		}
	}
	if s.port, err = child.FreePort("127.0.0.1"); err != nil {
		return err
	}
	if err := s.makeKeys(ctx, dir, passphrase); err != nil {
		return err
	}
	config, err := writeSSHConfig(dir, s.port)
	if err != nil {
		return err
	}
	daemon, err := child.Find("sshd")
	if err != nil {
		return err
	}
	logPath := filepath.Join(dir, "sshd.log")
	cmd := exec.CommandContext(context.WithoutCancel(ctx), daemon, "-D", "-e", "-f", config)
	if s.process, err = child.StartCommand(cmd, logPath); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, sshStart)
	defer cancel()
	return s.process.Await(ctx, 20*time.Millisecond, func() (bool, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", "127.0.0.1:"+strconv.Itoa(s.port))
		if err != nil {
			return false, nil //nolint:nilerr // sshd does not listen yet.
		}
		return true, conn.Close()
	})
}

func (s *SSHServer) makeKeys(ctx context.Context, dir, passphrase string) error {
	keygen, err := child.Find("ssh-keygen")
	if err != nil {
		return err
	}
	for name, secret := range map[string]string{"host": "", "client": passphrase} {
		cmd := child.Command(ctx, keygen, "-q", "-t", "ed25519", "-N", secret, "-C", "lab", "-f", filepath.Join(dir, name))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("creating a key: %w: %s", err, out)
		}
	}
	private, err := os.ReadFile(filepath.Join(dir, "client"))
	if err != nil {
		return err
	}
	host, err := os.ReadFile(filepath.Join(dir, "host.pub"))
	if err != nil {
		return err
	}
	s.PrivateKey = string(private)
	s.KnownHosts = fmt.Sprintf("[127.0.0.1]:%d %s", s.port, host)
	return nil
}

func writeSSHConfig(dir string, port int) (path string, err error) {
	script := filepath.Join(dir, "command")
	if err := os.WriteFile(script, []byte(sshCommand), 0o755); err != nil {
		return "", err
	}
	config := strings.Join([]string{
		"ListenAddress 127.0.0.1:" + strconv.Itoa(port),
		"HostKey " + filepath.Join(dir, "host"),
		"PidFile none",
		"AuthorizedKeysFile " + filepath.Join(dir, "client.pub"),
		"AuthenticationMethods publickey",
		"PermitRootLogin prohibit-password",
		"StrictModes no", // sshd rejects the permissions of temporary directories
		"UsePAM no",
		"DisableForwarding yes",
		"PermitTTY no",
		"AcceptEnv GIT_PROTOCOL",
		"ForceCommand " + script,
		"",
	}, "\n")
	path = filepath.Join(dir, "sshd_config")
	return path, os.WriteFile(path, []byte(config), 0o600)
}
